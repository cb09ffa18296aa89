"""A published table measured again, as far as it has got: published, measured, interval, difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import Any

import pandas as pd

from fedkge.simulations.report.words import several
from fedkge.simulations.studies.against_published import COLUMNS, OLDER, line_up, summit
from fedkge.simulations.studies.cells import KeptCell
from fedkge.simulations.studies.origin import Origin
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Recipe

__all__ = ["HEADER", "Reproduction", "shown"]

_OLDER = "†"  # a number of older code

HEADER = ("published", "measured", "95 % interval", "difference", "seeds")


@dataclass(frozen=True)
class Reproduction:
    """What is finished of a recipe, and how it was asked for."""

    name: str
    recipe: Recipe
    scale: Scale
    command: str
    cells: Sequence[KeptCell]
    keys: Sequence[str]
    total: int
    code: str | None  # that cells should be of

    @property
    def finished(self) -> int:
        return len(self.cells)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Every row of every finished cell."""
        return pd.DataFrame([row for cell in self.cells for row in cell.rows])

    @cached_property
    def lines(self) -> pd.DataFrame:
        """Over seeds, published beside measured."""
        older = [not cell.origin.is_of(self.code) for cell in self.cells for _ in cell.rows]
        return line_up(self.recipe, self.frame.assign(**{OLDER: older}), self.keys)

    @property
    def older(self) -> list[KeptCell]:
        """The cells that are not known to be of this code."""
        return [cell for cell in self.cells if not cell.origin.is_of(self.code)]

    @property
    def origins(self) -> str:
        """Which commits the cells are of, the oldest first."""
        return _commits(self.cells)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The lines that fit a table."""
        return summit(self.recipe, self.lines)

    @property
    def names(self) -> list[str]:
        """The columns that tell lines apart."""
        return [name for name in self.lines.columns if name not in COLUMNS]

    @property
    def common(self) -> str:
        """What all lines share, and the table therefore does not repeat."""
        columns = [key for key in (*self.keys, *self.recipe.within) if key not in ("seed", *self.names)]
        values = {key: _told(self.frame[key].iloc[0]) for key in columns}
        shared = ", ".join(f"{key} {value}" for key, value in values.items() if value)
        return f"All lines: {shared}." if shared else ""

    @property
    def header(self) -> list[str]:
        return [*self.names, *HEADER]

    def texts(self) -> list[list[str]]:
        """The table as text; nothing that was measured is left out."""
        return [
            [
                *(_told(line[name]) for name in self.names),
                shown(line["published"]),
                f"{shown(line['measured'])} {_OLDER if line['older'] else ''}".strip(),
                _interval(line["low"], line["high"]),
                _signed(line["difference"]),
                str(int(line["seeds"])),
            ]
            for line in self.table.to_dict("records")
        ]

    @cached_property
    def drawing(self) -> str:
        """The recipe's own plot of what is finished as SVG, the same for the same rows; else nothing."""
        if self.recipe.plot is None:
            return ""
        from matplotlib import rc_context  # half a second to import

        file = StringIO()
        with rc_context({"svg.hashsalt": self.name}):
            self.recipe.plot(self.frame).savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()

    @property
    def is_partial(self) -> bool:
        return self.finished < self.total

    @property
    def notices(self) -> list[str]:
        """What a reader must know before the numbers."""
        notes = []
        if self.is_partial:
            notes.append(f"Partial: {self.finished} of {self.total} cells are finished.")
        if self.scale == "quick":
            notes.append("Scale quick: less than the full study, as the notes say.")
        if self.older:
            share = f"{len(self.older)} of {self.finished} cells"
            again = "The same command with --refresh measures them again."
            commits = ", ".join(dict.fromkeys(cell.origin.place for cell in self.older))
            notes.append(f"{_OLDER} Of older code: {share}, by {commits}. {again}")
        return notes

    @property
    def notes(self) -> list[str]:
        curves = f"Of each curve the table has the last {self.recipe.over}; cells.csv has all."
        notes = [self.recipe.details_of(self.scale), *self.recipe.notes, curves if self.recipe.over else ""]
        return [note for note in notes if note]

    @property
    def files(self) -> dict[str, str]:
        """What is kept of it in a repository, by name; the same cells and code give the same."""
        files = {"cells.csv": self.frame.to_csv(index=False), "table.md": self.markdown()}
        return {**files, "plot.svg": self.drawing} if self.drawing else files

    def markdown(self) -> str:
        """The table for a document; nothing in it but what cells and code say."""
        names = len(self.names)
        rule = "|" + "|".join(["---"] * names + ["--:"] * len(HEADER)) + "|"
        cells = [[text.replace("|", "\\|") for text in row] for row in (self.header, *self.texts())]
        lines = [f"| {' | '.join(row)} |" for row in cells]
        notes = [f"- {note}" for note in (*self.notices, self.common, *self.notes) if note]
        made = f"{self.origins}. Today's code when this was written: `{self.code}`."
        parts = [f"# {self.recipe.about}", f"`{self.command}`", made, "\n".join(notes)]
        return "\n\n".join([*parts, "\n".join([lines[0], rule, *lines[1:]])]) + "\n"


def _commits(cells: Sequence[KeptCell]) -> str:
    """How many cells each commit measured, when, and with which release."""
    origins = sorted((cell.origin for cell in cells), key=lambda origin: (origin.date or "", origin.place))
    places: dict[str, list[Origin]] = {}
    for origin in origins:
        places.setdefault(origin.place, []).append(origin)
    return ", ".join(_told_group(place, group) for place, group in places.items())


def _told_group(place: str, origins: Sequence[Origin]) -> str:
    days = sorted({origin.day for origin in origins if origin.day})
    span = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    releases = sorted({f"fedkge {origin.fedkge}" for origin in origins if origin.fedkge})
    when = ", ".join(filter(None, [span, *releases]))
    return f"{several(len(origins), 'cell')} of commit {place}" + (f" ({when})" if when else "")


def shown(value: float | None) -> str:
    """A number with what counts of it, or a dash."""
    if value is None or pd.isna(value):
        return "–"
    size = abs(value)
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}" if size < 1e-3 else f"{value:.4f}" if size < 10 else f"{value:,.2f}"


def _signed(value: float) -> str:
    return shown(value) if pd.isna(value) or value <= 0 else f"+{shown(value)}"


def _interval(low: float, high: float) -> str:
    return "" if pd.isna(low) or pd.isna(high) else f"{shown(low)} to {shown(high)}"


def _told(value: Any) -> str:
    if not isinstance(value, str) and pd.isna(value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
