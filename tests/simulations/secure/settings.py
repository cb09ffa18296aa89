"""Experiments with and without protection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedkge.client.journal_file import JournalFile
from fedkge.experiment import Experiment
from fedkge.simulations.runs import engines

Make = Callable[..., Experiment]
Carried = list[tuple[engines.Envelope, bytes | None]]
PLAIN = ("privacy.union=plain", "privacy.secure_aggregation=false")
FIVE = "data.clients=5"


def forget_journals(folder: Path) -> None:
    """A run's clients lose their memory, and nothing tells them."""
    for keys in folder.glob("clients/keys-*"):
        (keys / "journal.mark").unlink()
        JournalFile.create(keys)
