"""Text encoders by name: what makes vectors of descriptions, once and for all, before any training."""

from __future__ import annotations

from fedkge.client.texts.autoencoder import Autoencoder
from fedkge.client.texts.encoder import TEXT_ENCODERS, TextEncoder, Words, kind_of, text_encoder
from fedkge.client.texts.encoding import encoded, encoded_words
from fedkge.client.texts.flair import Flair
from fedkge.client.texts.hashed import Hashed
from fedkge.client.texts.minilm import MiniLM
from fedkge.client.texts.stacked import Stacked
from fedkge.client.texts.transformer import Transformer
from fedkge.client.texts.word_vectors import Glove

__all__ = ["TEXT_ENCODERS", "TextEncoder", "Words", "encoded", "encoded_words", "kind_of", "text_encoder"]

TEXT_ENCODERS.update(
    {
        "hash": Hashed,
        "glove": Glove,
        "minilm": MiniLM,
        "transformers": Transformer,
        "flair": Flair,
        "aec": Autoencoder,
        "stack": Stacked,
    }
)
