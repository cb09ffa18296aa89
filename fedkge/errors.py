"""The exceptions of fedkge; every message names the remedy.

FedkgeError
├── FederationError            a run cannot go on: too few clients left, a worker that keeps dying
├── ProtocolError              a protocol stopped, and nothing of the step was applied
│   ├── MessageError           not the message expected here: cut, of another kind or session
│   ├── TamperError            a signature, key, share, commitment or table that is false
│   ├── RefusedError           no honest party does this: mask twice, unmask twice, …
│   └── DropoutError           too few parties are left; the round may be tried again
└── InputError                 the user can mend it: one line on stderr, exit code 2
    ├── DataError              a file, an archive or a split is not what it should be
    ├── DownloadError          a named dataset could not be fetched or does not match its checksum
    ├── SettingError           an option has a value outside its range
    ├── StorageError           the disk is full or closed; what was written before stays valid
    ├── TrainingError          training cannot go on as it was set up
    └── UnknownNameError       a name that no registry has, with the nearest known one
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

__all__ = [
    "DataError",
    "DownloadError",
    "DropoutError",
    "FederationError",
    "FedkgeError",
    "InputError",
    "MessageError",
    "ProtocolError",
    "RefusedError",
    "SettingError",
    "StorageError",
    "TamperError",
    "TrainingError",
    "UnknownNameError",
]

_LIKE = 0.6  # names less alike than this are no suggestion


class FedkgeError(Exception):
    """Anything that fedkge raises on purpose."""


class FederationError(FedkgeError):
    """A run cannot go on."""


class ProtocolError(FedkgeError):
    """A protocol stopped; nothing of the step was applied."""

    culprit: int | None = None  # the client whose message it was, where that is known


class MessageError(ProtocolError):
    """Bytes that are not the message expected here."""


class TamperError(ProtocolError):
    """Something that its owner cannot have sent in good faith."""


class RefusedError(ProtocolError):
    """Something an honest party must not do, whoever asks."""


class DropoutError(ProtocolError):
    """Too few parties are left to finish; the round may be tried again."""


class InputError(FedkgeError):
    """Something the user gave cannot be used as it is."""


class DataError(InputError):
    """A file, an archive or a split is not what it should be."""


class DownloadError(InputError):
    """A named dataset could not be fetched, or is not the published one."""


class SettingError(InputError):
    """An option has a value outside its range."""


class StorageError(InputError):
    """Something could not be written."""


class TrainingError(InputError):
    """Training cannot go on as it was set up."""


class UnknownNameError(InputError):
    """A name that the registry of its kind does not have."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = list(known)
        near = max(names, key=lambda other: _likeness(name, other), default="")  # of equals, the first listed
        hint = f" Did you mean '{near}'?" if _likeness(name, near) >= _LIKE else ""
        super().__init__(f"unknown {kind} '{name}'; known: {', '.join(sorted(names))}.{hint}")


def _likeness(first: str, second: str) -> float:
    return SequenceMatcher(None, first.casefold(), second.casefold()).ratio()
