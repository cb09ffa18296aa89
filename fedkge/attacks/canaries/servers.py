"""Servers that watch, and servers that choose what a client trains from so that canaries stand out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.canaries.planting import Planted
from fedkge.client.kernels.arrays import Floats

__all__ = [
    "SERVERS",
    "Colliding",
    "Echoing",
    "Extreme",
    "Inconsistent",
    "Passive",
    "Server",
    "Starting",
    "Turn",
]

Tables = dict[str, Floats]


class Turn(NamedTuple):
    """Which round is asked for, how often it was before, and what a server draws from."""

    round: int
    ask: int
    rng: np.random.Generator


class Server(ABC):
    """What a server sends before a client trains.

    Attributes:
        model: the model whose gradients its rows are made for.
        asks: how often it asks for each round; the client is as it was before, but for the rows sent.
        paid: how many of these are different questions, which cost.
    """

    model: ClassVar[str] = "TransE"
    asks: ClassVar[int] = 1
    paid: ClassVar[int] = 1

    @abstractmethod
    def send(self, planted: Planted, tables: Tables, turn: Turn) -> None:
        """Write the rows of a client's tables, in place."""


class Passive(Server):
    """Leaves rows as the client made them."""

    def send(self, planted: Planted, tables: Tables, turn: Turn) -> None:
        """Nothing."""


class Extreme(Server):
    """Rows as large as a client takes, where rounding is larger than noise.

    A crowd that differs from a perfect fit in the first number alone does not cover the canaries' signs.
    """

    magnitudes = (2.5e5, 4e3)

    def send(self, planted: Planted, tables: Tables, turn: Turn) -> None:
        size = np.float32(self.magnitudes[turn.round % len(self.magnitudes)])
        for table in tables.values():
            table[:] = size * turn.rng.choice(np.array([-1, 1], dtype=np.float32), size=table.shape)
        if len(planted.crowd):
            head, relation, tail = planted.crowd.T
            tables["entity"][planted.canaries[:, 0], 0] = 4 * size  # of one sign where the crowd moves
            tables["entity"][head] = tables["entity"][tail] - tables["relation"][relation]
            tables["entity"][head, 0] += size
            self._fit_known(planted, tables)

    @staticmethod
    def _fit_known(planted: Planted, tables: Tables) -> None:
        """Unrestricted triples of the crowd's relation fit perfectly: they move nothing."""
        known = planted.graph.train[~planted.graph.marks("train")]
        head, relation, tail = known[np.isin(known[:, 1], planted.crowd[:, 1])].T
        tables["entity"][tail] = tables["entity"][head] + tables["relation"][relation]


class Colliding(Server):
    """Every canary's gradient has one number of shared rows for itself; all others meet in one or vanish.

    Under DistMult: heads are multiples of unit vectors, relations and tails are ones. Scores are so low that
    a loss looks at the statement and hardly at its negatives.
    """

    model = "DistMult"
    low = -4.0  # the scores of canaries

    def send(self, planted: Planted, tables: Tables, turn: Turn) -> None:
        entity, relation = tables["entity"], tables["relation"]
        sign = self.sign(turn.ask)
        entity[:], relation[:] = 0, sign
        for triples in (planted.canaries, planted.crowd):
            entity[triples[:, 2]] = 1
        entity[planted.canaries[:, 0], axes(planted, entity.shape[1])] = self.low * sign
        entity[planted.crowd[:, 0], -1] = self.low * sign

    def sign(self, ask: int) -> float:
        """Of relations, and of what canaries ask of them."""
        del ask
        return 1.0


class Inconsistent(Colliding):
    """Asks for each round three times: as `colliding`, with all signs turned round, and as at first.

    Noise that serves twice cancels in the difference of the first two answers.
    """

    asks = 3
    paid = 2

    def sign(self, ask: int) -> float:
        return -1.0 if ask == 1 else 1.0


class Echoing(Server):
    """To a model of texts: the alike fit one another exactly, and canaries are far below them.

    So an example of the crowd asks for nothing, but that the canaries among its negatives stay below; and
    whatever it asks for is clipped to the bound, for each example anew.
    """

    model = "BLP-DistMult"
    size = 0.1  # below the margin, so that every negative counts

    def send(self, planted: Planted, tables: Tables, turn: Turn) -> None:
        del turn
        tables["relation"][:] = 1
        tables[planted.parameter][:] = 0
        tables[planted.parameter][0] = self.size


class Starting(Server):
    """Under TransE, every canary's pair differs in one number of its own: where its relation is to start."""

    def send(self, planted: Planted, tables: Tables, turn: Turn) -> None:
        del turn
        for table in tables.values():
            table[:] = 0
        entity = tables["entity"]
        entity[planted.canaries[:, 0], axes(planted, entity.shape[1])] = -1


def axes(planted: Planted, width: int) -> NDArray[np.int64]:
    """(m,) the column of each canary, for itself where rows are wide enough; never the last."""
    numbers: NDArray[np.int64] = np.arange(len(planted.canaries)) % (width - 1)
    return numbers


SERVERS: dict[str, type[Server]] = {
    "passive": Passive,
    "extreme": Extreme,
    "colliding": Colliding,
    "inconsistent": Inconsistent,
    "starting": Starting,
    "echoing": Echoing,
}
