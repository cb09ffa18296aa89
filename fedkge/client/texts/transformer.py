"""Any encoder that the transformers library can load: by its name, or from a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.encoder import STOP_WORDS, Progress, TextEncoder, Words
from fedkge.client.training.threads import one_thread
from fedkge.errors import DownloadError, InputError, SettingError

__all__ = ["Transformer"]

_BATCH, _LONGEST = 16, 256
_PATIENCE = 5.0  # seconds that the hub has to answer; the library itself would try for a minute


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
                "'pip install fedkge[text]' or 'pip install transformers'"
            )
        return cls(argument, *_loaded(argument))

    @property
    def width(self) -> int:
        return int(self.model.config.hidden_size)

    @cached_property
    def identity(self) -> str:
        """A folder's content may change under its name, and so may the hub's."""
        folder = Path(self.name)
        version = _digest(folder) if folder.is_dir() else getattr(self.model.config, "_commit_hash", None)
        return f"transformers/2:{self.name}:{version}"

    def encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        rows = np.zeros((len(texts), self.width), dtype=np.float32)
        for batch, states, present, _ in self._batches(texts, progress):
            weights = present[..., None]  # (b, n, 1)
            rows[batch] = ((states * weights).sum(1) / weights.sum(1)).numpy()
        return rows

    def words(self, texts: Sequence[str], length: int) -> Words:
        """Word pieces, with the vectors that the first layer takes."""
        pieces = [self.tokenizer.tokenize(text) for text in texts]
        kept = [[p for p in text if p[-1].isalnum() and p.lower() not in STOP_WORDS] for text in pieces]
        return Words.of([text[:length] for text in kept], self._rows)

    def sequences(self, texts: Sequence[str], length: int, progress: Progress) -> Words:
        """Every word piece, with its last state."""
        rows = [np.empty((0, self.width), dtype=np.float32)] * len(texts)
        for batch, states, present, special in self._batches(texts, progress):
            kept = present.bool() & ~special.bool()
            for row, text, inside in zip(batch, states, kept, strict=True):
                rows[row] = text[inside][:length].numpy()
        return Words.in_context(rows, self.width)

    def _batches(
        self, texts: Sequence[str], progress: Progress
    ) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
        """Texts of about one length: their places, last states (b, n, w), which tokens are, or are special.

        Those without a word are left out.
        """
        order = [
            row for row in sorted(range(len(texts)), key=lambda row: len(texts[row])) if texts[row].strip()
        ]
        progress(len(texts) - len(order))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            tokens = self.tokenizer(
                [texts[row] for row in batch],
                padding=True,
                truncation=True,
                max_length=_LONGEST,
                return_special_tokens_mask=True,
                return_tensors="pt",
            )
            special = tokens.pop("special_tokens_mask")
            with one_thread(), torch.no_grad():
                states = self.model(**tokens).last_hidden_state.float()
            yield batch, states, tokens["attention_mask"], special
            progress(len(batch))

    def _rows(self, pieces: Sequence[str]) -> Floats:
        ids = torch.tensor(self.tokenizer.convert_tokens_to_ids(list(pieces)), dtype=torch.int64)
        rows: Floats = self.model.get_input_embeddings().weight.detach()[ids].float().numpy()
        return rows


def _loaded(name: str) -> tuple[Any, Any]:
    """The tokenizer and the model: of a folder, else of the hub's cache, else from the hub if it answers."""
    try:
        return _from_disk(name)
    except Exception as error:  # damaged files raise anything
        if Path(name).is_dir():
            raise DownloadError(
                f"text encoder 'transformers:{name}': the folder holds no model that can be loaded "
                f"({_line(error)}); it needs what 'save_pretrained' writes of tokenizer and model"
            ) from error
    try:
        return _from_hub(name)
    except Exception as error:
        raise DownloadError(
            f"text encoder 'transformers:{name}': no such folder, and cannot be loaded from the hub "
            f"({_line(error)}); download the model where there is a network, and give its folder"
        ) from error


def _from_disk(name: str) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    where = {"local_files_only": True, "trust_remote_code": False}
    with _no_bars():
        return AutoTokenizer.from_pretrained(name, **where), AutoModel.from_pretrained(name, **where)


def _from_hub(name: str) -> tuple[Any, Any]:
    """Asks once, for a moment, before anything is fetched: downloads are tried again for a minute."""
    from huggingface_hub import HfApi
    from transformers import AutoModel, AutoTokenizer

    HfApi().model_info(name, timeout=_PATIENCE)
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    return tokenizer, AutoModel.from_pretrained(name, trust_remote_code=False)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Weights of a local file are there at once; a bar for each layer is noise."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _digest(folder: Path) -> str:
    """What the files of a folder hold."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        digest.update(path.name.encode("utf-8", "surrogateescape") + b"\0" + content)
    return digest.hexdigest()


def _line(error: Exception) -> str:
    """The first line of what a library says."""
    return str(error).strip().split("\n")[0] or type(error).__name__
