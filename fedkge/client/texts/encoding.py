"""Encodings of texts, kept on disk by what they depend on: the encoder and the texts."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedkge.client.kernels.arrays import Floats
from fedkge.client.texts.encoder import TextEncoder
from fedkge.datasets.download import cache_folder
from fedkge.errors import StorageError
from fedkge.storage import staged

__all__ = ["encoded"]

_PATIENCE = 2.0  # seconds without a word

_log = logging.getLogger(__name__)


def encoded(encoder: TextEncoder, texts: Sequence[str]) -> Floats:
    """(texts, width) a vector for each text, out of the cache where it has them."""
    if not encoder.slow:
        return encoder.encode(texts, _untold)
    path = _place(encoder, texts)
    kept = _read(path, (len(texts), encoder.width))
    if kept is not None:
        return kept
    rows = _with_progress(encoder, texts)
    try:
        with staged(path) as partial, partial.open("wb") as stream:
            np.save(stream, rows)
    except StorageError as error:
        _log.warning("the encodings of texts are not kept: %s", error)
    return rows


def _untold(done: int) -> None:
    """Progress that nobody sees."""
    del done


def _place(encoder: TextEncoder, texts: Sequence[str]) -> Path:
    digest = hashlib.blake2b(encoder.identity.encode(), digest_size=16)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return cache_folder() / "encodings" / f"{digest.hexdigest()}.npy"


def _read(path: Path, shape: tuple[int, int]) -> Floats | None:
    """What the file keeps; nothing where there is none, or it is damaged."""
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return rows if rows.shape == shape and rows.dtype == np.float32 else None


def _with_progress(encoder: TextEncoder, texts: Sequence[str]) -> Floats:
    """A bar on stderr, once it takes long."""
    columns = (TextColumn("encoding {task.total:,} texts"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=len(texts))
    begun = monotonic()

    def advance(done: int) -> None:
        bar.advance(task, done)
        if not bar.live.is_started and monotonic() - begun > _PATIENCE:
            bar.start()

    try:
        return encoder.encode(texts, advance)
    finally:
        if bar.live.is_started:
            bar.stop()
