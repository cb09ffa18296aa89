"""Word vectors from a file: GloVe's text format, or an .npz with `words` and `vectors`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.encoder import Progress, TextEncoder, Words, split_words
from fedkge.datasets.download import locate
from fedkge.datasets.formats.container import members
from fedkge.datasets.formats.npz import read_npz
from fedkge.datasets.registry import RemoteFile
from fedkge.errors import DataError, DownloadError, SettingError

__all__ = ["Glove"]

_NAMES = ("text/glove-6B-100d-subset.npz", "text/glove.6B.100d.txt", "text/glove.6B.300d.txt")


class Glove(TextEncoder):
    """The mean of a text's word vectors (Pennington et al., 2014); unknown words are left out."""

    summary = "glove, glove:PATH, glove:URL#SHA256: the mean of word vectors"

    def __init__(self, numbers: dict[str, int], vectors: NDArray[np.floating], identity: str) -> None:
        self.numbers = numbers
        self.vectors = vectors  # (words, w)
        self._identity = identity

    @classmethod
    def of(cls, argument: str) -> Self:
        return cls(*_loaded(_place(argument)))

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def identity(self) -> str:
        return self._identity

    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        means = self.words(texts, 10_000).means()
        progress(len(texts))
        return means

    def words(self, texts: Sequence[str], length: int) -> Words:
        known = ([word for word in split_words(text) if word in self.numbers] for text in texts)
        return Words.of([words[:length] for words in known], self.rows)

    def rows(self, words: Sequence[str]) -> Floats:
        """(words, width); zero for a word that has none."""
        rows = np.zeros((len(words), self.width), dtype=np.float32)
        known = [place for place, word in enumerate(words) if word in self.numbers]
        rows[known] = self.vectors[[self.numbers[words[place]] for place in known]]
        return rows


def _place(argument: str) -> Path:
    """The file of vectors: the one that is named, or one of the usual names below FEDKGE_DATA."""
    if argument.startswith(("http://", "https://")):
        url, _, digest = argument.partition("#")
        if len(digest) != 64:
            raise SettingError(
                f"text encoder 'glove:{url}': a download needs the file's SHA-256; write glove:URL#SHA256"
            )
        return locate(RemoteFile(f"text/{url.rpartition('/')[2]}", url, digest))
    folder = os.environ.get("FEDKGE_DATA")
    if argument:
        places = [Path(argument), *([Path(folder) / argument] if folder else [])]
    else:
        places = [Path(folder) / name for name in _NAMES] if folder else []
    for place in places:
        if place.is_file():
            return place
    tried = " or ".join(map(str, places)) or "FEDKGE_DATA is not set"
    raise DownloadError(
        f"text encoder 'glove': no word vectors ({tried}); get glove.6B.zip from "
        "nlp.stanford.edu/projects/glove, unpack it, and write glove:PATH"
    )


@lru_cache(maxsize=2)
def _loaded(path: Path) -> tuple[dict[str, int], NDArray[np.floating], str]:
    """The words' numbers, their vectors, and what tells this file from others."""
    member = members(path)[0]
    raw = member.read()
    words, vectors = _npz(raw, member.origin) if member.suffix == ".npz" else _text(raw, member.origin)
    _check_numbers(words, vectors, member.origin)
    return {word: row for row, word in enumerate(words)}, vectors, hashlib.sha256(raw).hexdigest()


def _check_numbers(words: Sequence[str], vectors: NDArray[Any], origin: str) -> None:
    """Refuse what float32 cannot hold: means of it would be no numbers either."""
    if vectors.size == 0:
        raise DataError(f"{origin}: no word vectors; give a file that has some")
    if vectors.dtype.kind not in "fiu":
        raise DataError(f"{origin}: the vectors are {vectors.dtype}; give numbers")
    finite = (np.abs(vectors) <= np.finfo(np.float32).max).all(axis=1)
    if not finite.all():
        word = words[int(finite.argmin())]
        raise DataError(
            f"{origin}: the vector of '{word}' holds something other than finite numbers; remove it"
        )


def _npz(raw: bytes, origin: str) -> tuple[list[str], NDArray[Any]]:
    what = "an .npz with 'words' (n,) and 'vectors' (n, width)"
    words, vectors = read_npz(raw, origin, ("words", "vectors"), what)
    if words.ndim != 1 or words.dtype.kind != "U" or vectors.ndim != 2 or len(vectors) != len(words):
        raise DataError(
            f"{origin}: 'words' are {words.dtype} of shape {words.shape}, 'vectors' of shape "
            f"{vectors.shape}; expected texts (n,) and numbers (n, width)"
        )
    return words.tolist(), vectors


def _text(raw: bytes, origin: str) -> tuple[list[str], NDArray[np.floating]]:
    """A word and its numbers a line, with spaces between."""
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    for number, line in enumerate(raw.splitlines(), start=1):
        word, _, numbers = line.partition(b" ")
        try:
            with np.errstate(over="ignore"):  # what float32 cannot hold is infinite then
                row = np.array(numbers.split(), dtype=np.float32)
            words.append(word.decode())
        except ValueError as error:
            raise DataError(f"{origin}, line {number}: expected a word and numbers ({error})") from error
        if len(row) == 0 or (rows and len(row) != len(rows[0])):
            width = len(rows[0]) if rows else "some"
            raise DataError(f"{origin}, line {number}: {len(row)} numbers, where {width} are expected")
        rows.append(row)
    if not rows:
        raise DataError(f"{origin}: no word vectors; expected a word and its numbers on each line")
    return words, np.stack(rows)
