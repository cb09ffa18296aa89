"""Random vectors of words, from their hashes: no file, no meaning beyond which words two texts share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from fedkge.client.kernels.arrays import Floats
from fedkge.client.models.initial import uniform_rows
from fedkge.client.texts.encoder import Progress, TextEncoder, Words, shortened, split_words
from fedkge.errors import SettingError

__all__ = ["Hashed"]

_WIDTH = 256
_DIGITS = 9  # as many as are read: Python refuses to read thousands
_KEY = b"fedkge words"


class Hashed(TextEncoder):
    """The mean of random vectors of its words; near for texts that share words (random projection)."""

    summary = "hash, hash:WIDTH: random vectors of words; no download, no meaning"

    def __init__(self, width: int) -> None:
        self._width = width

    @classmethod
    def of(cls, argument: str) -> Self:
        number = argument.isascii() and argument.isdecimal() and len(argument) <= _DIGITS
        if argument and not (number and 0 < int(argument) <= 4096):
            raise SettingError(
                f"text encoder 'hash:{shortened(argument)}': expected a width from 1 to 4096, as hash:256"
            )
        return cls(int(argument or _WIDTH))

    @property
    def width(self) -> int:
        return self._width

    @property
    def identity(self) -> str:
        return f"hash:{self._width}"

    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        means = self.words(texts, 10_000).means()
        progress(len(texts))
        return means

    def words(self, texts: Sequence[str], length: int) -> Words:
        return Words.of([split_words(text)[:length] for text in texts], self._vectors)

    def _vectors(self, words: Sequence[str]) -> Floats:
        """Uniform with variance 1 / width, so that a word's vector has length 1 on the mean."""
        uniform = uniform_rows(_KEY, words, self._width)
        rows: Floats = (uniform * 2 - 1) * (3 / self._width) ** 0.5
        return rows.astype("float32")
