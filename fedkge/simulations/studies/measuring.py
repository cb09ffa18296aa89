"""Measuring a published table again: cell by cell, each kept at once, and written down whenever it stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedkge.errors import SettingError, UnknownNameError
from fedkge.server.progress import Observer
from fedkge.simulations.report import FILE
from fedkge.simulations.runs.environment import describe
from fedkge.simulations.studies import RECIPES, Recipe, Scale
from fedkge.simulations.studies.cells import StudyCache, TableCell
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
        seeds = [] if self.seeds is None else ["--seeds", str(self.seeds)]
        only = [part for wish in self.only for part in ("--only", wish)]
        words = ["fedkge", "reproduce", self.name, "--scale", self.scale, *seeds, *only]
        return " ".join([*words, "--out", str(self.folder)])

    def fill(self, watch: Watch) -> Reproduction:
        """Measure what is missing; whatever stops it, the finished cells are on disk and in the table."""
        wanted = self.wanted
        try:
            for number, cell in enumerate(wanted):
                cell.rows(StudyCache(self.folder, watch(cell, number, len(wanted))), self.cells_folder)
        finally:
            reproduction = self.reproduction()
            if reproduction.finished:
                self.write(reproduction)
        return reproduction

    def reproduction(self) -> Reproduction:
        """All finished cells of the recipe, asked for now or before."""
        finished = [rows for cell in self.cells if (rows := cell.kept(self.cells_folder)) is not None]
        return Reproduction(
            self.name,
            self.recipe,
            self.scale,
            self.command,
            [row for rows in finished for row in rows],
            list(dict.fromkeys(key for cell in self.cells for key in cell.keys)),
            len(finished),
            len(self.cells),
        )

    def write(self, reproduction: Reproduction) -> None:
        """cells.csv, table.md, the plot if there is one, and a page to look at."""
        environment = describe()
        day, commit = environment["started"][:10], environment["commit"] or "unknown"
        made = f"{day}, fedkge {environment['fedkge']}, commit {commit}."
        with staged(self.output / "cells.csv") as path:
            reproduction.frame.to_csv(path, index=False)
        with staged(self.output / "table.md") as path:
            path.write_text(reproduction.markdown(made), encoding="utf-8")
        if reproduction.drawing:
            with staged(self.output / "plot.svg") as path:
                path.write_text(reproduction.drawing, encoding="utf-8")
        with staged(self.output / FILE) as path:
            path.write_text(reproduction_page(reproduction, environment).html(), encoding="utf-8")
