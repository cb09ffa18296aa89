"""A graph of any size with Zipf degrees and planted translations, for scale tests and demonstrations.

Entities stand on the points of a square grid and a relation is a step on it: the tail of (head, relation)
lies at the head's place plus the step, give or take a small jitter, which a translational model can learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.triple_keys import distinct, triple_keys
from fedkge.errors import SettingError

__all__ = ["Synthetic"]

Integers = NDArray[np.int64]

_BOUNDS = {  # what a large machine holds in memory
    "entities": (4, 50_000_000),
    "relations": (1, 1_000_000),
    "triples": (1, 500_000_000),
    "jitter": (0, 1_000),
    "zipf": (0, 10),
    "seed": (0, 2**63),
}


@dataclass(frozen=True)
class Synthetic:
    """The recipe of a synthetic graph; `build` follows it."""

    entities: int = 1000
    relations: int = 12
    triples: int = 10_000
    jitter: float = 0.6  # standard deviation of the tail's place around its planted place, in grid steps
    zipf: float = 0.8  # exponent of the heads' frequencies by rank
    held_out: float = 0.2  # share of valid and test together
    seed: int = 0

    def __post_init__(self) -> None:
        for key, (least, most) in _BOUNDS.items():
            if not least <= getattr(self, key) <= most:
                raise SettingError(
                    f"synthetic: {key}={getattr(self, key)}: expected a number from {least} to {most}"
                )
        if not 0 <= self.held_out < 1:
            raise SettingError(f"synthetic: held_out={self.held_out}: expected a share in [0, 1)")
        if self.triples > self.entities * self.relations:
            raise SettingError(
                f"synthetic: {self.triples} triples are too dense for {self.entities} entities and "
                f"{self.relations} relations; ask for at most {self.entities * self.relations}"
            )

    @property
    def side(self) -> int:
        return isqrt(self.entities - 1) + 1

    def build(self) -> KnowledgeGraph:
        rng = np.random.default_rng([self.seed, self.entities, self.relations, self.triples])
        triples = self._distinct(rng)
        train, valid = _cuts(len(triples), self.held_out)
        return KnowledgeGraph.from_ids(
            "synthetic",
            (f"e{number}" for number in range(self.entities)),
            (f"r{number}" for number in range(self.relations)),
            {"train": triples[:train], "valid": triples[train:valid], "test": triples[valid:]},
        )

    def _distinct(self, rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw until enough distinct triples are there, in random order."""
        steps = rng.integers(-(self.side // 2), self.side // 2 + 1, size=(self.relations, 2))
        place_of_rank = rng.permutation(self.entities)
        weights = np.arange(1, self.entities + 1, dtype=np.float64) ** -self.zipf
        cumulative = np.cumsum(weights / weights.sum())
        keys = np.empty(0, dtype=np.int64)
        for _ in range(200):
            missing = self.triples - len(keys)
            if missing <= 0:
                break
            drawn = self._draw(rng, 2 * missing + 64, steps, place_of_rank, cumulative)
            keys = distinct(np.concatenate([keys, drawn]))
        if len(keys) < self.triples:
            raise SettingError("synthetic: too dense for its degrees; lower triples or zipf, or raise jitter")
        keys = rng.permutation(keys)[: self.triples]
        head_relation, tail = np.divmod(keys, self.entities)
        head, relation = np.divmod(head_relation, self.relations)
        return np.stack([head, relation, tail], axis=1).astype(np.int32)

    def _draw(
        self,
        rng: np.random.Generator,
        count: int,
        steps: Integers,
        place_of_rank: Integers,
        cumulative: NDArray[np.float64],
    ) -> Integers:
        """Keys of drawn triples; those whose tail falls off the grid are dropped."""
        chance = np.sort(
            rng.random(count)
        )  # sorted queries search ten times faster; order does not matter here
        rank = np.minimum(np.searchsorted(cumulative, chance), self.entities - 1)
        head = place_of_rank[rank]
        relation = rng.integers(self.relations, size=count)
        jitter = np.rint(rng.normal(0, self.jitter, size=(count, 2))).astype(np.int64)
        row, column = (np.stack(np.divmod(head, self.side)) + (steps[relation] + jitter).T).astype(np.int64)
        tail = row * self.side + column
        inside = (row >= 0) & (column >= 0) & (column < self.side) & (tail < self.entities)
        return triple_keys(np.stack([head, relation, tail], axis=1)[inside], self.entities, self.relations)


def _cuts(count: int, held_out: float) -> tuple[int, int]:
    held = min(ceil(count * held_out), count - 1)  # train is never empty
    return count - held, count - held // 2
