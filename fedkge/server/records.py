"""What a run leaves on disk while it runs: tidy CSVs, failures, and checkpoints that are whole or absent."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedkge.datasets.formats.text import write_labels
from fedkge.errors import DataError
from fedkge.storage import staged, storage_errors

__all__ = ["Records"]

_FILES = {
    "metrics": ("round", "client", "split", "metric", "value"),
    "messages": ("round", "phase", "client", "direction", "bytes"),
    "failures": ("round", "phase", "client", "reason"),
}
_REPEATED = ("metrics", "messages")  # a resumed run writes anew what came after its checkpoint


class Records:
    """A run folder as the server writes it, and the command that goes on with it; empty if none can."""

    def __init__(self, folder: Path, resume_command: str | None = None) -> None:
        self.folder = folder
        self.resume_command = f"fedkge run --resume {folder}" if resume_command is None else resume_command
        with storage_errors(folder):
            (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
            for name, columns in _FILES.items():
                path = self._path(name)
                if not path.exists():
                    self._write(path, [columns])

    @property
    def remedy(self) -> str:
        """What to tell whoever reads that the run stopped."""
        if not self.resume_command:
            return "An adversary acts in it, so that it cannot be resumed: run it again"
        return f"What was settled is kept; go on with: {self.resume_command}"

    def add(self, name: str, rows: Iterable[Sequence[object]]) -> None:
        """Append rows; each call leaves the file complete."""
        with storage_errors(self.folder), self._path(name).open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)

    def save_checkpoint(self, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> None:
        """Tables and metadata of one moment, with the lengths that the CSVs had then."""
        lengths = {name: self._path(name).stat().st_size for name in _REPEATED}
        with storage_errors(self.folder):
            tables = f"tables-{metadata['round']}.safetensors"
            with staged(self.folder / "checkpoint" / tables, durable=True) as path:
                save_file(dict(arrays), path)
            with staged(self.folder / "checkpoint" / "server.json", durable=True) as path:
                path.write_text(
                    json.dumps({**metadata, "tables": tables, "lengths": lengths}), encoding="utf-8"
                )
            for old in (self.folder / "checkpoint").glob("tables-*.safetensors"):
                if old.name != tables:
                    old.unlink()

    def load_checkpoint(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """The last checkpoint; metrics and messages are cut back to what they were then."""
        path = self.folder / "checkpoint" / "server.json"
        if not path.exists():
            return None
        try:
            metadata = json.loads(path.read_text(encoding="utf-8"))
            arrays = load_file(self.folder / "checkpoint" / metadata.pop("tables"))
        except Exception as error:  # a damaged file of either format
            raise DataError(
                f"{path.parent}: the checkpoint cannot be read ({error}); start the run anew"
            ) from error
        for name, length in metadata.pop("lengths").items():
            os.truncate(self._path(name), length)
        return arrays, metadata

    def count_start(self) -> int:
        """How often this run was begun or resumed, this time included."""
        path = self.folder / "checkpoint" / "starts"
        count = int(path.read_text(encoding="utf-8")) + 1 if path.exists() else 1
        with staged(path, durable=True) as partial:
            partial.write_text(f"{count}\n", encoding="utf-8")
        return count

    def restart(self) -> None:
        """Forget a run that never reached a checkpoint."""
        for name in _REPEATED:
            self._write(self._path(name), [_FILES[name]])

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        with staged(self.folder / name) as path:
            path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def write_tables(
        self, name: str, arrays: Mapping[str, NDArray[np.float32]], labels: Mapping[str, Sequence[str]]
    ) -> None:
        """Embeddings with a label for every row."""
        folder = self.folder / "embeddings"
        for table, own in labels.items():
            with staged(folder / f"{name}-{table}.tsv") as path:
                write_labels(path, own)
        with staged(folder / f"{name}.safetensors") as path:  # last: where it is, its labels are
            save_file(dict(arrays), path)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.csv"

    def _write(self, path: Path, rows: Iterable[Sequence[object]]) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
