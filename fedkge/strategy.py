"""The contract of a strategy: what is shared, how the server merges it, what a client does differently.

Client and server look the same class up under the same name. Its server verb sees means over clients and its
client verbs see one client's own rows, so a strategy works alike with open and with secure sums. A client
whose class of that name overrides other verbs than the server's refuses to join.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import SettingError
from fedkge.exchange import Table
from fedkge.experiment import FederationSettings, NoOptions, Settings, options_of
from fedkge.plugins import Registry

__all__ = [
    "STRATEGIES",
    "WEIGHTS",
    "ClientRound",
    "Strategy",
    "Term",
    "build_strategy",
    "check_shared",
    "parameters_of",
    "shared_by",
]

WEIGHTS = "weights"  # in `shared`: all weights of the model, whose names strategy and server need not know

Rows = NDArray[np.float32]
Memory = dict[str, NDArray[Any]]


class Term(Protocol):
    """What a strategy adds to the loss of local training, as a gradient per row."""

    def gradient(self, name: str, ids: NDArray[np.int32], rows: Rows) -> Rows | None:
        """The term's gradient at some rows of a parameter, now at these values; None where there is none.

        Args:
            name: of the table or the weights.
            ids: (n,) the client's own row numbers.
            rows: (n, w) the rows as they are at this step.
        """


@dataclass(frozen=True)
class ClientRound:
    """What the client's side of a strategy may see in one round: the client's own, and what it was sent."""

    round: int
    local: Mapping[str, NDArray[np.int64]]  # parameter -> (k,) own row numbers of the rows that are shared
    reference: Mapping[str, Rows]  # parameter -> (k, w) those rows as last broadcast
    memory: Memory  # the strategy's own arrays, kept with the client from round to round


class Strategy:
    """Subclass it, name what is `shared`, and override the verbs that differ.

    An object lives as long as a run, on each side one. What a server verb must remember between rounds goes
    into `memory`, which is in the server's checkpoint; a client's memory comes with the round, and is in the
    client's state. Attributes of other names are lost when a run is resumed.
    """

    VERBS: ClassVar[tuple[str, ...]] = ("update", "merge", "objective", "select")

    shared: tuple[str, ...] = ()  # names of tables or weights of the model, or WEIGHTS
    Options: ClassVar[type[Settings]] = NoOptions  # the schema of [federation.options]
    needs_uploads: ClassVar[str] = ""  # why it cannot work on sums; such a strategy overrides `merge`

    def __init__(self, options: Settings) -> None:
        self.options = options
        self.memory: Memory = {}

    # On the server.

    def update(self, name: str, rows: Rows, mean_step: Rows) -> Rows:
        """The next global rows of a parameter, (n, w).

        Args:
            name: of the table or the weights.
            rows: (n, w) what was last broadcast, as offsets from initial rows that the server need not know.
            mean_step: (n, w) how far each row moved, the mean over the clients that hold it.
        """
        del name
        return rows + mean_step

    def merge(self, name: str, rows: Rows, uploads: Mapping[int, Table]) -> Rows:
        """The next global rows, from single uploads; called instead of `update` if `needs_uploads` is set.

        Args:
            name: of the table or the weights.
            rows: (n, w) as in `update`.
            uploads: client -> its step: `ids` are numbers of rows, `rows` say how far each of them moved.
                Rows that a client holds and did not select are absent.
        """
        raise NotImplementedError(f"{type(self).__name__} sets needs_uploads, and must override merge")

    # On a client.

    def objective(self, round: ClientRound) -> Term | None:
        """What is added to local training in this round."""
        del round
        return None

    def select(self, name: str, step: Rows, round: ClientRound) -> NDArray[np.bool_] | None:
        """Which of the shared rows travel, given how far each moved, (k, w); None: all.

        What stays is not lost: the client goes on from the broadcast row plus what it kept to itself.
        """
        del name, step, round
        return None

    @classmethod
    def verbs(cls) -> list[str]:
        """The verbs in which this strategy differs from the mean over holders."""
        return [verb for verb in cls.VERBS if getattr(cls, verb) is not getattr(Strategy, verb)]


_AVERAGING = "fedkge.server.strategies.averaging"
STRATEGIES: Registry[type[Strategy]] = Registry(
    "strategy",
    "fedkge.strategies",
    {name: f"{_AVERAGING}:{name}" for name in ("Local", "FedE", "FedR", "FedER", "FedAvg", "Central")},
)


def build_strategy(settings: FederationSettings) -> Strategy:
    """The strategy that an experiment names, with its options."""
    kind = STRATEGIES[settings.strategy]
    section = "federation.options"
    strategy = kind(options_of(settings.options, kind.Options, section, settings.strategy))
    strategy.shared = shared_by(settings)
    return strategy


def shared_by(settings: FederationSettings) -> tuple[str, ...]:
    """What travels: what the strategy shares, and what the experiment adds to that, if it shares anything."""
    own = STRATEGIES[settings.strategy].shared
    return tuple(dict.fromkeys((*own, *settings.share))) if own else ()


def parameters_of(shared: Collection[str], weights: Collection[str]) -> tuple[str, ...]:
    """What is shared of a model, by the names of its own tables and weights."""
    names = (name for each in shared for name in (weights if each == WEIGHTS else (each,)))
    return tuple(dict.fromkeys(names))


def check_shared(
    strategy: str,
    shared: Collection[str],
    model: str,
    parameters: Collection[str],
    weights: Collection[str] = (),
    own: Mapping[str, str] | None = None,
) -> None:
    """Refuse a strategy that shares what a model does not have.

    Args:
        weights: those of the parameters that `federation.share` calls weights.
        own: what it has for one client alone, and why.
    """
    own = own or {}
    for name in shared:
        if name in own:
            raise SettingError(f"federation: {strategy} is to share '{name}' of {model}: {own[name]}")
    if WEIGHTS in shared and not weights and own:
        name, why = next(iter(own.items()))
        raise SettingError(
            f"federation: {strategy} is to share the weights of {model}, which are each client's own. Of "
            f"'{name}': {why}"
        )
    if WEIGHTS in shared and not weights:
        raise SettingError(
            f"federation: {strategy} is to share the weights of {model}, which has none; leave '{WEIGHTS}' "
            "out of federation.share, or take a model with an encoder, such as R-GCN"
        )
    for name in parameters_of(shared, weights):
        if name not in parameters:
            raise SettingError(
                f"federation.strategy: {strategy} shares '{name}', which {model} does not have to share; it "
                f"has {', '.join(parameters)}"
            )
