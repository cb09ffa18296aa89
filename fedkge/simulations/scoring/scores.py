"""Scores of clients by filter, split and part: of sides, of kinds of relations, of seen and unseen ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.training.evaluate import sums_of
from fedkge.client.training.ranks import Ranks
from fedkge.metrics import NORMAL_95, MetricSums
from fedkge.server.summary import metrics_of
from fedkge.simulations.scoring.kinds import ENDS, KINDS, UNSEEN, question_ends

__all__ = ["WHOLE", "Parts", "Scores", "parts_of"]

Part = tuple[str, str]  # "sides", "kinds" or "ends", and which
Parts = Mapping[Part, MetricSums]

WHOLE: Part = ("", "")
MACRO = "macro"  # in place of a client: the mean over clients


def parts_of(
    ranks: Ranks, kinds: Sequence[str], seen: NDArray[np.bool_], ties: str
) -> dict[Part, MetricSums]:
    """What the triples of one client score, as a whole and by part.

    Args:
        kinds: of relations.
        seen: (entities,) which have train triples.
    """
    kind_of = np.array(kinds)[ranks.triples[:, 1]]
    parts = {WHOLE: sums_of(ranks, ties)}
    parts |= {("sides", side): sums_of(ranks.of_side(side), ties) for side in ranks.sides}
    for kind in (*KINDS, UNSEEN):
        if (kind_of == kind).any():
            parts["kinds", kind] = sums_of(ranks[kind_of == kind], ties)
    return parts | _parts_by_ends(ranks, seen, ties)


def _parts_by_ends(ranks: Ranks, seen: NDArray[np.bool_], ties: str) -> dict[Part, MetricSums]:
    """Of triples whose ends were both seen and of the others; of these, by question, which end was not."""
    whole = seen[ranks.triples[:, 0]] & seen[ranks.triples[:, 2]]
    parts = {("ends", name): sums_of(ranks[rows], ties) for name, rows in (("seen", whole), (UNSEEN, ~whole))}
    for name in ENDS[2:]:
        questions = [
            ranks.of_side(side)[question_ends(ranks.triples, side, seen) == name] for side in ranks.sides
        ]
        parts["ends", name] = MetricSums.total([sums_of(of_side, ties) for of_side in questions])
    return {part: sums for part, sums in parts.items() if sums.count}


@dataclass(frozen=True)
class Scores:
    """What clients score on a split under one filter."""

    filter: str
    split: str
    clients: Mapping[int, Parts]

    def summary(self) -> dict[str, Any]:
        """The micro mean with its interval, then the macro mean, sides, kinds, ends and single clients."""
        groups: dict[str, dict[str, Any]] = {"sides": {}, "kinds": {}, "ends": {}}
        for group, name in self._parts[1:]:
            groups[group][name] = metrics_of(self._total((group, name)))
        clients = {str(client): metrics_of(parts[WHOLE]) for client, parts in self.clients.items()}
        return {**metrics_of(self._total(WHOLE)), MACRO: self._macro(), **groups, "clients": clients}

    def rows(self, round: int) -> Iterator[tuple[int, str, str, str, float]]:
        """For metrics.csv: round, client, split with filter and part, metric, value."""
        split = f"{self.split} filter={self.filter}"
        for client, parts in self.clients.items():
            yield from _rows(round, str(client), split, parts[WHOLE].means())
        for group, name in self._parts:
            part = f" {group.removesuffix('s')}={name}" if name else ""
            yield from _rows(round, "all", split + part, self._total((group, name)).means())
        macro = {name: score["value"] for name, score in self._macro().items() if name != "count"}
        yield from _rows(round, MACRO, split, macro)

    @property
    def _parts(self) -> list[Part]:
        """The whole first, then sides and kinds in their usual order, and ends if some were unseen."""
        known = {part for parts in self.clients.values() for part in parts}
        order = [WHOLE, *(("sides", side) for side in ("tail", "head"))]
        order += [("kinds", kind) for kind in (*KINDS, UNSEEN)]
        order += [("ends", end) for end in ENDS if ("ends", UNSEEN) in known]
        return [part for part in order if part in known]

    def _total(self, part: Part) -> MetricSums:
        return MetricSums.total([parts[part] for parts in self.clients.values() if part in parts])

    def _macro(self) -> dict[str, Any]:
        """The mean of the clients' means, with 95 % over their triples, the clients given; their number."""
        sums = [parts[WHOLE] for parts in self.clients.values() if parts[WHOLE].count]
        means = [part.means() for part in sums]
        spans = [part.intervals() for part in sums]
        macro: dict[str, Any] = {}
        for name in means[0] if means else ():
            value = sum(mean[name] for mean in means) / len(means)
            errors = [(span[name][1] - span[name][0]) / (2 * NORMAL_95) for span in spans]
            half = NORMAL_95 * sqrt(sum(error**2 for error in errors)) / len(errors)
            macro[name] = {"value": value, "interval": [value - half, value + half]}
        return {**macro, "count": len(sums)}


def _rows(
    round: int, client: str, split: str, means: Mapping[str, float]
) -> Iterator[tuple[int, str, str, str, float]]:
    for metric, value in means.items():
        yield round, client, split, metric, value
