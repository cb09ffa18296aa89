"""A session: one vector of one round, summed once over one roster."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fedkge.crypto.rings import WORD32, Ring
from fedkge.crypto.roster import MIN_CLIENTS, Roster, default_threshold
from fedkge.errors import SettingError

__all__ = ["Session"]


@dataclass(frozen=True)
class Session:
    """What all parties must agree on before they start; every message carries the digest of all of it.

    `round` is None for what may be summed once per roster, such as holder counts. `attempt` numbers
    repetitions after too many dropouts. `context` binds anything else that the parties should have in
    common, such as the union's digest.
    """

    roster: Roster
    run: str
    round: int | None
    purpose: str
    length: int
    ring: Ring = field(default=WORD32)
    threshold: int = 0  # 0 stands for ⌊2n/3⌋ + 1
    signed: bool = False
    attempt: int = 0
    context: bytes = b""

    def __post_init__(self) -> None:
        n = len(self.roster)
        if self.threshold == 0:
            object.__setattr__(self, "threshold", default_threshold(n))
        lowest = max(MIN_CLIENTS, n // 2 + 1)
        if not lowest <= self.threshold <= n:
            raise SettingError(
                f"threshold {self.threshold} of {n} clients: choose {lowest} to {n}; two quorums must "
                "overlap, a sum must cover three clients, and no more than all can answer"
            )
        if self.length < 0 or self.attempt < 0 or (self.round is not None and self.round < 0):
            raise SettingError("length, round and attempt of a session count from 0")

    @property
    def num_clients(self) -> int:
        return len(self.roster)

    def needs_consent(self, opened: Sequence[int], survivors: Sequence[int]) -> bool:
        """Whether clients sign the survivors before they unmask: always, or where lists could differ.

        If nobody dropped out after the shares were delivered, there is one list to show. With t ≥ n − 1,
        no choice of lists unmasks fewer than t clients (docs/protocols.md has the proof).
        """
        return self.signed or (self.threshold < self.num_clients - 1 and tuple(opened) != tuple(survivors))

    @cached_property
    def label(self) -> bytes:
        """What is summed, whatever the attempt: it may be revealed for one set of survivors only."""
        return _digest(b"label", self.run, self.round, self.purpose, self.roster.digest.hex())

    @cached_property
    def id(self) -> bytes:
        """The digest that binds every key, signature and message to this session."""
        shape = (self.length, self.ring.code, self.threshold, self.signed, self.attempt)
        return _digest(b"session", self.label.hex(), *shape, self.context.hex())


def _digest(domain: bytes, *parts: object) -> bytes:
    state = hashlib.sha256(b"fedkge " + domain)
    for part in parts:
        text = repr(part).encode()
        state.update(len(text).to_bytes(8, "little") + text)
    return state.digest()
