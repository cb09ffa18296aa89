"""The exceptions of fedkge; every message names the remedy.

FedkgeError
├── InputError                 the user can mend it: one line on stderr, exit code 2
│   ├── DataError              a file, an archive or a split is not what it should be
│   ├── DownloadError          a named dataset could not be fetched or does not match its checksum
│   ├── SettingError           an option has a value outside its range
│   └── UnknownNameError       a name that no registry has, with the nearest known one
└── ProtocolError              a cryptographic protocol stopped, and nothing of the step was applied
    ├── MessageError           not the message expected here: cut, of another kind or session
    ├── TamperError            a signature, key, share, commitment or table that is false
    ├── RefusedError           no honest party does this: mask twice, unmask twice, …
    └── DropoutError           too few parties are left; the round may be tried again
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "DataError",
    "DownloadError",
    "DropoutError",
    "FedkgeError",
    "InputError",
    "MessageError",
    "ProtocolError",
    "RefusedError",
    "SettingError",
    "TamperError",
    "UnknownNameError",
]


class FedkgeError(Exception):
    """Anything that fedkge raises on purpose."""


class InputError(FedkgeError):
    """Something the user gave cannot be used as it is."""


class DataError(InputError):
    """A file, an archive or a split is not what it should be."""


class DownloadError(InputError):
    """A named dataset could not be fetched, or is not the published one."""


class SettingError(InputError):
    """An option has a value outside its range."""


class UnknownNameError(InputError):
    """A name that the registry of its kind does not have."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        folded = {known_name.casefold(): known_name for known_name in names}
        near = get_close_matches(name.casefold(), folded, n=1)
        hint = f" Did you mean '{folded[near[0]]}'?" if near else ""
        super().__init__(f"unknown {kind} '{name}'; known: {', '.join(names)}.{hint}")


class ProtocolError(FedkgeError):
    """A cryptographic protocol stopped; nothing of the step was applied."""


class MessageError(ProtocolError):
    """Bytes that are not the message expected here."""


class TamperError(ProtocolError):
    """Something that its owner cannot have sent in good faith."""


class RefusedError(ProtocolError):
    """Something an honest party must not do, whoever asks."""


class DropoutError(ProtocolError):
    """Too few parties are left to finish; the round may be tried again."""
