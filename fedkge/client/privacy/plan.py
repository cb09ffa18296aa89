"""How many private steps an epoch has and in which order: from the sizes of the two parts alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DPSettings, TrainingSettings

__all__ = ["Plan", "check_delta", "delta_of"]


@dataclass(frozen=True)
class Plan:
    """One epoch over unrestricted (U) and confidential (C) triples; |U| and |C| are public."""

    num_unrestricted: int
    num_confidential: int
    batch: int  # of confidential triples; in `sound`, its expectation

    @classmethod
    def of(cls, graph: KnowledgeGraph, settings: TrainingSettings, dp: DPSettings) -> Plan:
        confidential = int(np.count_nonzero(graph.marks("train")))
        if confidential == 0:
            raise DataError(
                f'{graph.name}: no confidential triples, but privacy.dp.mode = "{dp.mode}"; mark some with '
                'data.confidential, or set privacy.dp.mode = "off"'
            )
        size = isqrt(len(graph.train)) if dp.mode == "paper" else settings.batch_size
        return cls(len(graph.train) - confidential, confidential, min(size, confidential))

    @property
    def rate(self) -> float:
        """The chance of a confidential triple to be in a step."""
        return self.batch / self.num_confidential

    @property
    def confidential_steps(self) -> int:
        return -(-self.num_confidential // self.batch)

    def unrestricted_steps(self, batch_size: int) -> int:
        return -(-self.num_unrestricted // batch_size)

    def order(self, unrestricted: int, confidential: int, rng: np.random.Generator) -> Iterator[bool]:
        """Lines 2–9 of Algorithm 1: whether each step is confidential, so that counts follow |U| / |C|."""
        done = [0, 0]  # m_U, m_C
        while done != [unrestricted, confidential]:
            excess = done[0] * self.num_confidential - done[1] * self.num_unrestricted
            chosen = excess > 0 if excess else bool(rng.integers(2))
            if done[chosen] == (unrestricted, confidential)[chosen]:
                chosen = not chosen
            done[chosen] += 1
            yield chosen


def delta_of(dp: DPSettings, graph: KnowledgeGraph) -> float:
    """The δ in force: as given; else |C|^−1.1 in `sound`, and 1/N in `paper`, as printed."""
    if dp.delta is not None:
        return dp.delta
    if dp.mode == "paper":
        return 1 / len(graph.train)
    confidential = int(np.count_nonzero(graph.marks("train")))
    return float(max(confidential, 2) ** -1.1)


def check_delta(dp: DPSettings, graph: KnowledgeGraph) -> str:
    """What is wrong with δ, if it is not below 1 / |C|: in `sound` that is an error."""
    confidential, delta = int(np.count_nonzero(graph.marks("train"))), delta_of(dp, graph)
    if delta * confidential < 1:
        return ""
    problem = (
        f"privacy.dp.delta: {delta:g} is not below 1 / {confidential} confidential triples: publishing one "
        "of them at random would pass"
    )
    if dp.mode == "sound":
        raise SettingError(f"{problem}; set privacy.dp.delta = {confidential**-1.1:.3g} or less")
    return problem
