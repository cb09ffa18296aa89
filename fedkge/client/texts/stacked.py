"""Several text encoders side by side, as Flair stacks embeddings (Akbik et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.encoder import Progress, TextEncoder, Words, kind_of, side_by_side, text_encoder
from fedkge.client.texts.encoding import encoded
from fedkge.errors import SettingError

__all__ = ["Stacked"]


class Stacked(TextEncoder):
    """The vectors of its parts one after the other, each of length 1, so that none drowns the others."""

    summary = "stack:minilm+glove, or minilm+glove: several side by side"

    def __init__(self, name: str, parts: Sequence[TextEncoder]) -> None:
        self.name = name
        self.parts = parts

    @classmethod
    def of(cls, argument: str) -> Self:
        parts = side_by_side(argument)
        if len(parts) == 1:
            raise SettingError(f"text encoder 'stack:{argument}': join names by a plus, as minilm+glove")
        return cls(argument, [text_encoder(part) for part in parts])

    @classmethod
    def is_of_its_texts(cls, argument: str) -> bool:
        parts = (kind_of(part) for part in side_by_side(argument) if not part.startswith("stack:"))
        return any(kind.is_of_its_texts(rest) for kind, rest in parts)

    def fitted(self, texts: Sequence[str]) -> TextEncoder:
        return type(self)(self.name, [part.fitted(texts) for part in self.parts])

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def identity(self) -> str:
        return "+".join(part.identity for part in self.parts)

    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        """Each part says and keeps what is its own."""
        rows = [encoded(part, texts) for part in self.parts]
        progress(len(texts))
        lengths = (np.linalg.norm(part, axis=1, keepdims=True) for part in rows)
        return np.concatenate(
            [part / np.where(length > 0, length, 1) for part, length in zip(rows, lengths, strict=True)],
            axis=1,
            dtype=np.float32,
        )

    def words(self, texts: Sequence[str], length: int) -> Words:
        del texts, length
        raise SettingError(
            f"text encoder '{self.name}': a stack gives vectors of texts, not of words; name one of its parts"
        )
