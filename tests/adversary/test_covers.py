"""How many honest clients hide each other in a row, dropouts and claims included (findings 7 and 8)."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.secure import SecureParticipant
from fedkge.covers import KEY_SIZE, check_claimed, thin_rows
from fedkge.crypto import SharedTable
from fedkge.datasets import load_graph
from fedkge.errors import FederationError, RefusedError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import Experiment, PrivacySettings
from fedkge.metrics import TRAINING
from fedkge.server.sums import SecureSums
from fedkge.server.sums.sessions import Total
from fedkge.simulations.runs import run as runs
from tests.simulations.conftest import SMALLEST, TINY
from tests.simulations.mishaps import failing, failures
from tests.simulations.secure.settings import FIVE, Make

WORDS = slice(0, -TRAINING.num_words)
SPARSE = "data.dataset=synthetic:entities=150,relations=4,triples=160"


@pytest.fixture
def small() -> Make:
    """Five clients of a graph of forty entities, all of them shared."""
    return lambda *changes: Experiment().override(
        [*TINY, FIVE, SMALLEST, "federation.strategy=FedE", *changes]
    )


def holders_of(folder: Path, clients: int = 5) -> Counter[str]:
    graphs = [load_graph(folder / "data" / f"client-{number}") for number in range(clients)]
    return Counter(label for graph in graphs for label in graph.entity_labels)


@pytest.mark.parametrize("colluders", [0, 1, 2, 3])
@pytest.mark.parametrize("min_holders", [2, 3, 5])
@pytest.mark.parametrize("clients", [5, 9, 20])
def test_no_dropouts_and_colluders_leave_a_row_with_one_honest_holder(
    clients: int, min_holders: int, colluders: int
) -> None:
    """Everything a sum allows is searched: which holders drop out, and which of the others collude."""
    privacy = PrivacySettings(min_holders=min_holders, colluders=colluders)
    quorum = privacy.quorum(clients)
    assert 2 * quorum > clients + colluders
    if privacy.holders > clients:
        return
    for holders in range(privacy.holders, clients + 1):
        thin = bool(thin_rows(np.array([holders], dtype=np.int32), privacy, clients)[0])
        needed = privacy.cover_quorum(clients) if thin else quorum
        dropouts = clients - max(needed, quorum)
        assert min(holders - min(dropouts, holders) - colluders, holders) >= 2


def test_three_clients_may_take_part_and_share_what_all_of_them_hold() -> None:
    privacy = PrivacySettings()
    assert (privacy.colluders, privacy.holders, privacy.quorum(3)) == (1, 3, 3)


def test_the_summary_says_which_share_of_the_rows_has_which_cover(small: Make, tmp_path: Path) -> None:
    result = runs.run(small("federation.rounds=1", "privacy.colluders=2"), tmp_path / "run")
    held = [number for number in holders_of(tmp_path / "run").values() if number >= 4]
    shares = {str(number - 2): share / len(held) for number, share in sorted(Counter(held).items())}
    privacy = result.summary["privacy"]
    assert privacy["covers"] == pytest.approx(shares)
    assert privacy["rounds_held_back"] == 0
    text = "; ".join(privacy["what_the_server_learned"])
    assert "covers: honest holders behind a shared row, if 2 clients collude with the server: 2 for " in text
    assert "counts are claimed, not proved" in text


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], np.ndarray]:
    """The vector of each client and round, before anything hides it."""
    vectors: dict[tuple[int, int], np.ndarray] = {}
    write = SecureParticipant._write_delta

    def writing(self: SecureParticipant, words: Any) -> None:
        write(self, words)
        vectors[self.client, self.round] = words.copy()

    monkeypatch.setattr(SecureParticipant, "_write_delta", writing)
    return vectors


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Total, np.ndarray, SecureSums]]:
    """What the server has of each round, as it was unmasked and after it made all it could of it."""
    seen: list[tuple[Total, np.ndarray, SecureSums]] = []
    means = SecureSums._means

    def recorded(self: SecureSums, total: Total, tables: Any) -> Any:
        raw = total.words.copy()
        outcome = means(self, total, tables)
        seen.append((total, raw, self))
        return outcome

    monkeypatch.setattr(SecureSums, "_means", recorded)
    return seen


def thin_of(sums: SecureSums) -> tuple[np.ndarray, np.ndarray]:
    """(words,) the holders of the row that each word of a step belongs to, and whether it is thin."""
    (table,) = sums.sessions.plan.tables.values()
    assert table.holders is not None
    thin = thin_rows(table.holders, sums.options, len(sums.roster))
    return np.repeat(table.holders, table.width), np.repeat(thin, table.width)


def test_a_dropout_holds_back_the_rows_that_it_would_lay_bare(
    small: Make,
    tmp_path: Path,
    sent: dict[tuple[int, int], np.ndarray],
    totals: list[tuple[Total, np.ndarray, SecureSums]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, "train", {4}, {2})
    result = runs.run(small("federation.rounds=3", "federation.evaluate_every=3"), tmp_path / "run")
    (_, _, sums), (total, raw, _), _ = totals
    holders, thin = thin_of(sums)
    assert set(holders[thin]) == {3}
    assert set(holders[~thin]) == {4, 5}
    assert total.survivors == (0, 1, 2, 3)
    true = np.sum([sent[client, 2] for client in total.survivors], axis=0, dtype=np.uint32)[WORDS]
    assert np.array_equal(total.words[WORDS][~thin], true[~thin])
    assert not total.words[WORDS][thin].any()  # not applied …
    assert (raw[WORDS][thin] != true[thin]).mean() > 0.99  # … nor known to the server
    assert total.veils == {}
    assert result.summary["privacy"]["rounds_held_back"] == 1
    assert {client for _, _, client, _ in failures(tmp_path / "run")} == {4}


def test_steps_that_were_held_back_travel_with_the_next(
    small: Make,
    tmp_path: Path,
    sent: dict[tuple[int, int], np.ndarray],
    totals: list[tuple[Total, np.ndarray, SecureSums]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With nothing left to learn in round 3, what clients send then is what was held back of round 2."""
    train = SecureParticipant._train

    def idle(self: SecureParticipant, round: int) -> None:
        if round < 3:
            train(self, round)
        self.round = round

    monkeypatch.setattr(SecureParticipant, "_train", idle)
    failing(monkeypatch, "train", {4}, {2})
    runs.run(small("federation.rounds=3", "federation.evaluate_every=3"), tmp_path / "run")
    _, thin = thin_of(totals[0][2])
    for client in range(4):
        before, after = (sent[client, round][WORDS].view(np.int32) for round in (2, 3))
        assert np.abs(before[thin]).max() > 1000
        np.testing.assert_allclose(after[thin], before[thin], atol=200)  # rounded to float32 on the way
        assert np.abs(after[~thin]).max() <= 200


def test_a_server_that_lists_a_dropout_as_present_gets_no_key_of_the_veil(
    small: Make,
    tmp_path: Path,
    totals: list[tuple[Total, np.ndarray, SecureSums]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys leave a client together with its shares only, for the survivors that it unmasks."""
    left: list[tuple[int, bool, int]] = []
    unmask = SecureParticipant.unmask

    def watched(self: SecureParticipant, download: Download) -> Upload:
        upload = unmask(self, download)
        purpose = download.metadata["sum"]["purpose"]
        if purpose == "delta":
            left.append((download.round, "veil" in upload.protocol, len(upload.protocol.get("veil", b""))))
        return upload

    monkeypatch.setattr(SecureParticipant, "unmask", watched)
    failing(monkeypatch, "train", {4}, {2})
    runs.run(small("federation.rounds=2"), tmp_path / "run")
    assert left == [(1, True, KEY_SIZE)] * 5 + [(2, False, 0)] * 4


def test_a_client_shares_no_row_with_fewer_claimed_holders_than_it_needs() -> None:
    table, privacy = SharedTable(9, 2, bytes(32)), PrivacySettings(colluders=2)
    ids = np.array([1, 4], dtype=np.int32)
    check_claimed("entity", table, ids, np.array([4, 5], dtype=np.int32), privacy, 5)
    for false_ids, holders in itertools.chain(
        [(ids, np.array(claimed)) for claimed in ([3, 5], [4, 6], [0, 4], [-1, 5])],
        [(np.array(rows), np.array([5, 5])) for rows in ([4, 1], [1, 1], [1, 9])],
        [(ids, None)],
    ):
        with pytest.raises(RefusedError):
            check_claimed("entity", table, false_ids, holders, privacy, 5)


def test_a_server_that_shares_rows_of_too_few_is_refused_by_clients(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 8 as a server would try it: settings that it was told, and a list that does not keep them."""
    count = SecureSums._count

    def sharing(self: SecureSums, *arguments: Any) -> Any:
        tables = count(self, *arguments)
        rows = {name: np.flatnonzero(held >= 2).astype(np.int32) for name, held in self.counts.items()}
        holders = {name: self.counts[name][ids].astype(np.int32) for name, ids in rows.items()}
        assert any((held == 2).any() for held in holders.values())
        self.sessions.plan = self.sessions.plan.with_shared(rows, holders)
        width = {name: table.rows.shape[1] for name, table in tables.items()}
        return {name: Table(ids, np.zeros((len(ids), width[name]), np.float32)) for name, ids in rows.items()}

    monkeypatch.setattr(SecureSums, "_count", sharing)
    with pytest.raises(FederationError, match=r"every client|answered"):
        runs.run(small("federation.rounds=1", SPARSE), tmp_path / "run")
    assert "this client shares those that 3 to 5 hold" in str(failures(tmp_path / "run"))


def test_attack_that_still_succeeds_a_client_that_claims_rows_of_others_lays_them_bare(
    small: Make,
    tmp_path: Path,
    sent: dict[tuple[int, int], np.ndarray],
    totals: list[tuple[Total, np.ndarray, SecureSums]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding 7 stands: counts are claimed, so that one malicious client shares what one honest client holds.

    The day when counts are proved, this test fails, and the documents may promise more.
    """
    count = SecureParticipant._masked

    def claiming(self: SecureParticipant, download: Download, purpose: str, words: Any, *more: Any) -> Any:
        if purpose == "holders" and self.client == 0:
            words = words + np.where(words == 0, 2, 0).astype(np.uint32)  # rows it does not hold
        return count(self, download, purpose, words, *more)

    monkeypatch.setattr(SecureParticipant, "_masked", claiming)
    runs.run(small("federation.rounds=1", SPARSE, "data.clients=9"), tmp_path / "run")
    total, _, sums = totals[0]
    (table,) = sums.sessions.plan.tables.values()
    held = holders_of(tmp_path / "run", clients=9)
    single = sum(number == 1 for number in held.values())
    assert single > 0
    assert len(table.shared) > sum(number >= 3 for number in held.values())
    bare = 0
    steps = {client: sent[client, 1][WORDS].reshape(-1, table.width) for client in range(1, 9)}
    for row, moved in enumerate(total.words[WORDS].reshape(-1, table.width)):
        bare += any(moved.any() and np.array_equal(moved, step[row]) for step in steps.values())
    assert bare >= 1


def test_more_holders_than_clients_are_refused(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What limits the claims of one client: nobody can be counted twice beyond the roster."""
    count = SecureParticipant._masked

    def claiming(self: SecureParticipant, download: Download, purpose: str, words: Any, *more: Any) -> Any:
        if purpose == "holders" and self.client == 0:
            words = words + np.uint32(5)
        return count(self, download, purpose, words, *more)

    monkeypatch.setattr(SecureParticipant, "_masked", claiming)
    with pytest.raises(Exception, match="one of them counted falsely"):
        runs.run(small("federation.rounds=1"), tmp_path / "run")
