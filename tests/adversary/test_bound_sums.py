"""Issue 16, findings 2 and 3: a server that tells clients different things, or has one update summed twice.

Both attacks gave one client's upload, bit for bit, on the commit before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.agreement import Acted
from fedkge.crypto import UNBOUND, WORD32, Journal, SecureAggregationServer
from fedkge.crypto.aggregation import masked_words
from fedkge.crypto.aggregation.pairwise_keys import self_mask_key
from fedkge.crypto.masks import add_masks
from fedkge.errors import FederationError, RefusedError, SettingError, TamperError
from fedkge.exchange import Download, Table
from fedkge.experiment import Experiment
from fedkge.metrics import TRAINING
from fedkge.server.messenger import Messenger
from fedkge.server.sums import SecureSums
from fedkge.server.sums.sessions import Sum, Total
from fedkge.simulations.runs import run as runs
from tests.crypto.parties import Round, exact_sum, make_session, random_vectors
from tests.simulations.conftest import TINY
from tests.simulations.mishaps import failures

OTHER = b"o" * 32


def experiment(*changes: str) -> Experiment:
    return Experiment().override([*TINY, "data.clients=5", *changes])


# --- in the protocol


def told(bindings: Sequence[bytes]) -> tuple[Round, list[bytes], list[bytes]]:
    """A round whose clients act on these, the seeds of their own masks, and their masked vectors."""
    n = len(bindings)
    round_ = Round(make_session(n), random_vectors(n, 8, WORD32))
    deliveries = round_.deliveries()
    seeds = [client._seed for client in round_.clients]
    masked = [
        client.mask(deliveries[u], round_.vectors[u], bindings[u]) for u, client in enumerate(round_.clients)
    ]
    return round_, seeds, masked


def without_own_masks(round_: Round, seeds: list[bytes], masked: list[bytes], told: Sequence[bytes]) -> Any:
    """What a server has that learned every seed: the sum, under whatever masks did not cancel."""
    total = np.sum([masked_words(message) for message in masked], axis=0, dtype=np.uint32)
    keys = [self_mask_key(seed, round_.session.id, u, told[u]) for u, seed in enumerate(seeds)]
    add_masks(total, WORD32, [(key, -1) for key in keys])
    return total


def test_the_masks_of_clients_who_acted_on_the_same_cancel_and_no_others() -> None:
    for bindings in ([OTHER] * 5, [OTHER] * 4 + [UNBOUND], [UNBOUND] * 4 + [OTHER]):
        round_, seeds, masked = told(bindings)
        bare = without_own_masks(round_, seeds, masked, bindings).tolist()
        assert (bare == exact_sum(round_.vectors, WORD32)) == (len(set(bindings)) == 1)


def test_a_server_names_the_client_that_acted_on_something_else() -> None:
    round_, _, masked = told([OTHER] * 4 + [UNBOUND])
    round_.server.bind(OTHER)
    for u in range(4):
        round_.server.collect(u, masked[u])
    with pytest.raises(TamperError, match="client 4 acted on something else than it was told"):
        round_.server.collect(4, masked[4])
    request = round_.server.announce_survivors()
    for u in range(4):
        round_.server.collect(u, round_.clients[u].unmask(request))
    assert round_.server.total().tolist() == exact_sum(round_.vectors[:4], WORD32)


def test_a_binding_is_signed_and_set_before_the_first_vector() -> None:
    round_, _, masked = told([OTHER] * 5)
    with pytest.raises(TamperError, match="signature of client 0"):
        round_.server.collect(0, masked[0].replace(OTHER, UNBOUND))
    round_.server.bind(OTHER)
    round_.server.collect(0, masked[0])
    with pytest.raises(SettingError, match="before its first vector"):
        round_.server.bind(UNBOUND)


def test_clients_unmask_nobody_who_signed_another_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes vectors under any binding, and asks for the sum all the same."""
    round_, _, masked = told([OTHER] * 4 + [UNBOUND])
    for u, message in enumerate(masked):
        round_.server._binding = UNBOUND if u == 4 else OTHER
        round_.server.collect(u, message)
    request = round_.server.announce_survivors()
    for client in round_.clients:
        with pytest.raises(TamperError, match=r"did not sign what client \d did"):
            client.unmask(request)


def test_one_round_and_purpose_is_masked_for_one_binding_alone() -> None:
    journals = [Journal() for _ in range(3)]
    vectors = random_vectors(3, 8, WORD32)
    first = Round(make_session(3), vectors, journals=journals)
    deliveries = first.deliveries()
    first.clients[0].mask(deliveries[0], vectors[0], OTHER)
    journals = [Journal.from_bytes(journal.to_bytes()) for journal in journals]
    again = Round(make_session(3, attempt=1), vectors, journals=journals)
    deliveries = again.deliveries()
    with pytest.raises(RefusedError, match=r"round 1 of run 'run' \(delta\) was masked after other messages"):
        again.clients[0].mask(deliveries[0], vectors[0], UNBOUND)
    again.clients[0].mask(deliveries[0], vectors[0], OTHER)  # the same again may be tried again


def test_a_binding_follows_from_all_that_was_said() -> None:
    table = Table(np.arange(3, dtype=np.int32), np.ones((3, 2), np.float32))
    other = replace(table, rows=np.full((3, 2), np.nextafter(np.float32(1), np.float32(2))))
    session, last = make_session(3), {"last": ["valid", 1, [0, 1, 2]]}
    seen = set()
    for tables, metadata, changes in [
        ({"entity": table}, last, {}),
        ({"entity": other}, last, {}),
        ({"entity": replace(table, ids=table.ids[::-1])}, last, {}),
        ({"relation": table}, last, {}),
        ({}, last, {}),
        ({"entity": table}, {"last": ["valid", 1, [0, 1]]}, {}),
        ({"entity": table}, {**last, "best": 3}, {}),
        ({"entity": table}, last, {"round": 2}),
        ({"entity": table}, last, {"purpose": "valid"}),
    ]:
        acted = Acted()
        acted.broadcast(tables)
        seen.add(acted.binding(make_session(3, **changes), metadata))
    assert len(seen) == 9
    acted = Acted()
    acted.broadcast({"entity": table})
    acted.broadcast({"relation": table})  # what was said of entities before still counts
    seen.add(acted.binding(session, last))
    assert len(seen) == 10
    acted = Acted()
    acted.broadcast({"entity": other})
    acted.broadcast({"entity": table})
    acted.broadcast({})  # nothing new
    assert acted.binding(make_session(3, attempt=7), {**last, "keep": [1]}) in seen
    assert acted.binding(session, last) in seen


# --- in the federation


def test_rows_that_only_the_victim_can_train_on_expose_nobody(
    tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 2: everybody but client 4 gets rows of 9e5, whose steps float32 absorbs; larger ones
    are refused by each client for itself."""
    ask, collect = Messenger.ask, SecureAggregationServer._collect_vector

    def lying(
        self: Messenger, downloads: Any, kind: str, phase: str, round: int, *more: Any, **rest: Any
    ) -> Any:
        if (kind, round) == ("train", 3):
            downloads = {u: _spoilt(message) if u != 4 else message for u, message in downloads.items()}
        return ask(self, downloads, kind, phase, round, *more, **rest)

    def credulous(self: SecureAggregationServer, client: int, message: bytes) -> None:
        self._binding = message[40:72]
        collect(self, client, message)

    monkeypatch.setattr(Messenger, "ask", lying)
    monkeypatch.setattr(SecureAggregationServer, "_collect_vector", credulous)
    runs.run(experiment("federation.evaluate_every=4"), tmp_path / "run")
    assert len(totals) == 3  # rounds 1, 2 and 4
    refused = {client: why for round, _, client, why in failures(tmp_path / "run") if round == 3}
    assert set(refused) == {"0", "1", "2", "3", "4", "all"}
    assert "did not sign what client 4 did" in refused["4"]
    assert "nothing summed" in refused["all"]


def _spoilt(download: Download) -> Download:
    assert download.tables
    tables = {name: replace(t, rows=np.full_like(t.rows, 9e5)) for name, t in download.tables.items()}
    return replace(download, tables=tables)


def test_a_lost_broadcast_puts_out_the_client_that_missed_it(
    tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An honest server whose message was altered for one client gets the sum of the others."""
    ask = Messenger.ask

    def altered(
        self: Messenger, downloads: Any, kind: str, phase: str, round: int, *more: Any, **rest: Any
    ) -> Any:
        if (kind, round) == ("train", 3):
            downloads = {**downloads, 1: _spoilt(downloads[1])}
        return ask(self, downloads, kind, phase, round, *more, **rest)

    monkeypatch.setattr(Messenger, "ask", altered)
    runs.run(experiment("federation.evaluate_every=4"), tmp_path / "run")
    assert [total.survivors for total in totals] == [(0, 1, 2, 3, 4)] * 2 + [(0, 2, 3, 4), (0, 1, 2, 3, 4)]
    assert [(round, client) for round, _, client, _ in failures(tmp_path / "run")] == [(3, 1)]


def test_an_update_is_not_summed_again_under_the_next_round(
    tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 3: round 3 is summed with client 4, and then as round 4 without it and without training."""
    steps, second = SecureSums.steps, []

    def repeating(self: SecureSums, round: int, clients: Any, tables: Any, metadata: Any, then: Any) -> Any:
        found = steps(self, round, clients, tables, metadata, then)
        if round == 3:
            download = Download(3, metadata=metadata)
            with pytest.raises(FederationError, match="0 of 4 clients answered"):
                second.append(self.sessions.sum(Sum("delta", 4), [0, 1, 2, 3], download, "train", "train"))
        return found

    monkeypatch.setattr(SecureSums, "steps", repeating)
    runs.run(experiment(), tmp_path / "run")
    assert second == []
    assert len(totals) == 4  # the true round 4 among them
    assert len(totals[3].words) > TRAINING.num_words
    assert str(failures(tmp_path / "run")).count("has trained round 3") == 4


def test_the_server_cannot_deny_whom_a_sum_went_over(
    tmp_path: Path, totals: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Messenger.ask

    def denying(
        self: Messenger, downloads: Any, kind: str, phase: str, round: int, *more: Any, **rest: Any
    ) -> Any:
        if (kind, round) == ("train", 3):
            last = [*downloads[0].metadata["last"][:2], [0, 1, 2, 3]]
            downloads = {
                u: replace(message, metadata={**message.metadata, "last": last})
                for u, message in downloads.items()
            }
        return ask(self, downloads, kind, phase, round, *more, **rest)

    monkeypatch.setattr(Messenger, "ask", denying)
    with pytest.raises(FederationError, match="0 of 5 clients answered"):
        runs.run(experiment(), tmp_path / "run")
    assert len(totals) == 2
    assert str(failures(tmp_path / "run")).count("and this client unmasked it for [0, 1, 2, 3, 4]") == 5


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> list[Total]:
    """Every sum of a round that the server got to see."""
    seen: list[Total] = []
    means = SecureSums._means

    def recorded(self: SecureSums, total: Total, tables: Any) -> Any:
        seen.append(total)
        return means(self, total, tables)

    monkeypatch.setattr(SecureSums, "_means", recorded)
    return seen
