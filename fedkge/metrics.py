"""Numbers that are summed over clients: ranking metrics, losses, counts.

No rank of a single triple leaves its client. Under secure aggregation a scalar becomes a whole number
x · scale, and four words of 16 bits each: sums of words never overflow for fewer than 65,536 clients, so the
sum is exact whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import MessageError, RefusedError

__all__ = ["NORMAL_95", "RANKING", "SCORES", "TRAINING", "MetricSums", "SummedScalars"]

LIMBS = 4
LIMB_BITS = 16
SCORES = ("mrr", "mr", "hits@1", "hits@3", "hits@10")
_FINE = 2**32
_SUM_SCALES = {"mr": 2**16}
_SQUARE_SCALES = {"mr": 2**4}  # squares of ranks are large, and multiples of 1/16


@dataclass(frozen=True)
class SummedScalars:
    """Which scalars are summed, in which order, and how finely."""

    scales: Mapping[str, int]

    @property
    def num_words(self) -> int:
        return LIMBS * len(self.scales)

    def encode(self, values: Mapping[str, float]) -> NDArray[np.uint32]:
        """Words of less than 2^16."""
        return np.array(
            [limb for name, scale in self.scales.items() for limb in _limbs(name, values[name], scale)],
            dtype=np.uint32,
        )

    def decode(self, words: NDArray[np.uint32]) -> dict[str, float]:
        """The sums of the scalars, from sums of words."""
        if len(words) != self.num_words:
            raise MessageError(f"{len(words)} words came where {len(self.scales)} scalars are expected")
        limbs = words.reshape(-1, LIMBS).tolist()
        return {
            name: sum(limb << LIMB_BITS * place for place, limb in enumerate(own)) / scale
            for (name, scale), own in zip(self.scales.items(), limbs, strict=True)
        }


TRAINING = SummedScalars(
    {
        "loss": 2**24,
        "triples": 1,
        "seconds": 10**6,
        "crypto": 10**6,  # seconds of cryptography since they were last summed
        "rss_mb": 1,
        "clipped": 1,
        "values": 1,
    }
)
RANKING = SummedScalars(
    {
        "count": 1,
        "unseen": 1,
        **{f"sum {name}": _SUM_SCALES.get(name, _FINE) for name in SCORES},
        **{f"square {name}": _SQUARE_SCALES.get(name, _FINE) for name in SCORES},
        "seconds": 10**6,
    }
)


def _limbs(name: str, value: float, scale: int) -> list[int]:
    if not np.isfinite(value) or value < 0:
        raise RefusedError(f"scalar '{name}' is {value}: only finite numbers from 0 on can be summed")
    whole = round(value * scale)
    if whole >> LIMBS * LIMB_BITS:
        raise RefusedError(f"scalar '{name}' is {value}, too large to be summed")
    return [whole >> LIMB_BITS * place & 0xFFFF for place in range(LIMBS)]


NORMAL_95 = 1.959964


@dataclass(frozen=True)
class MetricSums:
    """Counts, sums and sums of squares of what each ranked triple scored."""

    count: int
    unseen: int
    sums: Mapping[str, float]
    squares: Mapping[str, float]

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> MetricSums:
        return cls(**content)  # type: ignore[arg-type]

    @classmethod
    def from_scalars(cls, scalars: Mapping[str, float]) -> MetricSums:
        """From the scalars of RANKING, summed over clients."""
        return cls(
            int(scalars["count"]),
            int(scalars["unseen"]),
            {name: scalars[f"sum {name}"] for name in SCORES},
            {name: scalars[f"square {name}"] for name in SCORES},
        )

    def scalars(self, seconds: float) -> dict[str, float]:
        """The scalars of RANKING, with how long the ranking took."""
        return {
            "count": self.count,
            "unseen": self.unseen,
            **{f"sum {name}": self.sums[name] for name in SCORES},
            **{f"square {name}": self.squares[name] for name in SCORES},
            "seconds": seconds,
        }

    def to_json(self) -> dict[str, object]:
        return {"count": self.count, "unseen": self.unseen, "sums": self.sums, "squares": self.squares}

    @classmethod
    def total(cls, parts: Iterable[MetricSums]) -> MetricSums:
        """All parts together, added in the order given."""
        parts = list(parts)
        names = parts[0].sums if parts else ()
        return cls(
            sum(part.count for part in parts),
            sum(part.unseen for part in parts),
            {name: sum(part.sums[name] for part in parts) for name in names},
            {name: sum(part.squares[name] for part in parts) for name in names},
        )

    def means(self) -> dict[str, float]:
        return {name: value / self.count for name, value in self.sums.items()} if self.count else {}

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals of the means by the normal approximation."""
        intervals = {}
        for name, mean in self.means().items():
            variance = max(self.squares[name] / self.count - mean**2, 0.0)
            half = NORMAL_95 * sqrt(variance / self.count)
            intervals[name] = (mean - half, mean + half)
        return intervals
