"""Who holds which relation or entity, and in how many triples: rows that are trained on more move further."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from fedkge.attacks.attack import Attack, Protocol
from fedkge.attacks.findings import Finding
from fedkge.attacks.holdings.rank_correlation import FEWEST, correlation, random_reach
from fedkge.attacks.holdings.row_motion import (
    Motion,
    Names,
    Values,
    masked_motion,
    mean_motion,
    motion_of_all,
    motion_of_pseudonyms,
    motions_of_each,
    own_counts,
)
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import View

__all__ = ["Holdings", "less_own"]

_TABLES = ("entity", "relation")


class Holdings(Attack):
    """Guess how many triples of each relation or entity the others train on, from how far its row moves.

    Uploads in the open tell it of each client, sums of all clients together. The figure is Spearman's ρ of
    the guess with the true counts. Guessing is the best of what 97.5 % of random orders stay below, of the
    colluders' own counts, and of how far the row moves for the other clients, where their uploads are open:
    on a random split these are nearly everyone's.
    """

    every_round = True

    def assess(self, view: View, truth: Truth, protocol: Protocol, rng: np.random.Generator) -> list[Finding]:
        if protocol != "rigorous" or view.granted:
            return []  # no paper measures it, and a grant of rows without names adds nothing
        return [
            finding
            for table in _TABLES
            if _travels(view, table)
            for finding in _Scoring(view, truth, table, rng).findings()
        ]


def less_own(total: Values, own: Values, num_clients: int) -> Values:
    """(n,) what is left for the others if all clients together hold as many as the colluders' counts suggest.

    How a row's motion grows with its triples is not known, only that it does: the largest motion is taken for
    as many clients' worth of the colluders' largest count, and so on down.
    """
    expected = np.empty(len(total))
    expected[np.argsort(total, kind="stable")] = np.sort(own) * num_clients
    return expected - own


class _Scoring:
    """The findings about one table of a view."""

    def __init__(self, view: View, truth: Truth, table: str, rng: np.random.Generator) -> None:
        self.view, self.truth, self.table, self.rng = view, truth, table, rng
        self.labels = view.relations if table == "relation" else view.entities

    def findings(self) -> Iterator[Finding]:
        if not self.view.sums_only and any(shot.lee or shot.lre for shot in self.view.rounds):
            for target in self.view.targets:
                yield from self._of_upload(target)
        elif _masked(self.view):
            yield from self._of_masked()
        else:
            yield from self._of_sums()

    def _of_upload(self, target: int) -> Iterator[Finding]:
        motion = self._motions.get(target)
        if motion is None:
            yield self._impossible(target, "no two rounds in a row were recorded of this client")
            return
        others = [other for client, other in self._motions.items() if client != target]
        guesses = {"the other clients' mean motion": mean_motion(others, motion.names)} if others else {}
        yield from self._counted(motion, [target], target, "upload", guesses)
        held = np.zeros(len(self.labels))
        held[motion.names] = 1.0
        names = np.arange(len(self.labels))
        note = "read: rows travel by name"
        yield self._held(Motion(names, held, motion.rounds), target, "upload", note, is_read=True)

    @cached_property
    def _motions(self) -> Mapping[int, Motion]:
        return motions_of_each(self.view, self.table)

    def _of_masked(self) -> Iterator[Finding]:
        pseudonyms = motion_of_pseudonyms(self.view, self.table)
        for target in self.view.targets:
            motion = masked_motion(self.view, self.table, target)
            if motion is None:
                yield self._impossible(
                    target,
                    f"uploads are masked, and the {self.view.adversary} can name no row; what the sums tell "
                    "of each pseudonym is told of all clients together",
                )
            else:
                yield from self._counted(motion, [target], target, "masked upload")
        if pseudonyms is not None and not self.view.handed:
            yield from self._of_pseudonyms(pseudonyms)

    def _of_pseudonyms(self, motion: Motion) -> Iterator[Finding]:
        label_of = self.truth.shared_labels(self.table)
        labels = [label_of[number] for number in motion.names.tolist()]
        everyone = range(len(self.truth.clients))
        true = _true_counts(self.truth, self.table, labels, everyone)
        note = "which label a pseudonym stands for is not told, and counts are those of all clients"
        yield from self._scored("sum, by pseudonym", motion.largest, true, {}, None, note)

    def _of_sums(self) -> Iterator[Finding]:
        motion = motion_of_all(self.view, self.table)
        if motion is None or not len(motion.names):
            yield self._impossible(None, "no two rounds in a row were recorded of rows that it can name")
            return
        source = "sum" if self.table in self.view.holders else "mean"
        targets = self.view.targets
        yield from self._counted(motion, targets, None, source)
        own = own_counts(self.view, self.table, motion.names)
        rest = Motion(motion.names, less_own(motion.largest, own, self.view.num_clients), motion.rounds)
        yield from self._counted(
            rest, targets, None, f"{source} less the colluders' own", shows_guesses=False
        )
        for target in targets:
            yield from self._counted(motion, [target], target, source)
            yield self._held(motion, target, source, "guessed: the sum is of all clients")

    def _counted(
        self,
        motion: Motion,
        clients: Sequence[int],
        target: int | None,
        source: str,
        guesses: Mapping[str, Values] | None = None,
        shows_guesses: bool = True,
    ) -> Iterator[Finding]:
        labels = [self.labels[name] for name in motion.names]
        true = _true_counts(self.truth, self.table, labels, clients)
        guesses = dict(guesses or {})
        if self.view.handed:
            guesses["the colluders' own counts"] = own_counts(self.view, self.table, motion.names)
        yield from self._scored(source, motion.largest, true, guesses, target, shows_guesses=shows_guesses)

    def _scored(
        self,
        source: str,
        guess: Values,
        true: Values,
        guesses: Mapping[str, Values],
        target: int | None,
        note: str = "",
        shows_guesses: bool = True,
    ) -> Iterator[Finding]:
        if len(true) < FEWEST or (true == true[0]).all():
            yield self._impossible(target, f"{len(true)} rows with counts that hardly differ have no order")
            return
        reach = random_reach(true, self.rng)
        notes = [f"97.5 % of random orders stay below {reach:.3f}"]
        reached = {name: correlation(values, true) for name, values in guesses.items()}
        notes += [f"{name}: {known[0]:.3f}" for name, known in reached.items()]
        value, interval = correlation(guess, true)
        yield self._finding(
            target,
            value,
            regime=f"{self.table} rows, {source}",
            interval=interval,
            baseline=max([reach, *(known for known, _ in reached.values())]),
            count=len(true),
            note="; ".join([*notes, *filter(None, [note])]),
        )
        for name, (known, around) in reached.items() if shows_guesses else ():
            yield self._finding(
                target,
                known,
                regime=f"{self.table} rows, guess: {name}",
                interval=around,
                baseline=max(reach, known),  # a guess finds out nothing
                count=len(true),
                note=notes[0],
            )

    def _held(self, motion: Motion, target: int, source: str, note: str, is_read: bool = False) -> Finding:
        """Which labels the target holds: those whose rows move most; nobody guesses what is read."""
        held = np.isin([self.labels[name] for name in motion.names], self._labels_of(target))
        regime = f"{self.table} rows, {source}"
        if held.all() or not held.any():
            reason = f"of the {len(held)} {self.table} labels that this adversary knows the client holds " + (
                "every one" if held.all() else "none"
            )
            return self._finding(target, None, "holding AUC", regime=regime, note=reason)
        from fedkge.attacks.membership.curve import Curve

        value, interval = Curve.of(motion.largest, held).figures(self.rng)["auc"]
        return self._finding(
            target,
            value,
            "holding AUC",
            regime=regime,
            interval=None if is_read else interval,
            baseline=None if is_read else 0.5,
            count=len(held),
            note=note,
        )

    def _labels_of(self, target: int) -> tuple[str, ...]:
        return tuple(self.truth.clients[target].labels[self.table])

    def _impossible(self, target: int | None, reason: str) -> Finding:
        return self._finding(target, None, regime=f"{self.table} rows", note=reason)

    def _finding(
        self,
        target: int | None,
        value: float | None,
        metric: str = "count Spearman",
        *,
        regime: str,
        interval: tuple[float, float] | None = None,
        baseline: float | None = None,
        count: int | None = None,
        note: str,
    ) -> Finding:
        return Finding.of(
            "holdings",
            "rigorous",
            self.view,
            target,
            metric,
            value,
            regime=regime,
            interval=interval,
            baseline=baseline,
            count=count,
            note=note,
        )


def _travels(view: View, table: str) -> bool:
    """Whether rows of a table are in any round of the view."""
    whole, local = ("gee", "lee") if table == "entity" else ("gre", "lre")
    return any(getattr(shot, whole) is not None or getattr(shot, local) for shot in view.rounds)


def _masked(view: View) -> bool:
    return any(rows.masked for shot in view.rounds for part in (shot.lee, shot.lre) for rows in part.values())


def _true_counts(truth: Truth, table: str, labels: Sequence[str], clients: Sequence[int]) -> Values:
    """(n,) how many train triples of these clients each label is in."""
    number = truth.number_relations if table == "relation" else truth.number_entities
    numbers: Names = number(labels)
    size = len(truth.relation_ids if table == "relation" else truth.entity_ids)
    columns = [1] if table == "relation" else [0, 2]
    counts = np.zeros(size)
    for client in clients:
        counts += np.bincount(truth.train(client)[:, columns].ravel(), minlength=size)
    true: Values = counts[numbers]
    return true
