"""A recipe: a published table or figure as cells to be measured, and which columns stand side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pandas as pd

from fedkge.server.progress import Observer
from fedkge.simulations.studies.cells import StudyCache, TableCell, unseen
from fedkge.simulations.studies.scale import Scale, scale_named
from fedkge.simulations.studies.source_digest import source_digest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AS_PRINTED", "Quantity", "Recipe", "study"]

_ALL_STUDIES = "fedkge.simulations.studies"  # recipes of several modules share runs
_QUICK = re.compile(r" ?Quick:.*?\.(?= [A-Z]|$)")  # to the end of its sentence

CellsOf = Callable[[Scale, Sequence[int]], Iterable[TableCell]]
Plot = Callable[[pd.DataFrame], "Figure"]  # of the rows of all finished cells


@dataclass(frozen=True)
class Quantity:
    """Columns that hold something measured, its 95 % interval, and what was published of it."""

    measured: str
    name: str = ""  # without one, the column `metric` says what it is
    published: str | None = None
    low: str | None = None
    high: str | None = None
    within: tuple[str, ...] | None = None  # where it is not the recipe's


AS_PRINTED = Quantity("measured", "", "published", "low", "high")


@dataclass(frozen=True)
class Recipe:
    """A study that can be run by name; the function's docstring says what it is and what quick leaves out."""

    cells_of: CellsOf
    quantities: tuple[Quantity, ...] = (AS_PRINTED,)
    within: tuple[str, ...] = ()  # the columns that tell the rows of a cell apart
    over: str | None = None  # the one of these along which rows are a curve
    seeds: Mapping[Scale, int] | None = None  # how many; None: nothing is drawn
    notes: tuple[str, ...] = ()
    plot: Plot | None = None  # where bars or curves of each line do not show it

    @property
    def about(self) -> str:
        return self._said.splitlines()[0]

    def details_of(self, scale: Scale) -> str:
        """What a reader of its table should know; what quick leaves out is said of quick alone."""
        details = " ".join(self._said.split("\n")[1:]).strip()
        return details if scale == "quick" else _QUICK.sub("", details).strip()

    @property
    def _said(self) -> str:
        return cleandoc(self.cells_of.__doc__ or "")

    def cells(self, scale: Scale, seeds: Sequence[int] | None = None) -> list[TableCell]:
        """Every cell, for each seed; without seeds, as many as the scale has."""
        return list(self.cells_of(scale, range(self.num_seeds(scale)) if seeds is None else seeds))

    def num_seeds(self, scale: Scale) -> int:
        return 1 if self.seeds is None else self.seeds[scale]

    def cells_folder(self, folder: Path, scale: Scale) -> Path:
        """Where finished cells are kept."""
        module = self.cells_of.__module__.rpartition(".")[2]
        return folder / "cells" / f"{module}-{self.cells_of.__name__}-{scale}"

    @property
    def code(self) -> str | None:
        """A digest of the code that its numbers depend on."""
        return source_digest(self.cells_of.__module__)

    def cache(self, folder: Path, watch: Observer = unseen) -> StudyCache:
        """The folder's runs of today's code; other code's are left alone."""
        return StudyCache(folder, watch, source_digest(_ALL_STUDIES) or "")

    def __call__(self, scale: Scale = "quick", seed: int = 0, folder: Path | None = None) -> pd.DataFrame:
        """All rows of all cells; those that the folder has already are not measured again."""
        if folder is None:
            with TemporaryDirectory() as temporary:
                return self(scale, seed, Path(temporary))
        scale = scale_named(scale)
        cache, finished = self.cache(folder), self.cells_folder(folder, scale)
        cells = self.cells(scale, range(seed, seed + self.num_seeds(scale)))
        frame = pd.DataFrame([row for cell in cells for row in cell.rows(cache, finished, self.code)])
        frame.attrs["notes"] = self.notes
        return frame


def study(
    quantities: Sequence[Quantity] = (AS_PRINTED,),
    within: Sequence[str] = (),
    over: str | None = None,
    seeds: Mapping[Scale, int] | None = None,
    notes: Sequence[str] = (),
    plot: Plot | None = None,
) -> Callable[[CellsOf], Recipe]:
    """Make a recipe of the function that lists its cells."""

    def made(cells_of: CellsOf) -> Recipe:
        return Recipe(cells_of, tuple(quantities), tuple(within), over, seeds, tuple(notes), plot)

    return made
