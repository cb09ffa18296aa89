"""Damaged bytes anywhere end in a protocol error or in the true result, and never in another exception."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedkge.crypto import UNION_MODES, WORD32, Journal
from fedkge.crypto.wire import HEADER_SIZE
from fedkge.errors import ProtocolError
from tests.crypto.parties import R2, R3, Round, exact_sum, make_session, random_vectors
from tests.crypto.test_union import HELD, Conversation, row_of

TRIALS = 150


def damaged(message: bytes, rng: np.random.Generator) -> bytes:
    """Flip a byte, cut the end, or add to it; the header stays whole in two of three cases."""
    place = int(rng.integers(0 if rng.random() < 0.3 else min(HEADER_SIZE, len(message) - 1), len(message)))
    kind = rng.integers(3)
    if kind == 0:
        return message[:place]
    if kind == 1:
        return message[:place] + rng.bytes(int(rng.integers(1, 9))) + message[place:]
    return message[:place] + bytes([message[place] ^ int(rng.integers(1, 256))]) + message[place + 1 :]


def survives(work: Callable[[], object]) -> bool:
    try:
        work()
    except ProtocolError:
        return False
    return True


def test_damage_in_a_session_never_gives_a_false_sum() -> None:
    rng = np.random.default_rng(0)
    vectors = random_vectors(4, 8, WORD32)
    outcomes = []
    for _ in range(TRIALS):
        round_ = Round(make_session(4), vectors, [R3, R3, R3, R2])
        target, count = int(rng.integers(14)), 0
        genuine = round_.server.collect

        def collect(client: int, message: bytes, target: int = target, genuine=genuine) -> None:  # type: ignore[no-untyped-def]
            nonlocal count
            count += 1
            # what a masked vector holds is the client's own affair: damage to it cannot be seen
            if count - 1 == target and not 8 <= target < 12:
                message = damaged(message, rng)
            genuine(client, message)

        round_.server.collect = collect  # type: ignore[method-assign]
        try:
            total = round_.run().tolist()
        except ProtocolError:
            outcomes.append(False)
            continue
        outcomes.append(True)
        assert total == exact_sum(vectors, WORD32)
    assert any(outcomes)
    assert not all(outcomes)


STEPS = {"plain": 1, "hashed": 3, "private": 4, "oprf": 7}


def answer_damaged(conversation: Conversation, rng: np.random.Generator) -> None:
    """Let one of the clients that are asked answer a damaged request."""
    one, request = next(iter(conversation.server.requests.items()))
    conversation.clients[one].answer(damaged(request, rng))


@pytest.mark.parametrize("mode", sorted(UNION_MODES))
def test_damage_in_a_union_gives_errors_of_the_protocol_alone(mode: str) -> None:
    rng = np.random.default_rng(1)
    refused = 0
    for trial in range(TRIALS):
        conversation = Conversation(mode, HELD, seed=trial)
        for _ in range(int(rng.integers(0, STEPS[mode]))):
            conversation.step()
        refused += not survives(lambda c=conversation: answer_damaged(c, rng))
    assert refused > TRIALS // 2


@pytest.mark.parametrize("mode", sorted(UNION_MODES))
def test_damage_on_the_way_to_the_union_s_server_is_refused_or_harmless(mode: str) -> None:
    rng = np.random.default_rng(2)
    refused = 0
    for trial in range(TRIALS // 3):
        conversation = Conversation(mode, HELD, seed=trial)
        for _ in range(int(rng.integers(0, STEPS[mode]))):
            conversation.step()
        replies = {u: conversation.clients[u].answer(r) for u, r in conversation.server.requests.items()}
        one = max(replies)
        replies[one] = damaged(replies[one], rng)
        refused += not survives(lambda c=conversation, r=replies: c.server.collect(r))
    assert refused > TRIALS // 6


def test_damaged_states_and_journals_are_refused() -> None:
    rng = np.random.default_rng(3)
    journals = [Journal() for _ in range(3)]
    round_ = Round(make_session(3), random_vectors(3, 8, WORD32), journals=journals)
    round_.deliveries()
    for stored, load in (
        (journals[0].to_bytes(), lambda found: Journal.from_bytes(found)),
        (
            round_.clients[0].export_secrets(),
            lambda found: Round(make_session(3), round_.vectors).clients[0].restore_secrets(found),
        ),
    ):
        for cut in range(len(stored)):
            with pytest.raises(ProtocolError):
                load(stored[:cut])
        for _ in range(TRIALS):
            survives(lambda stored=stored, load=load: load(damaged(stored, rng)))


def test_an_undamaged_union_is_whole() -> None:
    assert len(row_of(HELD, Conversation("private", HELD).run())) == 6
