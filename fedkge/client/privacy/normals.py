"""Randomness that nobody without the client's secret can predict: normal numbers and samples of a keystream.

General-purpose generators can be continued by whoever has seen enough of their output; noise that can be
subtracted again protects nothing.
"""

from __future__ import annotations

import hashlib
from math import log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.gaussian import Words, box_muller, box_muller_rows
from fedkge.crypto.masks import STREAMS, fastest_stream
from fedkge.errors import SettingError

__all__ = ["SECRET_BYTES", "Keystream", "derived", "poisson_sample"]

SECRET_BYTES = 32
_CHUNK_BYTES = 1 << 18  # words and the numbers that they become stay in the second-level cache
_SLACK_BYTES = 16  # the cipher wants room for one more block
_ZEROS = memoryview(bytes(_CHUNK_BYTES))


def derived(secret: bytes, *purpose: str | bytes) -> bytes:
    """A secret of its own for each purpose; none tells anything about another."""
    if len(secret) != SECRET_BYTES:
        raise SettingError(f"a client secret has {SECRET_BYTES} bytes, not {len(secret)}")
    digest = hashlib.blake2b(key=secret, digest_size=SECRET_BYTES)
    for word in purpose:
        raw = word.encode() if isinstance(word, str) else word
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()


class Keystream:
    """AES-256 of a counter, as uniform or normal numbers; a key makes one stream, once."""

    def __init__(self, key: bytes, bytes_per_key: int = 1 << 35) -> None:
        self._bytes_per_key = bytes_per_key  # below 2³⁶, where the counter of one of the modes would wrap
        self._begin(key)
        self._buffer = np.empty(_CHUNK_BYTES + _SLACK_BYTES, dtype=np.uint8)

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """Numbers in (0, 1], of 53 bits each."""
        self._spend(8 * count)
        words = np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8")
        return ((words >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53

    def normals(self, count: int) -> NDArray[np.float64]:
        """Independent normal numbers in double precision, up to 8.5 deviations: for few of them."""
        pairs = -(-count // 2)
        radii = np.sqrt(-2 * np.log(self.uniforms(pairs)))
        angles = 2 * np.pi * self.uniforms(pairs)
        return np.concatenate([radii * np.cos(angles), radii * np.sin(angles)])[:count]

    def add_normals(self, out: Floats, deviation: float) -> None:
        """Add independent normal numbers of that deviation to every number of a contiguous array."""
        assert out.flags.c_contiguous  # else the numbers would go to a copy
        flat = out.reshape(-1)
        step = _CHUNK_BYTES // 4
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            pairs = -(-part.size // 2)
            words = self._words(2 * pairs)
            box_muller(words[:pairs], words[pairs:], np.float32(deviation), part[:pairs], part[pairs:])

    def add_to_rows(
        self,
        table: Floats,
        rows: Ids,
        deviations: Floats,
        carry: Floats | None = None,
    ) -> None:
        """Add independent normal numbers to some rows of a table, of one deviation per row.

        Args:
            carry: the last bits of the rows, which float32 has no room for.
        """
        carry = np.zeros_like(table) if carry is None else carry
        width = table.shape[1]
        step = max(2, _CHUNK_BYTES // (4 * width))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            pairs = -(-len(rows[part]) // 2) * width
            words = self._words(2 * pairs)
            halves = words[:pairs].reshape(-1, width), words[pairs:].reshape(-1, width)
            box_muller_rows(*halves, table, carry, rows[part], deviations[part])

    def _words(self, count: int) -> Words:
        """The next words, until the next call."""
        size = 4 * count
        self._spend(size)
        if size > _CHUNK_BYTES:  # a row may be longer than a chunk
            return np.frombuffer(self._cipher.update(bytes(size)), dtype=np.int32)
        self._cipher.update_into(_ZEROS[:size], self._buffer)  # type: ignore[arg-type]
        return self._buffer[:size].view(np.int32)

    def _spend(self, size: int) -> None:
        """Go on under a new key before the counter ends."""
        if size > self._left:
            self._begin(self._following)
        self._left -= size

    def _begin(self, key: bytes) -> None:
        self._following = derived(key, "following")
        self._cipher = STREAMS[fastest_stream()](derived(key, "stream"))
        self._left = self._bytes_per_key


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
