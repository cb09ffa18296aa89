"""The contract of a text encoder: texts to vectors, and texts to words that have vectors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats
from fedkge.errors import UnknownNameError

__all__ = [
    "STOP_WORDS",
    "TEXT_ENCODERS",
    "TextEncoder",
    "Words",
    "kind_of",
    "shortened",
    "split_words",
    "text_encoder",
    "untold",
]

Progress = Callable[[float], None]  # told how many more texts are done; a part of one counts too


def untold(done: float) -> None:
    """Progress that nobody sees."""
    del done


# Words that say nothing of what they stand beside; models of single words leave them out, as BLP does.
# fmt: off
STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "for", "from", "had", "has", "have",
    "he", "her", "his", "if", "in", "into", "is", "it", "its", "of", "on", "or", "she", "so", "than",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "was",
    "were", "which", "who", "will", "with",
))
# fmt: on


@dataclass(frozen=True)
class Words:
    """Texts as rows of a table of words, some after the other; words are numbered as they appear."""

    ids: NDArray[np.int64]  # (words of all texts,)
    starts: NDArray[np.int64]  # (texts + 1,) where each text starts
    vectors: Floats  # (distinct words, w)

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]], vectors_of: Callable[[Sequence[str]], Floats]) -> Words:
        """Texts given as words; `vectors_of` gives each word its row."""
        numbers: dict[str, int] = {}
        ids = [numbers.setdefault(word, len(numbers)) for text in texts for word in text]
        starts = np.cumsum([0, *map(len, texts)])
        return cls(np.array(ids, dtype=np.int64), starts.astype(np.int64), vectors_of(list(numbers)))

    @classmethod
    def in_context(cls, texts: Sequence[Floats], width: int) -> Words:
        """Texts given as rows (words, width): what a word is depends on its place, so no two are the same."""
        starts = np.cumsum([0, *map(len, texts)])
        vectors = np.concatenate([np.empty((0, width), dtype=np.float32), *texts])
        return cls(np.arange(len(vectors)), starts.astype(np.int64), vectors)

    def windows(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(g, size + 1) windows of words and the word after, −1 for none; where those of a text start."""
        counts = -(-np.diff(self.starts) // size)  # windows of each text
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        owner = np.repeat(np.arange(len(counts)), counts)
        first = self.starts[owner] + size * (np.arange(len(owner)) - starts[owner])
        places = first[:, None] + np.arange(size + 1)
        inside = places < self.starts[owner + 1][:, None]
        windows = np.full(places.shape, -1, dtype=np.int64)
        windows[inside] = self.ids[places[inside]]
        return windows, starts

    def means(self) -> Floats:
        """(texts, w) the mean over each text's words; zero where it has none."""
        sums = np.zeros((len(self.starts) - 1, self.vectors.shape[1]))
        owner = np.repeat(np.arange(len(sums)), np.diff(self.starts))
        np.add.at(sums, owner, self.vectors[self.ids])
        means: Floats = (sums / np.maximum(np.diff(self.starts), 1)[:, None]).astype(np.float32)
        return means


class TextEncoder(ABC):
    """Frozen: it is not trained, and so the vector of a text says nothing about anybody's triples."""

    summary: ClassVar[str]  # one line, for lists
    slow: ClassVar[bool] = False  # whether encodings are worth keeping on disk
    contextual: bool = False  # whether the vector of a word depends on the words beside it

    @classmethod
    def reads_in_context(cls, argument: str) -> bool:
        """Whether the encoder of that argument is contextual; nothing is loaded."""
        del argument
        return cls.contextual

    @classmethod
    def is_of_its_texts(cls, argument: str) -> bool:
        """Whether its vectors mean something only beside those of the same texts; nothing is loaded."""
        del argument
        return False

    def fitted(self, texts: Sequence[str]) -> TextEncoder:
        """The encoder that texts of others are read by, where it depends on these."""
        del texts
        return self

    @classmethod
    @abstractmethod
    def of(cls, argument: str) -> Self:
        """The encoder by what stands after the colon of its name."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Of the vectors of texts."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What its encodings depend on beside the texts."""

    @abstractmethod
    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        """(texts, width); zero for a text without words."""

    @abstractmethod
    def words(self, texts: Sequence[str], length: int) -> Words:
        """The first words of each text that are no stop words, at most `length` of them."""

    def sequences(self, texts: Sequence[str], length: int, progress: Progress) -> Words:
        """The same for who reads texts in order: states in context, where the encoder has such."""
        words = self.words(texts, length)
        progress(len(texts))
        return words


TEXT_ENCODERS: dict[str, type[TextEncoder]] = {}  # by name; the package fills it


def side_by_side(name: str) -> list[str]:
    """The encoders that a plus joins; a path may have a plus of its own."""
    if name.startswith("stack:"):
        return [name]
    return re.split(rf"\+(?=(?:{'|'.join(TEXT_ENCODERS)})(?:[:+]|$))", name)


def text_encoder(name: str) -> TextEncoder:
    """An encoder as an experiment names it: 'minilm', 'glove:vectors.txt', 'minilm+hash:512'."""
    kind, argument = kind_of(name)
    return kind.of(argument)


def kind_of(name: str) -> tuple[type[TextEncoder], str]:
    """The class of an encoder, and what it is to be made of."""
    if len(side_by_side(name)) > 1:
        name = f"stack:{name}"
    kind, _, argument = name.partition(":")
    if kind not in TEXT_ENCODERS:
        raise UnknownNameError("text encoder", kind, TEXT_ENCODERS)
    return TEXT_ENCODERS[kind], argument


def shortened(argument: str) -> str:
    """What an error message repeats of an argument."""
    return argument if len(argument) <= 60 else f"{argument[:60]}…"


def split_words(text: str) -> list[str]:
    """Lower-case words and numbers, without stop words."""
    return [word for word in re.findall(r"[^\W_]+", text.lower()) if word not in STOP_WORDS]
