"""The files of named datasets: found in FEDKGE_DATA or the cache, else downloaded, always verified."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import platformdirs
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from fedkge.datasets.formats.container import Member, members
from fedkge.datasets.registry import RemoteFile
from fedkge.errors import DownloadError

__all__ = ["cache_folder", "is_here", "locate", "obtain"]

_CHUNK = 1 << 16


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(platformdirs.user_cache_dir("fedkge"))


def is_here(file: RemoteFile) -> bool:
    """Whether a file needs no download; its content is not looked at."""
    folder = _data_folder()
    places = [folder / path for path in (file.path, f"{file.path}.gz", file.packed)] if folder else []
    return any(place.is_file() for place in (*places, cache_folder() / file.path))


def obtain(file: RemoteFile) -> list[Member]:
    """The verified content; in FEDKGE_DATA it may also be compressed (`.gz`) or packed in an archive."""
    folder = _data_folder()
    if folder is not None and not (folder / file.path).is_file():
        for place in (folder / f"{file.path}.gz", folder / file.packed):
            if place.is_file():
                return [_inside(place, file)]
    return members(locate(file))


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
    folder = _data_folder()
    if folder is not None and (folder / file.path).is_file():
        _verify(folder / file.path, file, "replace it, or remove it to have it downloaded")
        return folder / file.path
    cached = cache_folder() / file.path
    if not cached.is_file():
        _download(file, cached)
    _verify(cached, file, "remove it to have it downloaded again")
    return cached


def _data_folder() -> Path | None:
    folder = os.environ.get("FEDKGE_DATA")
    if folder and not Path(folder).is_dir():
        raise DownloadError(f"FEDKGE_DATA is '{folder}', which is not a folder; correct or unset it")
    return Path(folder) if folder else None


def _inside(place: Path, file: RemoteFile) -> Member:
    """The file in an archive, by its name without folders."""
    name = PurePosixPath(file.path).name
    for member in members(place):
        if PurePosixPath(member.name).name == name:
            content = member.read()
            _compare(member.origin, _digest(io.BytesIO(content), len(content), file), file, "replace it")
            return Member(file.path, member.origin, lambda content=content: content)  # type: ignore[misc]
    raise DownloadError(f"{place}: has no {name}; replace it, or remove it to have the file downloaded")


def _verify(path: Path, file: RemoteFile, remedy: str) -> None:
    with path.open("rb") as stream:
        _compare(str(path), _digest(stream, path.stat().st_size, file), file, remedy)


def _digest(stream: BinaryIO, size: int, file: RemoteFile) -> str:
    """The SHA-256, or the git blob id where that is all that is known."""
    if file.sha256:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _compare(origin: str, digest: str, file: RemoteFile, remedy: str) -> None:
    kind, expected = ("SHA-256", file.sha256) if file.sha256 else ("git blob id", file.git_blob)
    if digest != expected:
        raise DownloadError(
            f"{origin}: {kind} is {digest[:16]}…, the published file has {expected[:16]}…; {remedy}"
        )


def _download(file: RemoteFile, target: Path) -> None:
    """Download beside the target and move it there only once its checksum is right."""
    if not file.url:
        raise DownloadError(
            f"{file.path}: no public address of this file is known; put it below a folder and name that "
            "folder in FEDKGE_DATA"
        )
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
                f"{file.url}: not the published file (its checksum differs); it was kept aside as {aside}, "
                "and is not used. Get the file elsewhere and put it into a folder named by FEDKGE_DATA"
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
