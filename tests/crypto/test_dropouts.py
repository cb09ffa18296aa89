"""Every way in which five clients can drop out: the exact sum over those who sent a vector, or none."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from fedkge.crypto import WORD32, Journal, SecureAggregationServer
from fedkge.errors import DropoutError
from tests.crypto.parties import R0, R1, R2, R3, Round, exact_sum, make_clients, make_session, random_vectors

SESSION = make_session(5, 4, threshold=3)
VECTORS = random_vectors(5, 4, WORD32)


@cache
def after_shares(
    sharers: frozenset[int],
) -> tuple[SecureAggregationServer, dict[int, bytes], list[bytes], list[bytes]]:
    """Everybody's state once these clients have shared their keys: the same for all that happens later."""
    journals = [Journal() for _ in range(5)]
    last = [R1 if u in sharers else R0 for u in range(5)]
    round_ = Round(SESSION, VECTORS, last, journals)
    deliveries = round_.deliveries()
    states = [client.export_secrets() for client in round_.clients]
    return round_.server, deliveries, states, [journal.to_bytes() for journal in journals]


def finish(last: Sequence[int]) -> list[int]:
    """A round whose clients each send the last message named."""
    kept, deliveries, states, journals = after_shares(frozenset(u for u in range(5) if last[u] >= R1))
    server = copy.deepcopy(kept)
    clients = make_clients(SESSION, [Journal.from_bytes(journal) for journal in journals])
    for u in deliveries:
        clients[u].restore_secrets(states[u])
    for u in deliveries:
        if last[u] >= R2:
            server.collect(u, clients[u].mask(deliveries[u], VECTORS[u]))
    request = server.announce_survivors()
    if server.needs_consent:
        for u in (u for u in deliveries if last[u] == R3):
            server.collect(u, clients[u].consent(request))
        request = server.announce_quorum()
    for u in deliveries:
        if last[u] == R3:
            server.collect(u, clients[u].unmask(request))
    found: list[int] = server.total().tolist()
    return found


def test_all_1024_dropout_patterns_of_five_clients() -> None:
    sums = aborts = 0
    for last in itertools.product(range(R0, R3 + 1), repeat=5):
        try:
            total = finish(last)
        except DropoutError:
            aborts += 1
            assert sum(stage == R3 for stage in last) < 3
            continue
        sums += 1
        assert total == exact_sum([VECTORS[u] for u in range(5) if last[u] >= R2], WORD32)
    assert (sums, aborts) == (106, 918)


def test_at_three_clients_no_dropout_is_tolerated() -> None:
    vectors = random_vectors(3, 4, WORD32)
    for who, stage in itertools.product(range(3), range(-1, R3)):
        last = [R3] * 3
        last[who] = stage
        with pytest.raises(DropoutError, match="threshold of 3"):
            Round(make_session(3, 4), vectors, last).run()


def test_fifty_clients_with_sixteen_dropouts_at_all_stages() -> None:
    last = [R3] * 34 + [-1] * 4 + [0] * 4 + [1] * 4 + [2] * 4
    last = [last[i] for i in np.random.default_rng(0).permutation(50)]
    vectors = random_vectors(50, 16, WORD32)
    total = Round(make_session(50, 16), vectors, last).run()
    assert total.tolist() == exact_sum([vectors[u] for u in range(50) if last[u] >= R2], WORD32)
