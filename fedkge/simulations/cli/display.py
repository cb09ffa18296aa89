"""Runs as they look while they run: round, loss, validation MRR, bytes, time left."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fedkge.server.progress import Observer
from fedkge.server.progress import Progress as RunProgress

if TYPE_CHECKING:
    from fedkge.simulations.report import page
    from fedkge.simulations.studies.cells import TableCell

__all__ = ["CellDisplay", "RunDisplay", "StepDisplay", "human_bytes", "print_table"]


_SECONDS = 5.0  # between two lines of a run in a pipe
_PATIENCE = 2.0  # seconds without a word


class RunDisplay:
    """Progress on stderr: a bar for each run that is tracked, or in a pipe a line now and then."""

    def __init__(self, quiet: bool = False) -> None:
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left at most"),
            TimeRemainingColumn(),
            console=Console(stderr=True, quiet=quiet),
            transient=True,
        )

    def track(self, title: str) -> Observer:
        """A bar for one more run; call what comes back with each step."""
        task = self.progress.add_task(title, total=None, state="setting up")
        loss = mrr = "…"
        last = -_SECONDS

        def step(now: RunProgress) -> None:
            nonlocal loss, mrr, last
            loss = loss if now.loss is None else f"{now.loss:.3f}"
            mrr = mrr if now.mrr is None else f"{now.mrr:.4f} (best {now.best_mrr:.4f})"
            scores = f"loss {loss}  valid MRR (own filter) {mrr}"
            state = f"round {now.round}/{now.rounds}  {scores}  {human_bytes(now.bytes)}"
            self.progress.update(task, completed=now.round, total=now.rounds, state=state)
            if now.round == now.rounds or monotonic() - last >= _SECONDS:
                last = monotonic()
                self._print_in_pipe(f"{title}  {state}")

        return step

    def _print_in_pipe(self, line: str) -> None:
        if not self.progress.console.is_terminal:
            self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.progress.stop()


class CellDisplay(RunDisplay):
    """One bar for the cells of a table, and below it one for the run of the cell that is being measured."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self.cells = self.progress.add_task("cells", total=None, state="")

    def show(self, cell: TableCell, number: int, count: int) -> Observer:
        """The next cell; the bar of the one before goes."""
        for task in self.progress.task_ids:
            if task != self.cells:
                self.progress.remove_task(task)
        self.progress.update(self.cells, completed=number, total=count, state=f"{number} of {count}")
        return self.track(cell.title)


class StepDisplay(RunDisplay):
    """One bar for steps that are counted."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        super().__init__(quiet)
        self.title = title
        self.steps = self.progress.add_task(title, total=None, state="setting up")
        self._next = monotonic() + _PATIENCE  # when a pipe is told

    def show(self, done: int, total: int, state: str) -> None:
        """So many are done; `state` says what goes on."""
        counted = f"{done} of {total}  {escape(state)}"
        self.progress.update(self.steps, completed=done, total=total, state=counted)
        if monotonic() >= self._next:
            self._next = monotonic() + _SECONDS
            self._print_in_pipe(f"{self.title}  {done} of {total}  {state}")


def print_table(table: page.PageTable) -> None:
    """A table of a report, in the terminal."""
    shown = Table(*table.columns, box=None)
    for row in table.rows:
        shown.add_row(*row)
    Console().print(shown)


def human_bytes(count: float) -> str:
    """A number of bytes in the unit that reads best."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
