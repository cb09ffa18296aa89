"""Any encoder that the transformers library can load: by its name, or from a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
import torch

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.encoder import STOP_WORDS, Progress, TextEncoder, Words
from fedkge.client.training.threads import one_thread
from fedkge.errors import DownloadError, InputError, SettingError

__all__ = ["Transformer"]

_BATCH, _LONGEST = 16, 256


class Transformer(TextEncoder):
    """The mean of the last states of a text's tokens; frozen, where BLP fine-tunes BERT and takes [CLS]."""

    summary = "transformers:NAME: mean last states of a model of the hub or a folder; needs transformers"
    slow = True

    def __init__(self, name: str, tokenizer: Any, model: Any) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.model = model.eval()

    @classmethod
    def of(cls, argument: str) -> Self:
        if not argument:
            raise SettingError(
                "text encoder 'transformers': name a model, such as transformers:bert-base-cased, or a folder"
            )
        if find_spec("transformers") is None:
            raise InputError(
                f"text encoder 'transformers:{argument}': transformers is not installed; run "
                "'pip install transformers'"
            )
        from transformers import AutoModel, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(argument)
            model = AutoModel.from_pretrained(argument)
        except (OSError, ValueError) as error:
            reason = str(error).split("\n")[0]
            raise DownloadError(
                f"text encoder 'transformers:{argument}': cannot be loaded ({reason}); download the model "
                "where there is a network, and give its folder"
            ) from error
        return cls(argument, tokenizer, model)

    @property
    def width(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def identity(self) -> str:
        """A folder's content may change under its name: then its weights' time and size tell."""
        stamp = ""
        if os.path.isdir(self.name):  # noqa: PTH112
            files = sorted(os.scandir(self.name), key=lambda entry: entry.name)
            stamp = ",".join(f"{file.name}:{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files)
        return f"transformers:{self.name}:{stamp}"

    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        rows = np.zeros((len(texts), self.width), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        order = [row for row in order if texts[row].strip()]
        with one_thread(), torch.no_grad():
            for start in range(0, len(order), _BATCH):
                batch = order[start : start + _BATCH]
                tokens = self.tokenizer(
                    [texts[row] for row in batch],
                    padding=True,
                    truncation=True,
                    max_length=_LONGEST,
                    return_tensors="pt",
                )
                states = self.model(**tokens).last_hidden_state
                present = tokens["attention_mask"][..., None]
                rows[batch] = ((states * present).sum(1) / present.sum(1)).numpy()
                progress(len(batch))
        return rows

    def words(self, texts: Sequence[str], length: int) -> Words:
        pieces = [self.tokenizer.tokenize(text) for text in texts]
        kept = [[p for p in text if p[-1].isalnum() and p.lower() not in STOP_WORDS] for text in pieces]
        return Words.of([text[:length] for text in kept], self._rows)

    def _rows(self, pieces: Sequence[str]) -> Floats:
        ids = torch.tensor(self.tokenizer.convert_tokens_to_ids(list(pieces)), dtype=torch.int64)
        rows: Floats = self.model.get_input_embeddings().weight.detach()[ids].numpy()
        return rows
