"""Attacks that subtract sums from each other work where nobody guards the sums; the journal stops them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fedkge.crypto import WORD32, Journal, Roster, SecureAggregationClient, SecureAggregationServer, Session
from fedkge.errors import RefusedError
from tests.crypto.parties import R2, R3, Round, exact_sum, identity, make_session, random_vectors

NUM_CLIENTS, NUM_RELATIONS = 20, 60


def holdings() -> NDArray[np.uint32]:
    """Which client holds which relation."""
    return (np.random.default_rng(5).random((NUM_CLIENTS, NUM_RELATIONS)) < 0.4).astype(np.uint32)


def cohorts(count: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(6)
    return np.array([np.sort(rng.choice(NUM_CLIENTS, 10, replace=False)) for _ in range(count)])


def solve(sampled: Sequence[NDArray[np.int64]], counts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Least squares for 0/1 memberships from counts over cohorts."""
    system = np.zeros((len(sampled), NUM_CLIENTS))
    for row, cohort in enumerate(sampled):
        system[row, cohort] = 1
    return np.linalg.lstsq(system, counts, rcond=None)[0] > 0.5


def count_over(
    cohort: Sequence[int], held: NDArray[np.uint32], journals: Sequence[Journal], round: int
) -> NDArray:
    """Holder counts of one cohort, through secure aggregation over a roster of just that cohort."""
    roster = Roster.of(identity(u).public for u in cohort)
    session = Session(roster, "run", round, "holders", NUM_RELATIONS)
    server = SecureAggregationServer(session)
    clients = [SecureAggregationClient(session, i, identity(u), journals[u]) for i, u in enumerate(cohort)]
    for i, client in enumerate(clients):
        server.collect(i, client.advertise())
    keys = server.announce_keys()
    for i, client in enumerate(clients):
        server.collect(i, client.share_keys(keys))
    deliveries = server.deliver_shares()
    for i, client in enumerate(clients):
        server.collect(i, client.mask(deliveries[i], held[cohort[i]]))
    request = server.announce_survivors()
    for i, client in enumerate(clients):
        server.collect(i, client.unmask(request))
    return server.total()


def attack_by_sampling(num_cohorts: int, *, guarded: bool) -> tuple[float, int]:
    """How much of the memberships the counts reveal, and how many counts the server got."""
    held = holdings()
    journals = [Journal() for _ in range(NUM_CLIENTS)]
    sampled, counts = [], []
    for round, cohort in enumerate(cohorts(num_cohorts)):
        memory = journals if guarded else [Journal() for _ in range(NUM_CLIENTS)]
        try:
            counts.append(count_over(cohort.tolist(), held, memory, round))
        except RefusedError:
            continue
        sampled.append(cohort)
    guess = solve(sampled, np.array(counts, dtype=np.float64))
    return float(np.mean(guess == held.astype(bool))), len(counts)


def test_counts_over_sampled_cohorts_reveal_every_membership_unless_the_roster_is_pinned() -> None:
    revealed, num_counts = attack_by_sampling(24, guarded=False)
    assert (revealed, num_counts) == (1.0, 24)
    revealed, num_counts = attack_by_sampling(24, guarded=True)
    assert num_counts <= 2  # two cohorts without a common client, at most
    assert revealed < 0.8


def test_counts_are_made_once_per_roster() -> None:
    """A server that asks for the counts again, and lets another client seem to drop out, is refused."""
    journals = [Journal() for _ in range(5)]
    held = [np.eye(5, dtype=np.uint32)[u] for u in range(5)]
    first = make_session(5, 5, round=None, purpose="holders")
    Round(first, held, journals=journals).run()
    second = make_session(5, 5, round=None, purpose="holders", attempt=1)
    with pytest.raises(RefusedError, match="was unmasked for clients"):
        Round(second, held, [R3, R3, R3, R3, 1], journals=journals).run()


def repeated_unmasking(journals: Sequence[Journal], memory: Sequence[Journal]) -> NDArray[np.uint32]:
    """Sum the same deterministic round twice, the second time without client 4, and subtract."""
    vectors = random_vectors(5, 8, WORD32)
    with_all = Round(make_session(5), vectors, journals=journals).run()
    without = Round(make_session(5, attempt=1), vectors, [R3, R3, R3, R3, 1], journals=memory).run()
    return with_all - without


def test_a_repeated_unmasking_reveals_one_upload_unless_the_client_remembers() -> None:
    target = random_vectors(5, 8, WORD32)[4]
    assert np.array_equal(
        repeated_unmasking([Journal() for _ in range(5)], [Journal() for _ in range(5)]), target
    )
    journals = [Journal() for _ in range(5)]
    with pytest.raises(RefusedError, match="would reveal single clients"):
        repeated_unmasking(journals, journals)


def test_a_round_that_failed_may_be_tried_again_with_the_same_survivors() -> None:
    vectors, journals = random_vectors(5, 8, WORD32), [Journal() for _ in range(5)]
    failed = Round(make_session(5), vectors, [R3, R3, R2, R2, 1], journals=journals)
    request = failed.request()
    for u in (0, 1):  # two of four answer before the server fails
        failed.clients[u].unmask(request)
    again = Round(make_session(5, attempt=1), vectors, [R3, R3, R3, R3, 1], journals=journals)
    assert again.run().tolist() == exact_sum(vectors[:4], WORD32)


def leaver(journals: Sequence[Journal], *, consent: bool) -> NDArray[np.uint32]:
    """Counts over five clients, then over the four that are left, and subtract."""
    held = holdings()
    before = count_over([0, 1, 2, 3, 4], held, journals, 0)
    if consent:
        for u in range(4):
            journals[u].accept_roster("run", Roster.of(identity(v).public for v in range(4)))
    after = count_over([0, 1, 2, 3], held, journals, 1)
    return before - after


def test_a_leaver_s_relations_show_unless_the_operators_refuse_the_new_roster() -> None:
    assert np.array_equal(leaver([Journal() for _ in range(5)], consent=True), holdings()[4])
    with pytest.raises(RefusedError, match="began with another roster"):
        leaver([Journal() for _ in range(5)], consent=False)


def test_the_journal_survives_a_restart_byte_for_byte() -> None:
    journals = [Journal() for _ in range(5)]
    Round(make_session(5), random_vectors(5, 8, WORD32), [R3, R3, R3, R3, R2], journals=journals).run()
    for journal in journals:
        assert Journal.from_bytes(journal.to_bytes()).to_bytes() == journal.to_bytes()
    assert len({journal.to_bytes() for journal in journals}) == 2  # client 4 never unmasked
