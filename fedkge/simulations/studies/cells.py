"""One cell of a published table: what tells it from the others, and rows that are measured once and kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedkge.errors import DataError
from fedkge.server.progress import Observer, Progress
from fedkge.simulations.studies.origin import Origin
from fedkge.storage import staged

__all__ = ["KeptCell", "Key", "Row", "StudyCache", "TableCell", "unseen"]

Key = str | int | float | None
Row = dict[str, Any]


def unseen(now: Progress) -> None:
    """Nobody watches."""
    del now


@dataclass(frozen=True)
class StudyCache:
    """A folder that keeps finished cells and runs, and who watches the run that is going on."""

    folder: Path
    watch: Observer = unseen
    code: str = ""  # digest of all studies' code

    @property
    def runs(self) -> Path:
        """Run folders and other half-done work, shared by all recipes that need it; of this code alone."""
        return self.folder / "runs" / self.code


@dataclass(frozen=True)
class KeptCell:
    """The rows of a finished cell and where they come from."""

    rows: list[Row]
    origin: Origin

    @classmethod
    def from_json(cls, text: str) -> KeptCell:
        """A bare list is a cell from before there were origins."""
        values = json.loads(text)
        if isinstance(values, list):
            return cls(values, Origin())
        return cls(list(values["rows"]), Origin.from_json(values["origin"]))

    def to_json(self) -> str:
        content = {"origin": self.origin.to_json(), "rows": self.rows}
        return json.dumps(content, indent=1, default=lambda number: number.item()) + "\n"  # of numpy


@dataclass(frozen=True)
class TableCell:
    """A cell; `settings` is whatever else its rows depend on, so that other settings are another cell."""

    keys: Mapping[str, Key]
    measure: Callable[[StudyCache], Iterable[Row]] = field(compare=False, repr=False)
    settings: str = ""

    @property
    def title(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.keys.items() if value is not None)

    @property
    def file(self) -> str:
        """A name that people can read and that no other cell has."""
        words = "-".join(str(value) for value in self.keys.values() if value is not None)
        digest = sha256(json.dumps([dict(self.keys), self.settings]).encode()).hexdigest()
        readable = re.sub(r"[^\w.-]+", "-", words)
        return f"{readable}-{digest[:10]}.json"

    def rows(
        self, cache: StudyCache, folder: Path, code: str | None = None, command: str | None = None
    ) -> list[Row]:
        """Its rows, from the folder of finished cells if they are there."""
        kept = self.read(folder)
        return (kept or self.measured(cache, folder, code, command)).rows

    def measured(
        self, cache: StudyCache, folder: Path, code: str | None = None, command: str | None = None
    ) -> KeptCell:
        """Measure it, now, and keep it; one that is kept already stays until this is finished."""
        origin = Origin.here(code, command, self.settings)
        text = KeptCell([{**self.keys, **row} for row in self.measure(cache)], origin).to_json()
        with staged(folder / self.file) as path:
            path.write_text(text, encoding="utf-8")
        return KeptCell.from_json(text)

    def kept(self, folder: Path) -> list[Row] | None:
        """Its rows if it was finished before."""
        kept = self.read(folder)
        return None if kept is None else kept.rows

    def read(self, folder: Path) -> KeptCell | None:
        """Its rows and origin if it was finished before."""
        path = folder / self.file
        try:
            return KeptCell.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise DataError(f"{path}: not a finished cell ({error}); delete it to measure it again") from None
