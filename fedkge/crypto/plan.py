"""Which sums a federation makes over its roster, and how long each vector is.

Client and server each derive the sessions from their own plan; if the plans differ, so do the sessions, and
nothing is summed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.fixed_point import FixedPoint
from fedkge.crypto.roster import Roster
from fedkge.crypto.session import Session
from fedkge.errors import MessageError

__all__ = ["DIGEST_WORDS", "Plan", "SharedTable"]

DIGEST_WORDS = 8  # a SHA-256 as words: their sum tells equal runs apart, and no client's own digest


@dataclass(frozen=True, eq=False)
class SharedTable:
    """A table after the union: how many rows it has, and which of them enough clients hold."""

    num_rows: int
    width: int
    digest: bytes  # of the union's list
    shared: NDArray[np.int32] | None = None  # ascending; None until the holders are counted
    holders: NDArray[np.int32] | None = None  # of each shared row, as they were counted

    @property
    def num_words(self) -> int:
        return 0 if self.shared is None else len(self.shared) * self.width


@dataclass(frozen=True, eq=False)
class Plan:
    """What all parties must have in common before they sum anything."""

    roster: Roster
    run: str
    threshold: int
    clip: float
    signed: bool  # every sum has a consistency round
    tables: Mapping[str, SharedTable]
    scalars: Mapping[str, int]  # purpose of a sum -> how many words stand behind its rows

    def with_shared(
        self, shared: Mapping[str, NDArray[np.int32]], holders: Mapping[str, NDArray[np.int32]]
    ) -> Plan:
        tables = {
            name: replace(table, shared=shared[name], holders=holders[name])
            for name, table in self.tables.items()
        }
        return replace(self, tables=tables)

    def session(self, purpose: str, round: int | None, attempt: int) -> Session:
        """One sum; holder counts need every client, since another cohort's would reveal who is missing."""
        if purpose not in ("holders", *self.scalars) or (purpose == "holders") != (round is None):
            raise MessageError(f"there is no sum '{purpose}' of round {round}")
        everybody = purpose in ("holders", "test")
        return Session(
            self.roster,
            self.run,
            round,
            purpose,
            self._length(purpose),
            threshold=len(self.roster) if everybody else self.threshold,
            signed=self.signed,
            attempt=attempt,
            context=self._listings if purpose == "holders" else self._context,
        )

    def _length(self, purpose: str) -> int:
        if purpose == "holders":
            return sum(table.num_rows for table in self.tables.values())
        rows = sum(table.num_words for table in self.tables.values()) if purpose == "delta" else 0
        return rows + self.scalars[purpose]

    @cached_property
    def fixed_point(self) -> FixedPoint:
        return FixedPoint(self.clip, len(self.roster))

    @cached_property
    def _listings(self) -> bytes:
        state = hashlib.sha256(b"fedkge listings")
        for name, table in sorted(self.tables.items()):
            state.update(name.encode() + b"\0" + table.digest)
        return state.digest()

    @cached_property
    def _context(self) -> bytes:
        state = hashlib.sha256(b"fedkge plan" + self._listings + repr(float(self.clip)).encode())
        for name, table in sorted(self.tables.items()):
            if table.shared is None or table.holders is None:
                raise MessageError(f"the holders of the {name} table are not counted yet")
            state.update(f"{name} {table.width} {len(table.shared)}\0".encode())
            state.update(np.ascontiguousarray(table.shared, dtype="<i4").tobytes())
            state.update(np.ascontiguousarray(table.holders, dtype="<i4").tobytes())
        return state.digest()
