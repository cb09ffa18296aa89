"""One malicious client of five sends rubbish at every stage: it is put out, and not the run (finding 10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.secure import SecureParticipant
from fedkge.covers import thin_words
from fedkge.crypto.aggregation.client import ENVELOPE_SIZE
from fedkge.crypto.wire import HEADER_SIZE
from fedkge.errors import FederationError
from fedkge.exchange import Download, Upload
from fedkge.metrics import TRAINING
from fedkge.server.sums import SecureSums
from fedkge.server.sums.sessions import Total
from fedkge.simulations.runs import run as runs
from tests.simulations.conftest import TINY, secret  # noqa: F401
from tests.simulations.mishaps import failures
from tests.simulations.secure.settings import FIVE, Make

CULPRIT = 2
Damage = Callable[[bytes], bytes]

DAMAGES: dict[str, Damage] = {
    "nothing": lambda message: b"",
    "noise": lambda message: np.random.default_rng(0).bytes(len(message)),
    "cut": lambda message: message[:-5],
    "longer": lambda message: message + b"\0" * 9,
    "another kind": lambda message: message[:5] + bytes([99]) + message[6:],
    "another sender": lambda message: message[:6] + b"\1\0" + message[8:],
    "ones": lambda message: message[:HEADER_SIZE] + b"\xff" * (len(message) - HEADER_SIZE),
    "one bit": lambda message: message[:-2] + bytes([message[-2] ^ 1]) + message[-1:],
}


def spoil(
    patch: pytest.MonkeyPatch, verb: str, name: str, damage: Damage, rounds: tuple[int, ...]
) -> None:
    """Let the culprit damage its protocol messages of this name, whenever it is asked this in these rounds."""
    answer = getattr(SecureParticipant, verb)

    def false(self: SecureParticipant, download: Download) -> Upload:
        upload = answer(self, download)
        if self.client != CULPRIT or download.round not in rounds or name not in upload.protocol:
            return upload
        return replace(upload, protocol={**upload.protocol, name: damage(upload.protocol[name])})

    patch.setattr(SecureParticipant, verb, false)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[Total]:
    """All sums of steps, each compared with what its survivors had put into it."""
    sent: dict[tuple[int, int], np.ndarray] = {}
    sums: list[Total] = []
    write, means = SecureParticipant._write_delta, SecureSums._means

    def writing(self: SecureParticipant, words: Any) -> None:
        write(self, words)
        sent[self.client, self.round] = words.copy()

    def adding(self: SecureSums, total: Total, tables: Any) -> Any:
        outcome = means(self, total, tables)
        round = max(round for _, round in sent)
        expected = np.sum([sent[client, round] for client in total.survivors], axis=0, dtype=np.uint32)
        thin = thin_words(self.sessions.plan.tables, self.options, len(self.roster))
        if len(total.survivors) < self.options.cover_quorum(len(self.roster)):
            expected[thin] = 0
        rows = slice(0, -TRAINING.num_words)
        if not (set(total.veils) < set(total.survivors) and not total.words[thin].any()):
            assert np.array_equal(total.words[rows], expected[rows])
        sums.append(total)
        return outcome

    monkeypatch.setattr(SecureParticipant, "_write_delta", writing)
    monkeypatch.setattr(SecureSums, "_means", adding)
    return sums


def blamed(folder: Path) -> set[str]:
    return {str(client) for _, _, client, _ in failures(folder)}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("verb", "name"),
    [("train", "masked"), ("train", "advert"), ("unmask", "reveal"), ("unmask", "shares")],
)
def test_rubbish_in_a_round_puts_out_who_sent_it(
    verb: str,
    name: str,
    damage: str,
    secret: Make,  # noqa: F811
    tmp_path: Path,
    checked: list[Total],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(monkeypatch, verb, name, DAMAGES[damage], (2, 3))
    result = runs.run(secret(FIVE), tmp_path / "run")
    assert result.summary["communication"]["rounds"] == 4
    assert len(checked) == 4  # every round has a sum, and it is that of its survivors
    damaged_values = damage in ("one bit", "ones") and name in ("shares", "masked")
    if not (damaged_values or (damage == "longer" and name == "shares")):
        assert str(CULPRIT) in blamed(tmp_path / "run")
