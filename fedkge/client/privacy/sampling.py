"""Poisson sampling: each triple is in a step or not by its own draw, as the accountants assume."""

from __future__ import annotations

from math import log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from fedkge.client.privacy.normals import Keystream

__all__ = ["poisson_sample"]


def poisson_sample(stream: Keystream, count: int, rate: float) -> NDArray[np.int64]:
    """The places, out of `count`, that draws of probability `rate` chose.

    The gaps between chosen places are geometric: drawing them costs as much as the sample, not as the whole.
    """
    if rate >= 1:
        return np.arange(count)
    chosen: list[NDArray[np.int64]] = []
    last = -1
    while last < count:
        left = count - last
        draws = int(rate * left + 6 * sqrt(rate * left)) + 8
        gaps = np.log(stream.uniforms(draws)) / log1p(-rate)
        places = last + np.cumsum(1 + np.minimum(gaps, count).astype(np.int64))
        chosen.append(places[places < count])
        last = int(places[-1])
    return np.concatenate(chosen)
