"""One malicious client of five sends rubbish at every stage: it is put out, and not the run (finding 10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from fedkge.experiment import Experiment
from fedkge.metrics import TRAINING
from fedkge.server.sums import SecureSums
from fedkge.server.sums.sessions import Total
from fedkge.simulations.runs import run as runs
from tests.simulations.conftest import SMALLEST, TINY
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


@pytest.fixture
def small() -> Make:
    """Five clients of a graph of forty entities, all of them shared."""
    return lambda *changes: Experiment().override(
        [*TINY, FIVE, SMALLEST, "federation.strategy=FedE", *changes]
    )


def spoil(patch: pytest.MonkeyPatch, verb: str, name: str, damages: Mapping[int, Damage]) -> None:
    """Let the culprit damage its protocol messages of this name, in some rounds, when it is asked this."""
    answer = getattr(SecureParticipant, verb)

    def false(self: SecureParticipant, download: Download) -> Upload:
        upload = answer(self, download)
        if self.client != CULPRIT or download.round not in damages or name not in upload.protocol:
            return upload
        message = damages[download.round](upload.protocol[name])
        return replace(upload, protocol={**upload.protocol, name: message})

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


@pytest.mark.parametrize(
    ("verb", "name", "unseen"),
    [
        ("train", "advert", ()),
        ("advertise", "advert", ()),
        ("share", "shares", ("one bit",)),  # the victim says so, and drops out
        ("train", "masked", ("one bit",)),  # a vector is its sender's to choose
        ("unmask", "reveal", ()),
        ("unmask", "shares", ("one bit",)),
    ],
)
def test_rubbish_in_a_round_puts_out_who_sent_it(
    verb: str,
    name: str,
    unseen: tuple[str, ...],
    small: Make,
    tmp_path: Path,
    checked: list[Total],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damages = dict(enumerate(DAMAGES.values(), start=1))
    spoil(monkeypatch, verb, name, damages)
    if verb in ("advertise", "share"):  # asked only where a sum was not prepared in the round before
        spoil(monkeypatch, "train", "advert", dict.fromkeys(range(9), DAMAGES["cut"]))
    rounds = len(damages) + 1  # the last one is clean, as the final test has to be
    runs.run(small(f"federation.rounds={rounds}", f"federation.evaluate_every={rounds}"), tmp_path / "run")
    assert len(checked) == rounds  # every round has a sum, and it is that of its survivors
    blamed = {int(round) for round, _, client, _ in failures(tmp_path / "run") if str(client) == str(CULPRIT)}
    missed = [kind for round, kind in enumerate(DAMAGES, start=1) if round not in blamed]
    assert set(missed) <= set(unseen)


def test_envelopes_that_do_not_open_put_out_who_sealed_them(
    small: Make, tmp_path: Path, checked: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    def for_two(message: bytes) -> bytes:
        """Change the last byte of the envelopes for clients 0 and 1: neither can mask then."""
        start, changed = HEADER_SIZE + 32 + 2, bytearray(message)
        for envelope in (1, 2):
            changed[start + envelope * ENVELOPE_SIZE - 1] ^= 1
        return bytes(changed)

    spoil(monkeypatch, "unmask", "shares", {1: for_two})  # for the sum of round 2
    spoil(monkeypatch, "share", "shares", {2: for_two})
    runs.run(small("federation.rounds=3", "federation.evaluate_every=3"), tmp_path / "run")
    assert [total.survivors for total in checked] == [(0, 1, 2, 3, 4), (0, 1, 3, 4), (0, 1, 2, 3, 4)]
    assert {client for _, _, client, why in failures(tmp_path / "run") if "does not open" in why} == {0, 1}


def test_a_sum_of_too_few_true_shares_is_lost_and_the_run_goes_on(
    small: Make, tmp_path: Path, checked: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of five lie where one may: nothing can be rebuilt, and round 2 must not be unmasked for others."""
    answer = SecureParticipant.unmask

    def false(self: SecureParticipant, download: Download) -> Upload:
        upload = answer(self, download)
        if self.client not in (1, 3) or download.round != 2:
            return upload
        reveal = DAMAGES["one bit"](upload.protocol["reveal"])
        return replace(upload, protocol={**upload.protocol, "reveal": reveal})

    monkeypatch.setattr(SecureParticipant, "unmask", false)
    runs.run(small("federation.rounds=4", "federation.evaluate_every=4"), tmp_path / "run")
    assert len(checked) == 3
    assert [round for round, _, client, _ in failures(tmp_path / "run") if client == "all"] == [2]


@pytest.mark.parametrize(
    ("mode", "damage"),
    [("private", "noise"), ("private", "one bit"), ("hashed", "cut"), ("plain", "noise"), ("oprf", "cut")],
)
def test_rubbish_in_a_union_names_who_sent_it(
    mode: str, damage: str, small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps in turn; a union needs everybody, so that the run may end, with a clear error."""
    unite = SecureParticipant._unite
    asked = {"now": 0, "spoilt": 0}

    def false(self: SecureParticipant, requests: Mapping[str, bytes], *more: Any) -> dict[str, bytes]:
        replies = dict(unite(self, requests, *more))
        if self.client == CULPRIT and replies:
            if asked["now"] == asked["spoilt"]:
                replies = {name: DAMAGES[damage](reply) for name, reply in replies.items()}
            asked["now"] += 1
        return replies

    monkeypatch.setattr(SecureParticipant, "_unite", false)
    options = (f"privacy.union={mode}", "privacy.query_budget=64", "federation.rounds=1")
    while asked["now"] >= asked["spoilt"]:  # until there is no such step
        folder = tmp_path / f"step-{asked['spoilt']}"
        asked["now"] = 0
        ended = ""
        try:
            runs.run(small(*options), folder)
        except FederationError as error:
            ended = str(error)
        assert not ended or "set-up needs every client" in ended
        if asked["now"] > asked["spoilt"] and (folder / "failures.csv").exists():
            named = {str(client) for _, _, client, _ in failures(folder)}
            assert named or damage == "one bit"
        asked["spoilt"] += 1
    assert asked["spoilt"] > {"private": 3, "hashed": 2, "plain": 0, "oprf": 4}[mode]
