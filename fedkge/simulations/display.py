"""A run as it looks while it runs: round, loss, validation MRR, bytes, time left."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedkge.server.progress import Progress as RunProgress

__all__ = ["RunDisplay", "human_bytes"]


class RunDisplay:
    """A progress bar on stderr; call it with each step of the run."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left at most"),
            TimeRemainingColumn(),
            console=Console(stderr=True, quiet=quiet),
            transient=True,
        )
        self.title = title
        self.task: TaskID | None = None
        self.loss = self.mrr = "…"

    def __call__(self, now: RunProgress) -> None:
        if self.task is None:
            self.task = self.progress.add_task(self.title, total=now.rounds, state="")
        self.loss = self.loss if now.loss is None else f"{now.loss:.3f}"
        self.mrr = self.mrr if now.mrr is None else f"{now.mrr:.4f} (best {now.best_mrr:.4f})"
        state = f"loss {self.loss}  valid MRR {self.mrr}  {human_bytes(now.bytes)}"
        self.progress.update(self.task, completed=now.round, state=state)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.progress.stop()


def human_bytes(count: float) -> str:
    """A number of bytes in the unit that reads best."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
