"""The contract of a strategy: what is shared, how the server merges it, what a client does differently.

Client and server look the same class up under the same name. Its server verb sees sums over clients and its
client verbs see one client's own rows, so a strategy works alike with open and with secure sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkge.experiment import NoOptions, Settings
from fedkge.plugins import Registry

__all__ = ["STRATEGIES", "ClientRound", "Strategy", "Term"]

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

    An object lives as long as a run, on each side one. What `update` must remember between rounds goes into
    `memory`, which is in the server's checkpoint; a client's memory comes with the round.
    """

    shared: ClassVar[tuple[str, ...]] = ()  # names of tables or weights of the model
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

    # On a client.

    def objective(self, round: ClientRound) -> Term | None:
        """What is added to local training in this round."""
        del round
        return None

    def select(self, name: str, step: Rows, round: ClientRound) -> NDArray[np.bool_] | None:
        """Which of the shared rows travel, given how far each moved, (k, w); None: all.

        What stays is added to the next round's step.
        """
        del name, step, round
        return None


_AVERAGING = "fedkge.server.strategies.averaging"
STRATEGIES: Registry[type[Strategy]] = Registry(
    "strategy",
    "fedkge.strategies",
    {name: f"{_AVERAGING}:{name}" for name in ("Local", "FedE", "FedR", "FedER", "Central")},
)
