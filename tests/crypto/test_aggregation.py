"""Secure aggregation gives the survivors' sum, exactly, in both rings and across interruptions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.crypto import (
    FIELD61,
    WORD32,
    FixedPoint,
    Journal,
    SecureAggregationClient,
    SecureAggregationServer,
)
from fedkge.crypto.masks import CHUNK_BYTES
from fedkge.crypto.rings import Ring
from fedkge.errors import DropoutError, MessageError, RefusedError, SettingError
from tests.crypto.parties import (
    NOTHING,
    R0,
    R1,
    R2,
    R3,
    RINGS,
    Round,
    exact_sum,
    identity,
    make_clients,
    make_session,
    random_vectors,
    stream,
)

LENGTHS = [0, 1, 7, CHUNK_BYTES // 8 - 1, CHUNK_BYTES // 8 + 1, CHUNK_BYTES // 4, CHUNK_BYTES // 4 + 1]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.data())
def test_the_sum_is_exact_whoever_drops_out_and_when(data: st.DataObject) -> None:
    n = data.draw(st.integers(3, 8))
    t = data.draw(st.integers(max(3, n // 2 + 1), n))
    ring = data.draw(st.sampled_from(RINGS))
    session = make_session(
        n, data.draw(st.sampled_from([0, 1, 5, 33])), ring=ring, threshold=t, signed=data.draw(st.booleans())
    )
    dropouts = data.draw(st.lists(st.sampled_from([NOTHING, R0, R1, R2]), max_size=n - t))
    last = data.draw(st.permutations([R3] * (n - len(dropouts)) + dropouts))
    vectors = random_vectors(n, session.length, ring)
    survivors = [u for u in range(n) if last[u] >= R2]
    assert Round(session, vectors, last).run().tolist() == exact_sum([vectors[u] for u in survivors], ring)


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: type(ring).__name__)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_sum_is_exact_around_chunk_borders(ring: Ring, length: int) -> None:
    vectors = random_vectors(4, length, ring)
    total = Round(make_session(4, length, ring=ring), vectors, [R3, R2, R3, R3]).run()
    if ring is WORD32:
        assert np.array_equal(total, sum(vectors, start=np.zeros(length, dtype=np.uint32)))
    else:
        halves = [v % 2**30 for v in vectors], [v >> 30 for v in vectors]
        low, high = (sum(half, start=np.zeros(length, dtype=np.uint64)).tolist() for half in halves)
        assert total.tolist() == [(a + (b << 30)) % FIELD61.modulus for a, b in zip(low, high, strict=True)]


def test_a_mean_of_real_rows_is_within_the_stated_bound() -> None:
    rng = np.random.default_rng(3)
    rows = [rng.normal(0, 1, (40, 8)).astype(np.float32) for _ in range(5)]
    point = FixedPoint(clip=8, num_clients=5)
    total = Round(make_session(5, 320), [point.encode(row).words for row in rows]).run()
    means = point.decode(total).reshape(40, 8) / 5
    assert np.abs(means - np.mean(np.array(rows, dtype=np.float64), axis=0)).max() <= point.error_bound


def test_a_client_can_be_interrupted_between_any_two_steps() -> None:
    session = make_session(4, signed=True)
    vectors = random_vectors(4, 8, WORD32)
    journals = [Journal() for _ in range(4)]
    server = SecureAggregationServer(session)

    def reborn(client: SecureAggregationClient) -> SecureAggregationClient:
        u = client.index
        journals[u] = Journal.from_bytes(journals[u].to_bytes())
        after = SecureAggregationClient(session, u, identity(u), journals[u])
        after.restore_secrets(client.export_secrets())
        return after

    clients = make_clients(session, journals)
    for u in range(4):
        server.collect(u, clients[u].advertise())
    keys, clients = server.announce_keys(), [reborn(client) for client in clients]
    for u in range(4):
        server.collect(u, clients[u].share_keys(keys))
    deliveries, clients = server.deliver_shares(), [reborn(client) for client in clients]
    for u in range(4):
        server.collect(u, clients[u].mask(deliveries[u], vectors[u]))
    survivors, clients = server.announce_survivors(), [reborn(client) for client in clients]
    for u in range(4):
        server.collect(u, clients[u].consent(survivors))
    quorum, clients = server.announce_quorum(), [reborn(client) for client in clients]
    for u in range(4):
        server.collect(u, clients[u].unmask(quorum))
    assert server.total().tolist() == exact_sum(vectors, WORD32)


def test_a_round_needs_two_exchanges_when_the_next_session_s_keys_ride_along() -> None:
    """Keys go up with the masked vector, sealed shares with the unmasking; two trips per round remain."""
    n, num_rounds = 4, 3
    journals = [Journal() for _ in range(n)]
    sessions = [make_session(n, round=r) for r in range(num_rounds + 1)]
    parties = [(make_clients(session, journals), SecureAggregationServer(session)) for session in sessions]
    exchanges = 0

    clients, server = parties[0]
    for u in range(n):
        server.collect(u, clients[u].advertise())
    keys = server.announce_keys()
    for u in range(n):
        server.collect(u, clients[u].share_keys(keys))
    deliveries = server.deliver_shares()

    for r in range(num_rounds):
        (clients, server), (next_clients, next_server) = parties[r], parties[r + 1]
        vectors = random_vectors(n, 8, WORD32, seed=r)
        for u in range(n):  # down: shares; up: masked vector, next keys
            server.collect(u, clients[u].mask(deliveries[u], vectors[u]))
            next_server.collect(u, next_clients[u].advertise())
        survivors, keys = server.announce_survivors(), next_server.announce_keys()
        for u in range(
            n
        ):  # down: survivors, next keys; up: shares of this session, sealed shares of the next
            server.collect(u, clients[u].unmask(survivors))
            next_server.collect(u, next_clients[u].share_keys(keys))
        deliveries = next_server.deliver_shares()
        exchanges += 2
        assert server.total().tolist() == exact_sum(vectors, WORD32)
    assert exchanges == 2 * num_rounds


def test_masking_two_vectors_under_one_key_raises() -> None:
    round_ = Round(make_session(3), random_vectors(3, 8, WORD32))
    deliveries = round_.deliveries()
    round_.clients[0].mask(deliveries[0], round_.vectors[0])
    with pytest.raises(RefusedError, match="once"):
        round_.clients[0].mask(deliveries[0], round_.vectors[1])


def test_masking_again_from_a_stored_state_raises() -> None:
    journals = [Journal() for _ in range(3)]
    round_ = Round(make_session(3), random_vectors(3, 8, WORD32), journals=journals)
    deliveries = round_.deliveries()
    stored = round_.clients[0].export_secrets()
    first = round_.clients[0].mask(deliveries[0], round_.vectors[0])
    again = SecureAggregationClient(round_.session, 0, identity(0), journals[0])
    again.restore_secrets(stored)
    with pytest.raises(RefusedError, match="two vectors under one mask"):
        again.mask(deliveries[0], round_.vectors[1])
    forgetful = SecureAggregationClient(round_.session, 0, identity(0), Journal())
    forgetful.restore_secrets(stored)
    with pytest.raises(RefusedError, match="two vectors under one mask"):
        forgetful.mask(deliveries[0], round_.vectors[1])
    assert len(first) > 0


def test_a_replayed_session_is_refused() -> None:
    session, journal = make_session(3), Journal()
    SecureAggregationClient(session, 0, identity(0), journal).advertise()
    restarted = Journal.from_bytes(journal.to_bytes())
    with pytest.raises(RefusedError, match="opened before"):
        SecureAggregationClient(session, 0, identity(0), restarted).advertise()


def test_a_vector_of_another_length_or_type_is_refused_and_the_right_one_still_goes() -> None:
    round_ = Round(make_session(3), random_vectors(3, 8, WORD32))
    deliveries = round_.deliveries()
    client = round_.clients[0]
    with pytest.raises(SettingError, match="9 words in a session of 8"):
        client.mask(deliveries[0], np.zeros(9, dtype=np.uint32))
    with pytest.raises(MessageError, match="<u4"):
        client.mask(deliveries[0], np.zeros(8, dtype=np.float32))
    round_.server.collect(0, client.mask(deliveries[0], round_.vectors[0]))


def test_a_vector_written_in_place_is_masked_like_any_other() -> None:
    vectors = random_vectors(3, 8, WORD32)
    round_ = Round(make_session(3), vectors)
    deliveries = round_.deliveries()
    for u, client in enumerate(round_.clients):
        masked = client.mask_in_place(deliveries[u], lambda room, u=u: np.add(room, vectors[u], out=room))
        round_.server.collect(u, masked)
    request = round_.server.announce_survivors()
    for u, client in enumerate(round_.clients):
        round_.server.collect(u, client.unmask(request))
    assert np.array_equal(round_.server.total(), np.sum(vectors, axis=0, dtype=np.uint32))


def test_rows_that_cannot_be_encoded_use_no_mask_up() -> None:
    round_ = Round(make_session(3), random_vectors(3, 8, WORD32))
    deliveries, client, point = round_.deliveries(), round_.clients[0], FixedPoint(8, 3)
    with pytest.raises(RefusedError, match="NaN"):
        client.mask_in_place(deliveries[0], lambda room: point.encode(np.full(8, np.nan), out=room))
    round_.server.collect(0, client.mask(deliveries[0], round_.vectors[0]))


def test_the_server_takes_one_reply_per_client_and_stage() -> None:
    round_ = Round(make_session(3), random_vectors(3, 8, WORD32))
    message = round_.clients[0].advertise()
    round_.server.collect(0, message)
    assert round_.server.waiting_for == (1, 2)
    with pytest.raises(MessageError, match="replied already"):
        round_.server.collect(0, message)
    with pytest.raises(MessageError, match="came from 1"):
        round_.server.collect(1, message)
    with pytest.raises(MessageError, match="not in the roster"):
        round_.server.collect(3, message)


def test_a_stage_cannot_be_skipped() -> None:
    server = SecureAggregationServer(make_session(3))
    with pytest.raises(MessageError, match="stage 'keys'"):
        server.total()
    with pytest.raises(RefusedError, match="stage 'opened'"):
        make_clients(make_session(3))[0].share_keys(b"")


def test_too_few_replies_name_the_threshold_and_later_ones_still_count() -> None:
    round_ = Round(make_session(5), random_vectors(5, 8, WORD32))
    for u in range(3):
        round_.server.collect(u, round_.clients[u].advertise())
    with pytest.raises(DropoutError, match="3 of 5 clients advertised keys, fewer than the threshold of 4"):
        round_.server.announce_keys()
    round_.server.collect(3, round_.clients[3].advertise())
    round_.server.announce_keys()


def test_the_operating_system_makes_different_masks_every_time() -> None:
    session = make_session(3)
    adverts = {SecureAggregationClient(session, 0, identity(0), Journal()).advertise() for _ in range(20)}
    assert len(adverts) == 20


def test_the_same_entropy_gives_the_same_bytes() -> None:
    runs = [Round(make_session(3), random_vectors(3, 8, WORD32), seed="vector") for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].transcript == runs[1].transcript
    assert stream(1)(8) != stream(2)(8)


def test_messages_have_the_sizes_that_the_documentation_states() -> None:
    n, length = 5, 9
    round_ = Round(make_session(n, length, signed=True), random_vectors(n, length, WORD32))
    round_.run()
    sizes = [len(message) for message in round_.transcript[::n]]
    assert sizes == [168, 74 + 94 * (n - 1), 144 + 4 * length, 104, 42 + 33 * n]
