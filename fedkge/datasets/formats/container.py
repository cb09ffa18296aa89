"""The named members of a folder, a file or an archive, read without ever unpacking to disk."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedkge.errors import DataError

__all__ = ["ARCHIVES", "Member", "members", "read_text"]

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_DAMAGED = (
    EOFError,
    OSError,
    RuntimeError,  # an encrypted zip, and (NotImplementedError) a way of packing that Python lacks
    ValueError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Member:
    """One file, wherever it lies; `name` is its path inside the container, without a .gz ending."""

    name: str
    origin: str  # what an error message calls it
    fetch: Callable[[], bytes]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix.lower()

    def read(self) -> bytes:
        try:
            return self.fetch()
        except _DAMAGED as error:
            raise DataError(
                f"{self.origin}: cannot be read ({_reason(error)}); unpack it, or fetch or copy it again"
            ) from error


def members(path: Path) -> list[Member]:
    """The files of a folder or archive, or the one file that `path` is."""
    try:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder")
        if path.is_dir():
            return _folder_members(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({_reason(error)}); is it yours to read?") from error
    name = path.name.lower()
    if name.endswith(".zip"):
        return _zip_members(path)
    if name.endswith(ARCHIVES):
        return _tar_members(path)
    return [_plain(path, path.name)]


def _folder_members(path: Path) -> list[Member]:
    next(path.iterdir(), None)  # a folder that may not be listed says so here; rglob would call it empty
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [_plain(file, file.relative_to(path).as_posix()) for file in files]


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__


def read_text(member: Member) -> str:
    """A member as text; a byte-order mark is dropped, anything but UTF-8 is refused."""
    raw = member.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{member.origin}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; convert the file"
        ) from error


def _plain(file: Path, name: str) -> Member:
    if name.lower().endswith(".gz"):
        return Member(name[:-3], str(file), lambda: gzip.decompress(file.read_bytes()))
    return Member(name, str(file), file.read_bytes)


def _inside(archive: Path, name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise DataError(
            f"{archive}: member '{name}' points outside the archive's folder; do not trust this file"
        )
    return path.as_posix()


def _archived(archive: Path, name: str, fetch: Callable[[], bytes]) -> Member:
    origin = f"{archive}:{name}"
    if name.lower().endswith(".gz"):
        return Member(name[:-3], origin, lambda: gzip.decompress(fetch()))
    return Member(name, origin, fetch)


def _zip_members(path: Path) -> list[Member]:
    def fetch(name: str) -> bytes:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)

    try:
        with zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
    except _DAMAGED as error:
        raise DataError(
            f"{path}: a damaged or truncated zip archive ({_reason(error)}); fetch it again"
        ) from error
    return [
        _archived(path, _inside(path, info.filename), lambda name=info.filename: fetch(name))  # type: ignore[misc]
        for info in infos
    ]


def _tar_members(path: Path) -> list[Member]:
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:  # one pass: seeking in a compressed tar starts over each time
            for info in archive:
                name = _inside(path, info.name)
                if info.issym() or info.islnk():
                    _inside(path, info.linkname)
                file = archive.extractfile(info) if info.isfile() else None
                if file is not None:
                    contents[name] = file.read()
            while archive.fileobj and archive.fileobj.read(_CHUNK):
                pass  # the checksum of the compressed stream stands at its very end
    except _DAMAGED as error:
        raise DataError(
            f"{path}: a damaged or truncated tar archive ({_reason(error)}); fetch it again"
        ) from error
    return [_archived(path, name, lambda raw=raw: raw) for name, raw in contents.items()]  # type: ignore[misc]
