"""Measuring a published table again: cell by cell, each kept at once, and written down whenever it stops."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedkge.errors import SettingError, UnknownNameError
from fedkge.server.progress import Observer
from fedkge.simulations.report import FILE
from fedkge.simulations.runs.environment import describe
from fedkge.simulations.studies import RECIPES, Recipe, Scale
from fedkge.simulations.studies.cells import TableCell
from fedkge.simulations.studies.reproduction import Reproduction
from fedkge.simulations.studies.selection import select
from fedkge.simulations.studies.study_page import reproduction_page
from fedkge.storage import staged

__all__ = ["Order", "Watch"]

Watch = Callable[[TableCell, int, int], Observer]  # a cell, its place, of how many; to whatever shows its run


@dataclass(frozen=True)
class Order:
    """Which recipe, at what scale, how many seeds, which cells, and where to."""

    name: str
    folder: Path
    scale: Scale = "quick"
    seeds: int | None = None
    only: tuple[str, ...] = ()
    refresh: bool = False  # measure cells of older code again
    compared_with: str | None = None  # a digest of code; without one, today's

    def __post_init__(self) -> None:
        if self.name not in RECIPES:
            raise UnknownNameError("recipe", self.name, RECIPES)
        if self.recipe.seeds is None and self.seeds not in (None, 1):
            raise SettingError(f"--seeds {self.seeds}: {self.name} draws nothing at random; leave it out")

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.name]

    @cached_property
    def cells(self) -> list[TableCell]:
        """The whole recipe, for these seeds."""
        return self.recipe.cells(self.scale, None if self.seeds is None else range(self.seeds))

    @cached_property
    def wanted(self) -> list[TableCell]:
        return select(self.cells, self.only) if self.only else self.cells

    @property
    def output(self) -> Path:
        """Where the table goes; runs and cells are beside it, for other recipes to share."""
        return self.folder / f"{self.name}-{self.scale}"

    @property
    def cells_folder(self) -> Path:
        return self.recipe.cells_folder(self.folder, self.scale)

    @property
    def command(self) -> str:
        """The words that ask for the same again, and go on where it stopped."""
        again = " --refresh" if self.refresh else ""
        return f"{self.cell_command}{again} --out {self.folder}"

    @property
    def table_command(self) -> str:
        """The words for the whole table: it has every finished cell, whichever were asked for."""
        return f"{self._words()} --out {self.folder}"

    @property
    def cell_command(self) -> str:
        """The words that measure these cells on any machine."""
        return self._words(*(part for wish in self.only for part in ("--only", shlex.quote(wish))))

    def _words(self, *more: str) -> str:
        seeds = [] if self.seeds is None else ["--seeds", str(self.seeds)]
        return " ".join(["fedkge", "reproduce", self.name, "--scale", self.scale, *seeds, *more])

    @cached_property
    def code(self) -> str | None:
        """A digest of the code that cells should be of."""
        return self.compared_with or self.recipe.code

    def fill(self, watch: Watch) -> Reproduction:
        """Measure what is missing; whatever stops it, the finished cells are on disk and in the table."""
        wanted = self.wanted
        try:
            for number, cell in enumerate(wanted):
                self._fill_cell(cell, watch(cell, number, len(wanted)))
        finally:
            reproduction = self.reproduction()
            if reproduction.finished:
                self.write(reproduction)
        return reproduction

    def _fill_cell(self, cell: TableCell, observer: Observer) -> None:
        kept = cell.read(self.cells_folder)
        if kept is None or (self.refresh and not kept.origin.is_of(self.code)):
            cache = self.recipe.cache(self.folder, observer)
            cell.measured(cache, self.cells_folder, self.code, self.cell_command)

    def reproduction(self) -> Reproduction:
        """All finished cells of the recipe, asked for now or before."""
        finished = [kept for cell in self.cells if (kept := cell.read(self.cells_folder)) is not None]
        return Reproduction(
            self.name,
            self.recipe,
            self.scale,
            self.table_command,
            finished,
            list(dict.fromkeys(key for cell in self.cells for key in cell.keys)),
            len(self.cells),
            self.code,
        )

    def write(self, reproduction: Reproduction) -> None:
        """cells.csv, table.md, the plot if there is one, and a page to look at."""
        pages = {**reproduction.files, FILE: reproduction_page(reproduction, describe()).html()}
        for name, text in pages.items():
            with staged(self.output / name) as path:
                path.write_text(text, encoding="utf-8")
