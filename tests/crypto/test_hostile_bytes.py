"""Issue 16, finding 11: hostile bytes for every kind of message, thousands of them.

Only errors of the protocols come out, and a refused message changes nothing: the true one is still taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedkge.crypto import UNION_MODES, WORD32, Journal
from fedkge.crypto.union.private import write_opening
from fedkge.crypto.union.table import MAX_CELLS, SALT_SIZE, TableShape
from fedkge.crypto.wire import HEADER_SIZE
from fedkge.errors import DropoutError, MessageError, RefusedError, TamperError
from tests.crypto.parties import Round, make_session, random_vectors
from tests.crypto.test_union import HELD, Conversation

CASES = 120  # for each kind of message
REFUSALS = (MessageError, TamperError, RefusedError, DropoutError)

Scene = tuple[bytes, Callable[[bytes], object]]  # a true message, and whoever takes it


def mutated(message: bytes, rng: np.random.Generator) -> bytes:
    """A damaged message: a flipped bit; a piece cut, doubled, foreign, or all ones; only a start; noise."""
    start = int(rng.integers(0 if rng.random() < 0.2 else min(HEADER_SIZE, len(message)), len(message) + 1))
    size = int(rng.choice([1, 2, 4, 8, 32, 64, 200]))
    head, piece, tail = message[:start], message[start : start + size], message[start + size :]
    kind = int(rng.integers(8))
    if kind == 0 and piece:
        flipped = bytes([piece[0] ^ (1 << int(rng.integers(8)))])
        return head + flipped + piece[1:] + tail
    changed = [b"", piece + piece, rng.bytes(len(piece)), b"\xff" * len(piece), bytes(len(piece))]
    if kind == 6:
        return head
    if kind == 7:
        return rng.bytes(int(rng.integers(0, 100)))
    return head + changed[kind % 5] + tail


# --- secure aggregation


def a_round(signed: bool = False) -> Round:
    return Round(make_session(4, signed=signed), random_vectors(4, 8, WORD32), journals=None)


def advertise() -> Scene:
    round_ = a_round()
    return round_.clients[0].advertise(), lambda found: round_.server.collect(0, found)


def keys() -> Scene:
    round_ = a_round()
    return round_.keys(), round_.clients[0].share_keys


def shares() -> Scene:
    round_ = a_round()
    message = round_.clients[0].share_keys(round_.keys())
    return message, lambda found: round_.server.collect(0, found)


def delivery() -> Scene:
    round_ = a_round()
    return round_.deliveries()[0], lambda found: round_.clients[0].mask(found, round_.vectors[0])


def masked() -> Scene:
    round_ = a_round()
    message = round_.clients[0].mask(round_.deliveries()[0], round_.vectors[0])
    return message, lambda found: round_.server.collect(0, found)


def survivors() -> Scene:
    round_ = a_round()
    return round_.survivors(), round_.clients[0].unmask


def to_consent() -> Scene:
    round_ = a_round(signed=True)
    return round_.survivors(), round_.clients[0].consent


def consent() -> Scene:
    round_ = a_round(signed=True)
    return round_.clients[0].consent(round_.survivors()), lambda found: round_.server.collect(0, found)


def quorum() -> Scene:
    round_ = a_round(signed=True)
    return round_.request(), round_.clients[0].unmask


def reveal() -> Scene:
    round_ = a_round()
    return round_.clients[0].unmask(round_.request()), lambda found: round_.server.collect(0, found)


def client_state() -> Scene:
    round_ = a_round()
    round_.deliveries()
    return round_.clients[0].export_secrets(), a_round().clients[0].restore_secrets


def journal() -> Scene:
    journals = [Journal() for _ in range(4)]
    Round(make_session(4), random_vectors(4, 8, WORD32), journals=journals).run()
    journals[0].answer_queries(bytes(32), [1, 2])
    return journals[0].to_bytes(), Journal.from_bytes


SESSION: list[Callable[[], Scene]] = [
    advertise,
    keys,
    shares,
    delivery,
    masked,
    survivors,
    to_consent,
    consent,
    quorum,
    reveal,
    client_state,
    journal,
]


# --- unions

STEPS = {"plain": 1, "hashed": 3, "private": 4, "oprf": 7}


def union_at(mode: str, step: int) -> Conversation:
    conversation = Conversation(mode, HELD, seed=step)
    for _ in range(step):
        conversation.step()
    return conversation


def request(mode: str, step: int) -> Scene:
    conversation = union_at(mode, step)
    one, message = next(iter(conversation.server.requests.items()))
    return message, conversation.clients[one].answer


def reply(mode: str, step: int) -> Scene:
    conversation = union_at(mode, step)
    replies = {u: conversation.clients[u].answer(r) for u, r in conversation.server.requests.items()}
    one = max(replies)
    return replies[one], lambda found: conversation.server.collect({**replies, one: found})


def listing(mode: str, step: int) -> Scene:
    conversation = union_at(mode, step)
    return conversation.server.listing_message(), conversation.clients[0].finish


def union_state(mode: str, step: int) -> Scene:
    conversation = union_at(mode, step)
    return conversation.clients[0].export_secrets(), union_at(mode, 0).clients[0].restore_secrets


UNION = [
    (kind, mode, step)
    for mode in sorted(UNION_MODES)
    for kind, steps in (
        (request, range(STEPS[mode])),
        (reply, range(STEPS[mode])),
        (listing, [STEPS[mode]]),
        (union_state, [STEPS[mode] - 1]),
    )
    for step in steps
]


def hold(make: Callable[[], Scene], seed: int) -> int:
    """How many mutated messages are refused; whenever one is taken, the scene is set anew."""
    rng = np.random.default_rng(seed)
    message, take = make()
    refused = 0
    for _ in range(CASES):
        try:
            take(mutated(message, rng))
        except REFUSALS:
            refused += 1
        else:
            message, take = make()
    take(message)
    return refused


@pytest.mark.parametrize("make", SESSION, ids=lambda make: make.__name__)
def test_mutated_messages_of_a_session_are_refused_and_the_true_one_still_goes(
    make: Callable[[], Scene],
) -> None:
    assert hold(make, seed=1) > CASES // 3


@pytest.mark.parametrize(("kind", "mode", "step"), UNION, ids=lambda part: getattr(part, "__name__", part))
def test_mutated_messages_of_a_union_are_refused_and_the_true_one_still_goes(
    kind: Callable[[str, int], Scene], mode: str, step: int
) -> None:
    assert hold(lambda: kind(mode, step), seed=2) > CASES // 3


# --- sizes


@pytest.mark.parametrize("cells", [MAX_CELLS + 2, 2**24, 2**32 - 4])
def test_a_table_beyond_the_limit_is_refused_before_anything_is_allocated(cells: int) -> None:
    conversation = Conversation("private", HELD)
    true = conversation.server.requests[0]
    asked = true[: HEADER_SIZE + 4 + SALT_SIZE] + cells.to_bytes(4, "little") + true[-1:]
    with pytest.raises(RefusedError, match=f"a table of {cells} cells, and this client makes none of more"):
        conversation.clients[0].answer(asked)
    conversation.run()  # and the union goes on


def test_a_client_s_own_limit_on_tables_is_nobody_else_s_affair() -> None:
    conversation = Conversation("private", HELD)
    session, shape = conversation.session, TableShape.expecting(64, bytes(SALT_SIZE))
    small = replace(session, max_cells=shape.num_cells - 1)
    assert small.id == session.id
    conversation.clients[0].session = small
    with pytest.raises(RefusedError, match=f"none of more than {shape.num_cells - 1}"):
        conversation.clients[0].answer(write_opening(session.id, 0, shape))
