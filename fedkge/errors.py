"""The exceptions of fedkge; every message names the remedy.

FedkgeError
└── InputError                 the user can mend it: one line on stderr, exit code 2
    ├── DataError              a file, an archive or a split is not what it should be
    ├── DownloadError          a named dataset could not be fetched or does not match its checksum
    ├── SettingError           an option has a value outside its range
    ├── TrainingError          training cannot go on as it was set up
    └── UnknownNameError       a name that no registry has, with the nearest known one
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "DataError",
    "DownloadError",
    "FedkgeError",
    "InputError",
    "SettingError",
    "TrainingError",
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


class TrainingError(InputError):
    """Training cannot go on as it was set up."""


class UnknownNameError(InputError):
    """A name that the registry of its kind does not have."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        folded = {known_name.casefold(): known_name for known_name in names}
        near = get_close_matches(name.casefold(), folded, n=1)
        hint = f" Did you mean '{folded[near[0]]}'?" if near else ""
        super().__init__(f"unknown {kind} '{name}'; known: {', '.join(names)}.{hint}")
