"""Contextual string embeddings (Akbik et al., 2018) out of Flair's files, without the flair package."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.character_model import CharacterModel
from fedkge.client.texts.encoder import STOP_WORDS, Progress, TextEncoder, Words, untold
from fedkge.client.texts.word_vectors import Glove
from fedkge.errors import DownloadError, SettingError

__all__ = ["Flair"]

_BATCH = 16  # texts of about one length
_LONGEST = 256  # words of a text of which the mean is taken
_NAMES = {  # the files that Flair has these names for
    "news-forward": "news-forward-0.4.1.pt",
    "news-backward": "news-backward-0.4.1.pt",
    "news-forward-fast": "lm-news-english-forward-1024-v0.2rc.pt",
    "news-backward-fast": "lm-news-english-backward-1024-v0.2rc.pt",
}

Span = tuple[int, int]  # where a word starts and stops


class Flair(TextEncoder):
    """A word's states in one or more character models, side by side; word vectors may stand with them.

    A forward model has read the text up to the word and the space after it, a backward one has read it from
    its end to the space before the word.
    """

    summary = "flair:FILE,FILE or flair:glove,FILE,FILE: states of Flair's character models, side by side"
    slow = True
    contextual = True

    def __init__(self, parts: Sequence[CharacterModel | Glove]) -> None:
        self.parts = tuple(parts)

    @classmethod
    def of(cls, argument: str) -> Self:
        names = [name.strip() for name in argument.split(",") if name.strip()]
        if not names:
            raise SettingError(
                "text encoder 'flair': name files of character models, as flair:forward.pt,backward.pt, with "
                "'glove,' in front for word vectors beside them"
            )
        return cls([_part(name) for name in names])

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def identity(self) -> str:
        return f"flair/1:{','.join(part.identity for part in self.parts)}"

    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        return self.sequences(texts, _LONGEST, progress).means()

    def words(self, texts: Sequence[str], length: int) -> Words:
        return self.sequences(texts, length, untold)

    def sequences(self, texts: Sequence[str], length: int, progress: Progress) -> Words:
        read = [_words(text, length) for text in texts]
        rows = [np.zeros((len(spans), self.width), dtype=np.float32) for _, spans in read]
        order = sorted(range(len(texts)), key=lambda row: len(read[row][0]))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            column = 0
            for part in self.parts:
                columns = slice(column, column + part.width)
                for row, states in zip(batch, _states(part, [read[row] for row in batch]), strict=True):
                    rows[row][:, columns] = states
                column += part.width
            progress(len(batch))
        return Words.in_context(rows, self.width)


def _words(text: str, length: int) -> tuple[str, list[Span]]:
    """A text with a space between words and signs, up to its last word that counts; where these stand."""
    spaced, spans = "", list[Span]()
    for token in re.findall(r"[^\W_]+|[^\w\s]", text):
        if len(spans) == length:
            break
        start = len(spaced) + 1 if spaced else 0
        spaced = f"{spaced} {token}" if spaced else token
        if token[0].isalnum() and token.lower() not in STOP_WORDS:
            spans.append((start, len(spaced)))
    return spaced, spans


def _states(part: CharacterModel | Glove, read: Sequence[tuple[str, list[Span]]]) -> list[Floats]:
    """A row for each word that counts; zero where word vectors lack it."""
    if isinstance(part, Glove):
        return [part.rows([text[slice(*span)].lower() for span in spans]) for text, spans in read]
    states = part.states([text for text, _ in read])  # (n, b, width)
    places = [[part.place(text, *span) for span in spans] for text, spans in read]
    return [states[row, column].numpy() for column, row in enumerate(places)]


def _part(name: str) -> CharacterModel | Glove:
    kind, _, argument = name.partition(":")
    if kind == "glove":
        return Glove.of(argument)
    folder = os.environ.get("FEDKGE_DATA")
    file = _NAMES.get(name, name)
    places = [Path(file), *([Path(folder) / file, Path(folder) / "text" / file] if folder else [])]
    for place in places:
        if place.is_file():
            return CharacterModel.read(place)
    raise DownloadError(
        f"text encoder 'flair:{name}': no file {' or '.join(map(str, places))}; get it where Flair publishes "
        "its models, and name its path"
    )
