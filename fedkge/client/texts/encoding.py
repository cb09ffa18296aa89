"""Encodings of texts, kept on disk by what they depend on: the encoder and the texts."""

from __future__ import annotations

import hashlib
import logging
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import BinaryIO, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.encoder import Progress, TextEncoder, Words, untold
from fedkge.datasets.download import cache_folder
from fedkge.errors import StorageError
from fedkge.storage import staged

__all__ = ["encoded", "encoded_words"]

T = TypeVar("T")

_PATIENCE = 2.0  # seconds without a word

_log = logging.getLogger(__name__)


def encoded(encoder: TextEncoder, texts: Sequence[str]) -> Floats:
    """(texts, width) a vector for each text, out of the cache where it has them."""
    if not encoder.slow:
        return encoder.encode(texts, untold)
    path = _place(encoder, texts, "").with_suffix(".npy")
    kept = _read(path, (len(texts), encoder.width))
    if kept is not None:
        return kept
    rows = _with_progress(len(texts), lambda progress: encoder.encode(texts, progress))
    _keep(path, lambda partial: np.save(partial, rows))
    return rows


def encoded_words(encoder: TextEncoder, texts: Sequence[str], length: int) -> Words:
    """The first words of each text; those in context out of the cache where it has them."""
    if not encoder.contextual:
        return encoder.words(texts, length)
    path = _place(encoder, texts, f"{length} words").with_suffix(".npz")
    kept = _read_words(path, len(texts), encoder.width)
    if kept is not None:
        return kept
    words = _with_progress(len(texts), lambda progress: encoder.sequences(texts, length, progress))
    _keep(path, lambda partial: np.savez(partial, **vars(words)))
    return words


def _keep(path: Path, write: Callable[[BinaryIO], None]) -> None:
    try:
        with staged(path) as partial, partial.open("wb") as stream:
            write(stream)
    except StorageError as error:
        _log.warning("the encodings of texts are not kept: %s", error)


def _place(encoder: TextEncoder, texts: Sequence[str], what: str) -> Path:
    digest = hashlib.blake2b(f"{encoder.identity}{what}".encode(), digest_size=16)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return cache_folder() / "encodings" / digest.hexdigest()


def _read(path: Path, shape: tuple[int, int]) -> Floats | None:
    """What the file keeps; nothing where there is none, or it is damaged."""
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return rows if rows.shape == shape and rows.dtype == np.float32 else None


def _read_words(path: Path, texts: int, width: int) -> Words | None:
    """The same, of words."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            words = Words(*(arrays[name] for name in ("ids", "starts", "vectors")))
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None
    fits = words.starts.shape == (texts + 1,) and words.vectors.shape == (len(words.ids), width)
    return words if fits else None


def _with_progress(texts: int, work: Callable[[Progress], T]) -> T:
    """A bar on stderr, once it takes long."""
    columns = (TextColumn("encoding {task.total:,} texts"), BarColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=texts)
    begun = monotonic()

    def advance(done: float) -> None:
        bar.advance(task, done)
        if not bar.live.is_started and monotonic() - begun > _PATIENCE:
            bar.start()

    try:
        return work(advance)
    finally:
        if bar.live.is_started:
            bar.stop()
