"""Which cells of a recipe are wanted: `dataset=DDB14,clients=5`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fedkge.errors import InputError, SettingError, UnknownNameError
from fedkge.simulations.studies.cells import TableCell

__all__ = ["select"]

_BETWEEN_WISHES = re.compile(",(?=[^,]*=)")  # a value may have a comma: method=sound, pretrained


def select(cells: Sequence[TableCell], wishes: Iterable[str]) -> list[TableCell]:
    """The cells that meet every wish; several values of one key are alternatives."""
    wanted: dict[str, set[str]] = {}
    for wish in (part.strip() for text in wishes for part in _BETWEEN_WISHES.split(text)):
        key, equals, value = (part.strip() for part in wish.partition("="))
        if not equals or not value:
            raise SettingError(f"--only '{wish}': expected key=value, such as dataset=DDB14,clients=5")
        _check(cells, key, value)
        wanted.setdefault(key, set()).add(value)
    chosen = [cell for cell in cells if all(str(cell.keys[key]) in wanted[key] for key in wanted)]
    if not chosen:
        asked = ", ".join(f"{key}={'|'.join(sorted(values))}" for key, values in wanted.items())
        raise InputError(f"--only {asked}: no cell of this recipe is all of that; leave out a part")
    return chosen


def _check(cells: Sequence[TableCell], key: str, value: str) -> None:
    keys = dict.fromkeys(key for cell in cells for key in cell.keys)
    if key not in keys:
        raise UnknownNameError("key of --only", key, keys)
    values = dict.fromkeys(str(cell.keys[key]) for cell in cells)
    if value not in values:
        raise UnknownNameError(f"{key} at this scale and these seeds", value, values)
