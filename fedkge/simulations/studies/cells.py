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
from fedkge.storage import staged

__all__ = ["Key", "Row", "StudyCache", "TableCell"]

Key = str | int | float | None
Row = dict[str, Any]


def _unseen(now: Progress) -> None:
    del now


@dataclass(frozen=True)
class StudyCache:
    """A folder that keeps finished cells and runs, and who watches the run that is going on."""

    folder: Path
    watch: Observer = _unseen

    @property
    def runs(self) -> Path:
        """Run folders and other half-done work, shared by all recipes that need it."""
        return self.folder / "runs"


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

    def rows(self, cache: StudyCache, folder: Path) -> list[Row]:
        """Its rows, from the folder of finished cells if they are there."""
        kept = self.kept(folder)
        if kept is not None:
            return kept
        rows = [{**self.keys, **row} for row in self.measure(cache)]
        text = json.dumps(rows, indent=1, default=lambda number: number.item())  # of numpy
        with staged(folder / self.file) as path:
            path.write_text(text + "\n", encoding="utf-8")
        return list(json.loads(text))

    def kept(self, folder: Path) -> list[Row] | None:
        """Its rows if it was finished before."""
        path = folder / self.file
        try:
            return list(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise DataError(f"{path}: not a finished cell ({error}); delete it to measure it again") from None
