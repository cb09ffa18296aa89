"""The files of named datasets: found in FEDKGE_DATA or the cache, else downloaded, always verified."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import platformdirs
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from fedkge.datasets.registry import RemoteFile
from fedkge.errors import DownloadError

__all__ = ["cache_folder", "locate"]

_CHUNK = 1 << 16


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(platformdirs.user_cache_dir("fedkge"))


def locate(file: RemoteFile) -> Path:
    """A verified local copy: from FEDKGE_DATA, from the cache, or downloaded into the cache."""
    try:
        return _locate(file)
    except OSError as error:
        raise DownloadError(
            f"{error.filename or file.path}: cannot be read ({error.strerror}); make it readable, or correct "
            "FEDKGE_DATA"
        ) from error


def _locate(file: RemoteFile) -> Path:
    folder = os.environ.get("FEDKGE_DATA")
    if folder:
        if not Path(folder).is_dir():
            raise DownloadError(f"FEDKGE_DATA is '{folder}', which is not a folder; correct or unset it")
        local = Path(folder) / file.path
        if local.is_file():
            _verify(local, file, "replace it, or remove it to have it downloaded")
            return local
    cached = cache_folder() / file.path
    if not cached.is_file():
        _download(file, cached)
    _verify(cached, file, "remove it to have it downloaded again")
    return cached


def _verify(path: Path, file: RemoteFile, remedy: str) -> None:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        raise DownloadError(
            f"{path}: SHA-256 is {found[:16]}…, the published file has {file.sha256[:16]}…; {remedy}"
        )


def _download(file: RemoteFile, target: Path) -> None:
    """Download beside the target and move it there only once its checksum is right."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise DownloadError(f"cannot write to the cache {target.parent}: {error.strerror}") from error
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            _stream(file, stream.fileno())
        try:
            _verify(partial, file, "")
        except DownloadError:
            aside = target.with_name(target.name + ".bad")
            partial.replace(aside)
            raise DownloadError(
                f"{file.url}: not the published file (SHA-256 differs); it was kept aside as {aside} and is "
                "not used. Get the file elsewhere and put it into a folder named by FEDKGE_DATA"
            ) from None
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _stream(file: RemoteFile, descriptor: int) -> None:
    console = Console(stderr=True)
    columns = (
        TextColumn("downloading {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    try:
        with (
            urllib.request.urlopen(file.url, timeout=30) as response,
            Progress(*columns, console=console, transient=True) as progress,
        ):
            length = response.headers.get("Content-Length")
            task = progress.add_task(Path(file.path).name, total=int(length) if length else None)
            while chunk := response.read(_CHUNK):
                os.write(descriptor, chunk)
                progress.advance(task, len(chunk))
    except (urllib.error.URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(
            f"cannot download {file.url} ({reason}); put the file at {file.path} below a folder and name "
            "that folder in FEDKGE_DATA"
        ) from error
