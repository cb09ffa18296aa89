"""What the server must not learn, checked before a run; and what it learned, said after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedkge.crypto import FixedPoint
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.server.guarantees import guarantees

__all__ = ["Privacy", "check_privacy"]

_SCORES = "how many triples each client has, and its training losses, validation and test scores"
_SPENDING = "the ε and δ of each client's private training, its noise, and how many private steps it took"
_CLAIMED = (
    "assumed: clients count the rows that they hold and no others; counts are claimed, not proved, so that a "
    "malicious client can claim rows of others, which are then shared with fewer honest holders"
)

MOST_CLIENTS = 100


@dataclass(frozen=True)
class Privacy:
    """The section `privacy` of a summary, from what actually ran."""

    union: str
    secure_aggregation: bool
    consistency: bool
    rows_not_shared: Mapping[str, int]  # table -> rows with too few holders
    clip_rate: float | None
    learned: tuple[str, ...]
    accounts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # of private training, by client
    covers: Mapping[str, float] | None = None  # holders less assumed colluders -> share of the shared rows
    rounds_held_back: int = 0  # in which dropouts would have laid rows bare

    @classmethod
    def without_protection(cls, shared: Collection[str]) -> Privacy:
        """Tables as they are, from each client by name."""
        if not shared:
            return cls("none", False, False, {}, None, (_SCORES,))
        return cls(
            "plain",
            False,
            False,
            dict.fromkeys(shared, 0),
            None,
            (
                *(f"every label in the {name} table, and which client holds it" for name in shared),
                *(f"every client's {name} rows after every round" for name in shared),
                _SCORES,
            ),
        )

    @classmethod
    def with_sums(
        cls,
        mode: str,
        num_rows: Mapping[str, int],
        not_shared: Mapping[str, int],
        clip_rate: float,
        num_clients: int,
        fewest: int,
        consistency: bool,
        covers: Mapping[str, float],
        colluders: int,
        rounds_held_back: int,
        rows_from_seed: bool = False,
    ) -> Privacy:
        """Sums over the roster; who holds what depends on the mode of the union."""
        return cls(
            mode,
            True,
            consistency,
            not_shared,
            clip_rate,
            (
                *(
                    f"identifiers: {_IDENTIFIERS[mode].format(count, name)}"
                    for name, count in num_rows.items()
                ),
                f"initial rows: {_FROM_SEED if rows_from_seed else _INITIAL[mode]}",
                f"who holds what: {_HOLDERS[mode]}",
                *(f"counts: how many clients hold each row of the {name} table" for name in num_rows),
                *(
                    f"sums: by how much the shared {name} rows moved in each round, over the clients that "
                    f"took part (all {num_clients}{_unless(fewest, num_clients)})"
                    for name in num_rows
                ),
                "sums: losses, triples, seconds, memory, and validation and test scores, over those clients",
                "per-client rows: none; each client is sent the whole table, since rows cannot be picked",
                "liveness: which client answered, dropped out, and when",
                _told(covers, colluders),
                _CLAIMED,
            ),
            covers=covers,
            rounds_held_back=rounds_held_back,
        )

    def report(self) -> dict[str, Any]:
        return {
            "union": self.union,
            "secure_aggregation": self.secure_aggregation,
            "consistency": self.consistency,
            "rows_not_shared": dict(self.rows_not_shared),
            "covers": None if self.covers is None else dict(self.covers),
            "rounds_held_back": self.rounds_held_back,
            "clip_rate": self.clip_rate,
            **guarantees(self.accounts),
            "what_the_server_learned": [*self.learned, *([_SPENDING] if self.accounts else [])],
        }


def _told(covers: Mapping[str, float], colluders: int) -> str:
    """How well single clients hide in the sum of a row."""
    shares = ", ".join(f"{cover} for {share:.1%}" for cover, share in covers.items())
    assumed = f"{colluders} client{'s collude' if colluders != 1 else ' colludes'} with the server"
    return f"covers: honest holders behind a shared row, if {assumed}: {shares or 'no row is shared'}"


def _unless(fewest: int, num_clients: int) -> str:
    return "" if fewest == num_clients else f", or after dropouts at least {fewest}"


_IDENTIFIERS = {
    "plain": "all {} labels of the {} table",
    "hashed": "{} pseudonyms of the {} table, under a key that only the clients have",
    "private": "{} pseudonyms of the {} table, under a key that only the clients have",
    "oprf": "{} pseudonyms of the {} table, which no client can compute alone",
}
_SIMULATED = " (a simulation derives it from the seed, and keeps it out of what the server has)"
_INITIAL = {
    "plain": "all of them, which follow from the seed and the labels",
    "hashed": f"none; they come from a key that only the clients have{_SIMULATED}",
    "private": f"none; they come from a key that only the clients have{_SIMULATED}",
    "oprf": f"none; each comes from a secret of its label, which costs a query{_SIMULATED}",
}
_FROM_SEED = (
    "those of every label that it can guess, since privacy.rows_from_seed derives them from the public seed: "
    "the attack 'naming' finds the labels"
)
_HOLDERS = {
    "plain": "which client holds which label",
    "hashed": "which client holds which pseudonym",
    "private": "nothing",
    "oprf": "nothing",
}


def check_privacy(experiment: Experiment, shared: Collection[str]) -> None:
    """Refuse settings under which the protection would not hold; strategies that share nothing need none."""
    privacy, federation, n = experiment.privacy, experiment.federation, experiment.data.clients
    if not shared:
        return
    if federation.weighting == "triples" and any(experiment.dp_of(c).mode != "off" for c in range(n)):
        raise SettingError(
            "federation.weighting: 'triples' tells how many triples each row has, confidential ones as well; "
            'set federation.weighting = "holders", or privacy.dp.mode = "off"'
        )
    if not privacy.secure_aggregation:
        if privacy.union != "plain":
            raise SettingError(
                f"privacy.union: '{privacy.union}' hides nothing when every upload names its rows; set "
                'privacy.secure_aggregation = true, or privacy.union = "plain"'
            )
        if privacy.consistency:
            raise SettingError(
                "privacy.consistency: clients sign over whom a secure sum goes, and there is none; set "
                "privacy.secure_aggregation = true, or privacy.consistency = false"
            )
        return
    remedy = 'or set privacy.secure_aggregation = false and privacy.union = "plain"'
    if n < 3:
        raise SettingError(
            f"data.clients: secure aggregation needs at least 3 clients, not {n}: a sum over two tells each "
            f"the other's rows; add clients, {remedy}"
        )
    if n > MOST_CLIENTS:
        raise SettingError(
            f"data.clients: {n} are more than {MOST_CLIENTS}; secure aggregation masks every pair of them, "
            f"so that its cost grows with their square: use fewer, {remedy}"
        )
    if federation.fraction < 1:
        raise SettingError(
            f"federation.fraction: {federation.fraction:g} with secure aggregation: sums over changing "
            "cohorts form a linear system that reveals what each client holds; set federation.fraction = "
            f"1.0, {remedy}"
        )
    if federation.weighting != "holders":
        raise SettingError(
            "federation.weighting: 'triples' would need every client's triple counts, which secure "
            f'aggregation hides; set federation.weighting = "holders", {remedy}'
        )
    if privacy.union == "oprf" and privacy.helpers > n:
        raise SettingError(
            f"privacy.helpers: {privacy.helpers} of {n} clients; choose 1 to {n}: helpers are clients, and "
            "c + 1 of them withstand c that collude"
        )
    if privacy.colluders > n - 2:
        raise SettingError(
            f"privacy.colluders: {privacy.colluders} of {n} clients; choose 0 to {n - 2}: two honest clients "
            "hide each other, and one alone is hidden by nobody"
        )
    quorum, lowest = privacy.quorum(n), privacy.lowest_quorum(n)
    if not lowest <= quorum <= n:
        raise SettingError(
            f"privacy.threshold: {quorum} of {n} clients; choose {lowest} to {n}: two quorums must share a "
            f"client that is honest, if {privacy.colluders} may not be, and no more than all can answer"
        )
    FixedPoint(privacy.clip, n)  # raises if the sum would overflow
