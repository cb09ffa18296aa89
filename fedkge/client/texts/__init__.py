"""Text encoders by name: what makes vectors of descriptions, once and for all, before any training."""

from __future__ import annotations

import re

from fedkge.client.texts.encoder import TextEncoder, Words
from fedkge.client.texts.encoding import encoded
from fedkge.client.texts.hashed import Hashed
from fedkge.client.texts.minilm import MiniLM
from fedkge.client.texts.stacked import Stacked
from fedkge.client.texts.transformer import Transformer
from fedkge.client.texts.word_vectors import Glove
from fedkge.errors import UnknownNameError

__all__ = ["TEXT_ENCODERS", "TextEncoder", "Words", "encoded", "text_encoder"]

TEXT_ENCODERS: dict[str, type[TextEncoder]] = {
    "hash": Hashed,
    "glove": Glove,
    "minilm": MiniLM,
    "transformers": Transformer,
}

_JOINT = re.compile(rf"\+(?=(?:{'|'.join(TEXT_ENCODERS)})(?:[:+]|$))")  # a path may have a plus of its own


def text_encoder(name: str) -> TextEncoder:
    """An encoder as an experiment names it: 'minilm', 'glove:vectors.txt', 'minilm+hash:512'."""
    parts = _JOINT.split(name)
    if len(parts) > 1:
        return Stacked(name, [text_encoder(part) for part in parts])
    kind, _, argument = name.partition(":")
    if kind not in TEXT_ENCODERS:
        raise UnknownNameError("text encoder", kind, TEXT_ENCODERS)
    return TEXT_ENCODERS[kind].of(argument)
