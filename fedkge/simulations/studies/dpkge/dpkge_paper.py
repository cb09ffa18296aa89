"""The figures of Han et al., "A framework for differentially-private knowledge graph embeddings" (2022).

Table numbers are theirs. MR and Hits are means over five runs; Hits are percentages of Hits@10.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

from fedkge.client.privacy.accountant import Event

__all__ = [
    "CLIP_STUDY",
    "CLUSTERING",
    "EPSILONS",
    "GRAPHS",
    "LINK_PREDICTION",
    "MANN_WHITNEY_P",
    "METHODS",
    "NEIGHBOURS",
    "SIGMAS",
    "Graph",
    "Score",
]

METHODS = ("NDP", "U", "DPKGE", "FullDP")
SIGMAS = (0.7, 1.0, 1.3, 10.0)


@dataclass(frozen=True)
class Graph:
    """How many statements the paper trained on, and how many of them were confidential."""

    num_train: int
    num_confidential: int

    @property
    def batch(self) -> int:
        return isqrt(self.num_train)

    @property
    def delta(self) -> float:
        return 1 / self.num_train

    def event(self, method: str, sigma: float, epoch: int = 100) -> Event:
        """What the paper's accountant was told at the end of an epoch: it counted them from 0."""
        size = self.num_train if method == "FullDP" else self.num_confidential
        return Event(sigma, self.batch / size, (epoch - 1) * size // self.batch)


GRAPHS = {  # table 1 and section 4.1
    "FB15k": Graph(483_142, 241_571),
    "YAGO3-10": Graph(1_079_040, 539_520),
    "FB15k-237": Graph(272_115, 136_057),
    "eICU": Graph(289_719, 165_917),
    "MIMIC-III": Graph(1_482_059, 652_605),
}

EPSILONS: dict[tuple[str, float], tuple[float, float]] = {  # tables 5 to 9: DPKGE, FullDP
    ("FB15k", 0.7): (8.79, 6.02),
    ("FB15k", 1.0): (3.92, 2.70),
    ("FB15k", 1.3): (2.60, 1.81),
    ("FB15k", 10.0): (0.30, 0.25),
    ("YAGO3-10", 1.0): (3.25, 2.27),
    ("FB15k-237", 0.7): (10.08, 6.86),
    ("FB15k-237", 1.0): (4.49, 3.08),
    ("FB15k-237", 1.3): (2.96, 2.05),
    ("FB15k-237", 10.0): (0.32, 0.26),
    ("eICU", 0.7): (9.21, 6.77),
    ("eICU", 1.0): (4.11, 3.04),
    ("eICU", 1.3): (2.72, 2.03),
    ("eICU", 10.0): (0.30, 0.26),
    ("MIMIC-III", 1.0): (3.23, 2.12),
}


class Score(NamedTuple):
    """Mean rank and Hits@10 in per cent."""

    mr: float
    hits: float


LINK_PREDICTION: dict[tuple[str, str, float | None], Score] = {  # table 7, FB15k-237, r = 50 %
    ("TransE", "NDP", None): Score(179.01, 44.79),
    ("TransE", "U", None): Score(346.85, 31.03),
    ("TransE", "DPKGE", 0.7): Score(250.45, 40.28),
    ("TransE", "FullDP", 0.7): Score(639.19, 32.19),
    ("TransE", "DPKGE", 1.0): Score(259.23, 39.86),
    ("TransE", "FullDP", 1.0): Score(1045.20, 29.92),
    ("TransE", "DPKGE", 1.3): Score(263.45, 39.46),
    ("TransE", "FullDP", 1.3): Score(1705.34, 28.81),
    ("TransE", "DPKGE", 10.0): Score(287.03, 39.46),
    ("TransE", "FullDP", 10.0): Score(5311.87, 8.30),
    ("TransM", "NDP", None): Score(176.23, 45.34),
    ("TransM", "U", None): Score(316.83, 32.41),
    ("TransM", "DPKGE", 0.7): Score(238.17, 41.47),
    ("TransM", "FullDP", 0.7): Score(781.76, 32.97),
    ("TransM", "DPKGE", 1.0): Score(249.01, 40.87),
    ("TransM", "FullDP", 1.0): Score(1420.87, 30.85),
    ("TransM", "DPKGE", 1.3): Score(254.98, 41.30),
    ("TransM", "FullDP", 1.3): Score(2279.18, 28.79),
    ("TransM", "DPKGE", 10.0): Score(260.64, 40.65),
    ("TransM", "FullDP", 10.0): Score(5330.69, 8.58),
    ("RESCAL", "NDP", None): Score(328.73, 39.88),
    ("RESCAL", "U", None): Score(626.00, 29.06),
    ("RESCAL", "DPKGE", 0.7): Score(389.18, 35.86),
    ("RESCAL", "FullDP", 0.7): Score(691.48, 30.63),
    ("RESCAL", "DPKGE", 1.0): Score(421.86, 35.41),
    ("RESCAL", "FullDP", 1.0): Score(1613.17, 24.08),
    ("RESCAL", "DPKGE", 1.3): Score(426.68, 34.74),
    ("RESCAL", "FullDP", 1.3): Score(3474.53, 13.04),
    ("RESCAL", "DPKGE", 10.0): Score(547.41, 33.60),
    ("RESCAL", "FullDP", 10.0): Score(7165.76, 0.03),
    ("DistMult", "NDP", None): Score(422.37, 34.40),
    ("DistMult", "U", None): Score(752.85, 22.35),
    ("DistMult", "DPKGE", 0.7): Score(465.80, 32.60),
    ("DistMult", "FullDP", 0.7): Score(1544.88, 10.37),
    ("DistMult", "DPKGE", 1.0): Score(507.36, 31.97),
    ("DistMult", "FullDP", 1.0): Score(3611.03, 9.43),
    ("DistMult", "DPKGE", 1.3): Score(529.74, 32.48),
    ("DistMult", "FullDP", 1.3): Score(6245.80, 4.28),
    ("DistMult", "DPKGE", 10.0): Score(715.40, 30.96),
    ("DistMult", "FullDP", 10.0): Score(7066.83, 0.45),
}

# Tables 2 and 3, FB15k-237, r = 50 %: model -> percentile of the clipping bound -> a score per σ of SIGMAS.
CLIP_STUDY: dict[str, dict[int, tuple[Score, ...]]] = {
    "DistMult": {
        20: (Score(465.81, 32.60), Score(507.36, 31.98), Score(529.74, 32.49), Score(715.41, 30.97)),
        50: (Score(551.06, 32.91), Score(537.43, 32.39), Score(562.81, 31.90), Score(721.71, 31.02)),
        80: (Score(568.86, 32.95), Score(596.53, 32.11), Score(600.98, 31.28), Score(713.97, 30.54)),
        100: (Score(674.90, 31.43), Score(700.29, 31.19), Score(723.76, 30.75), Score(749.89, 30.82)),
    },
    "TransE": {
        20: (Score(250.45, 40.28), Score(259.23, 39.87), Score(263.46, 39.47), Score(287.03, 39.47)),
        50: (Score(262.85, 39.77), Score(261.32, 40.03), Score(269.26, 39.83), Score(280.44, 38.98)),
        80: (Score(273.11, 39.47), Score(271.29, 39.21), Score(268.90, 39.34), Score(290.32, 38.86)),
        100: (Score(293.15, 38.75), Score(278.00, 39.00), Score(295.95, 38.66), Score(290.55, 38.65)),
    },
    "TransM": {
        20: (Score(238.18, 41.47), Score(249.01, 40.88), Score(254.98, 41.30), Score(260.65, 40.66)),
        50: (Score(245.33, 41.13), Score(257.76, 40.71), Score(258.78, 40.72), Score(261.72, 40.26)),
        80: (Score(255.50, 40.77), Score(262.92, 40.65), Score(268.96, 40.48), Score(260.67, 41.00)),
        100: (Score(271.05, 40.28), Score(269.53, 40.35), Score(276.16, 40.25), Score(268.63, 40.25)),
    },
    "RESCAL": {
        20: (Score(389.18, 35.87), Score(421.87, 35.41), Score(426.68, 34.75), Score(547.41, 33.61)),
        50: (Score(415.09, 35.44), Score(467.01, 34.20), Score(470.47, 34.65), Score(557.22, 33.41)),
        80: (Score(436.41, 34.60), Score(478.58, 34.39), Score(479.17, 34.06), Score(576.07, 32.66)),
        100: (Score(541.70, 33.37), Score(556.85, 33.24), Score(602.73, 33.44), Score(569.41, 32.92)),
    },
}

# Table 4, 762 patients of eICU: k -> mean NMI of the clusters of NDP with those of DPKGE, and of U.
CLUSTERING = {2: (0.96, 0.02), 3: (0.34, 0.04), 4: (0.28, 0.05)}

MANN_WHITNEY_P = 8.28e-44  # section 4.6: 1,000 critical attacks on TransE over FB15k

# Table 11, FB15k: ranks of three statements, each (with, without it), by TransE and by TransE-DPKGE.
NEIGHBOURS = {1: ((2, 9), (2, 2)), 2: ((1, 7), (6, 7)), 3: ((2, 16), (10, 11))}
