"""What the server received and what it made of it, kept for whoever asks what a curious server learns.

Tables hold offsets of shared rows from their initial rows, and uploads hold steps: a client's row after a
round is its initial row + the offset before that round + its step.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedkge.crypto.union.listing import NameListing
from fedkge.errors import InputError
from fedkge.exchange import Table, Upload, decode
from fedkge.storage import staged

__all__ = ["Recording", "Transcript"]

_PARTS = ("ids", "rows")
_KEPT = {"query.join": "join", "train": "train"}  # the answers that say something about a client's graph


class Transcript:
    """Writes the very bytes of the clients' answers, with the server's own tables beside them.

    Of the rounds it keeps the last or every one; a run can end only after a round that is evaluated.
    """

    def __init__(self, folder: Path, record: str) -> None:
        self.folder = folder
        self.record = record
        self._heard: dict[str, dict[int, bytes]] = {}

    @property
    def on(self) -> bool:
        return self.record != "off"

    def hear(self, kind: str, client: int, raw: bytes) -> None:
        """Keep an answer until its step is settled."""
        if self.on and kind in _KEPT:
            self._heard.setdefault(_KEPT[kind], {})[client] = raw

    def settle_union(self, counts: Mapping[str, NDArray[Any]]) -> None:
        """The shared tables are laid out: how clients joined, and the holders of each row if counted."""
        if not self.on:
            return
        with staged(self.folder / "union") as place:
            place.mkdir()
            save_file({"empty": np.zeros(0), **counts}, place / "holders.safetensors")
            self._write("join", place)

    def settle_round(
        self, round: int, before: Mapping[str, Table], after: Mapping[str, Table], may_end: bool
    ) -> None:
        """The server's tables as broadcast for a round and as they are after it, and the clients' answers."""
        if not self.on or not (may_end or self.record == "every"):
            self._heard.pop("train", None)  # who is absent next time must not appear with this
            return
        with staged(self.folder / f"round-{round:06}") as place:
            place.mkdir()
            for name, tables in (("before", before), ("tables", after)):
                arrays = {
                    f"{kind}.{part}": getattr(table, part)
                    for kind, table in tables.items()
                    for part in _PARTS
                }
                save_file({"empty": np.zeros(0), **arrays}, place / f"{name}.safetensors")
            self._write("train", place)
        if self.record == "last":
            for old in self.folder.glob("round-*"):
                if old.name != f"round-{round:06}":
                    shutil.rmtree(old)

    def forget_after(self, round: int) -> None:
        """A run goes on from here: what came later never happened."""
        for path in self.folder.glob("round-*"):
            if int(path.name.removeprefix("round-")) > round:
                shutil.rmtree(path)

    def _write(self, step: str, place: Path) -> None:
        for client, raw in self._heard.pop(step, {}).items():
            (place / f"client-{client}.bin").write_bytes(raw)


class Recording:
    """A transcript, read back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "union").is_dir() or not self.rounds:
            raise InputError(
                f"{folder.parent}: this run recorded no view; run it again with "
                '--set adversary.record=last ("every" to keep all rounds)'
            )

    @property
    def rounds(self) -> list[int]:
        return sorted(int(path.name.removeprefix("round-")) for path in self.folder.glob("round-*"))

    def union(self, name: str) -> NameListing | None:
        """The labels of a table by row, if the clients said them in the clear."""
        told = [upload.metadata.get("labels", {}).get(name) for upload in self.joined.values()]
        return None if None in told else NameListing(()).append(label for labels in told for label in labels)

    @property
    def holders(self) -> dict[str, NDArray[Any]]:
        """How many clients hold each row of a table, where the server learned no more than that."""
        counts = load_file(self.folder / "union" / "holders.safetensors")
        return {name: array for name, array in counts.items() if name != "empty"}

    @cached_property
    def joined(self) -> dict[int, Upload]:
        return self._uploads(self.folder / "union")

    def uploads(self, round: int) -> dict[int, Upload]:
        """The clients' answers in a round: steps in the open, or masked vectors."""
        return self._uploads(self._place(round))

    def before(self, round: int) -> dict[str, Table]:
        """The offsets that clients were sent for a round."""
        return self._tables(self._place(round) / "before.safetensors")

    def tables(self, round: int) -> dict[str, Table]:
        """The offsets after a round."""
        return self._tables(self._place(round) / "tables.safetensors")

    def _tables(self, path: Path) -> dict[str, Table]:
        arrays = load_file(path)
        names = sorted(key.removesuffix(".ids") for key in arrays if key.endswith(".ids"))
        return {name: Table(arrays[f"{name}.ids"], arrays[f"{name}.rows"]) for name in names}

    def _place(self, round: int) -> Path:
        return self.folder / f"round-{round:06}"

    def _uploads(self, place: Path) -> dict[int, Upload]:
        files = {int(path.stem.removeprefix("client-")): path for path in place.glob("client-*.bin")}
        return {client: decode(files[client].read_bytes(), Upload) for client in sorted(files)}
