"""A server or a client that cheats is found out, named where it can be, and gains nothing."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fedkge.crypto import FIELD61, WORD32, Journal, SecureAggregationClient, SecureAggregationServer, Session
from fedkge.crypto.aggregation.advertisement import Advertisement, _statement, read_advertisement, write_keys
from fedkge.crypto.aggregation.client import ENVELOPE_SIZE
from fedkge.crypto.aggregation.pairwise_keys import (
    UNBOUND,
    bound_key,
    pairwise_mask_key,
    pairwise_sign,
    self_mask_key,
)
from fedkge.crypto.keys import EphemeralKey
from fedkge.crypto.masks import add_masks
from fedkge.crypto.shares import PRIME, SHARE_SIZE, combine_shares, lagrange_weights
from fedkge.crypto.wire import HEADER_SIZE, SERVER, Kind, Writer
from fedkge.errors import DropoutError, MessageError, ProtocolError, RefusedError, TamperError
from tests.crypto.parties import (
    R3,
    Round,
    exact_sum,
    identity,
    make_clients,
    make_session,
    random_vectors,
    stream,
)

LOW_ORDER = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def flip(message: bytes, place: int) -> bytes:
    changed = bytearray(message)
    changed[place] ^= 0x40
    return bytes(changed)


def survivors(round_: Round, listed: Sequence[int]) -> bytes:
    """The request to unmask these, with the signatures that came with their vectors."""
    signatures = b"".join(round_.server._signatures.get(client, bytes(64)) for client in listed)
    return Writer(Kind.SURVIVORS, round_.session.id, SERVER).numbers(list(listed), 2).raw(signatures).finish()


def a_round(n: int = 5, **changes: object) -> Round:
    session = make_session(n, **changes)  # type: ignore[arg-type]
    return Round(session, random_vectors(n, session.length, session.ring))


# --- keys


def adverts(round_: Round) -> dict[int, Advertisement]:
    session = round_.session
    return {
        c.index: read_advertisement(c.advertise(), session.id, c.index, session.roster, 2)
        for c in round_.clients
    }


def swap_two_keys(found: dict[int, Advertisement]) -> None:
    (channel, mask), signature = found[1]
    found[1] = (mask, channel), signature


def swap_two_clients(found: dict[int, Advertisement]) -> None:
    found[1], found[2] = found[2], found[1]


def put_in_the_server_s_keys(found: dict[int, Advertisement]) -> None:
    keys = tuple(EphemeralKey.generate(_entropy=stream("server", i)).public for i in range(2))
    found[1] = keys, found[1][1]


def give_two_clients_the_same_keys(found: dict[int, Advertisement]) -> None:
    found[2] = found[1]


def change_the_reader_s_own_keys(found: dict[int, Advertisement]) -> None:
    keys = tuple(EphemeralKey.generate(_entropy=stream("server", i)).public for i in range(2))
    found[0] = keys, found[0][1]


def leave_the_reader_out(found: dict[int, Advertisement]) -> None:
    del found[0]


@pytest.mark.parametrize(
    "cheat",
    [
        swap_two_keys,
        swap_two_clients,
        put_in_the_server_s_keys,
        give_two_clients_the_same_keys,
        change_the_reader_s_own_keys,
        leave_the_reader_out,
    ],
)
def test_a_false_list_of_keys_is_refused_and_the_true_one_still_works(
    cheat: Callable[[dict[int, Advertisement]], None],
) -> None:
    round_ = a_round()
    found = adverts(round_)
    false = dict(found)
    cheat(false)
    with pytest.raises(TamperError):
        round_.clients[0].share_keys(write_keys(round_.session.id, false))
    round_.clients[0].share_keys(write_keys(round_.session.id, found))


def test_too_short_a_list_of_keys_is_refused() -> None:
    round_ = a_round()
    found = adverts(round_)
    with pytest.raises(DropoutError, match="3 clients advertised keys, fewer than the threshold of 4"):
        round_.clients[0].share_keys(write_keys(round_.session.id, {u: found[u] for u in range(3)}))


def test_two_clients_that_sign_one_key_are_refused() -> None:
    round_ = a_round()
    found = adverts(round_)
    keys = found[1][0]
    found[2] = keys, identity(2).sign(_statement(round_.session.id, 2, keys))
    with pytest.raises(TamperError, match="the same"):
        round_.clients[0].share_keys(write_keys(round_.session.id, found))


@pytest.mark.parametrize("point", LOW_ORDER)
@pytest.mark.parametrize("place", [0, 1])
def test_a_low_order_key_is_refused_by_server_and_clients(point: str, place: int) -> None:
    round_ = a_round()
    found = adverts(round_)
    keys = list(found[1][0])
    keys[place] = bytes.fromhex(point)
    signature = identity(1).sign(_statement(round_.session.id, 1, keys))
    message = Writer(Kind.ADVERTISE, round_.session.id, 1).raw(b"".join(keys)).raw(signature).finish()
    with pytest.raises(TamperError, match="client 1 is of low order"):
        round_.server.collect(1, message)
    found[1] = tuple(keys), signature
    with pytest.raises(TamperError, match="client 1 is of low order"):
        round_.clients[0].share_keys(write_keys(round_.session.id, found))


def test_keys_replayed_from_another_session_are_refused() -> None:
    old, new = a_round(round=1), a_round(round=2)
    message = old.clients[1].advertise()
    with pytest.raises(MessageError, match="another session"):
        new.server.collect(1, message)
    rewritten = message[:8] + new.session.id + message[HEADER_SIZE:]
    with pytest.raises(TamperError, match="signature of client 1"):
        new.server.collect(1, rewritten)


# --- shares


def test_every_flipped_byte_of_an_envelope_is_caught_by_the_seal() -> None:
    round_ = a_round(3)
    deliveries = round_.deliveries()
    start = len(deliveries[0]) - 2 * ENVELOPE_SIZE
    for place in range(start, len(deliveries[0])):
        sender = 1 + (place - start) // ENVELOPE_SIZE
        with pytest.raises(TamperError, match=f"from client {sender} to client 0 does not open"):
            round_.clients[0].mask(flip(deliveries[0], place), round_.vectors[0])
    round_.clients[0].mask(deliveries[0], round_.vectors[0])


def test_envelopes_given_to_another_client_or_in_another_s_name_do_not_open() -> None:
    round_ = a_round(3)
    deliveries = round_.deliveries()
    first, second = deliveries[0][-2 * ENVELOPE_SIZE : -ENVELOPE_SIZE], deliveries[0][-ENVELOPE_SIZE:]
    swapped = deliveries[0][: -2 * ENVELOPE_SIZE] + second + first
    for false in (swapped, deliveries[1]):
        with pytest.raises(TamperError):
            round_.clients[0].mask(false, round_.vectors[0])


def test_a_delivery_must_come_from_enough_clients_who_advertised() -> None:
    session = make_session(5)
    round_ = Round(session, random_vectors(5, 8, WORD32), [R3, R3, R3, R3, -1])
    deliveries = round_.deliveries()
    body = deliveries[0][-3 * ENVELOPE_SIZE :]
    short = (
        Writer(Kind.DELIVERY, session.id, SERVER).numbers([1, 2], 2).raw(body[: 2 * ENVELOPE_SIZE]).finish()
    )
    with pytest.raises(DropoutError, match="3 clients shared their keys"):
        round_.clients[0].mask(short, round_.vectors[0])
    ghost = Writer(Kind.DELIVERY, session.id, SERVER).numbers([1, 2, 4], 2).raw(body).finish()
    with pytest.raises(TamperError, match=r"\[4\], who advertised no keys"):
        round_.clients[0].mask(ghost, round_.vectors[0])


def revealed(round_: Round) -> list[bytes]:
    request = round_.request()
    return [round_.clients[u].unmask(request) for u in range(len(round_.clients)) if round_.last[u] >= R3]


def test_every_flipped_byte_of_a_revealed_share_is_caught_by_the_commitment() -> None:
    """Client 4 masked and vanished, so the shares cover seeds and a mask key."""
    session = make_session(5)
    deliveries = (round_ := Round(session, random_vectors(5, 8, WORD32), [R3, R3, R3, R3, 1])).deliveries()
    for u in range(4):
        round_.server.collect(u, round_.clients[u].mask(deliveries[u], round_.vectors[u]))
    request = round_.server.announce_survivors()
    reveals = [round_.clients[u].unmask(request) for u in range(4)]
    start = HEADER_SIZE + 2
    assert len(reveals[2]) == start + 5 * SHARE_SIZE
    for place in range(start, len(reveals[2])):
        server = copy.deepcopy(round_.server)
        owner = (place - start) // SHARE_SIZE
        with pytest.raises(
            TamperError, match=rf"client {owner}|client 2 revealed a share outside|32-byte secret"
        ):
            collect_all(server, [*reveals[:2], flip(reveals[2], place), reveals[3]])
    assert collect_all(round_.server, reveals) == exact_sum(round_.vectors[:4], WORD32)


def collect_all(server: SecureAggregationServer, reveals: Sequence[bytes]) -> list[int]:
    for u, reveal in enumerate(reveals):
        server.collect(u, reveal)
    found: list[int] = server.total().tolist()
    return found


def test_with_one_share_to_spare_the_false_one_is_named_and_the_sum_is_made() -> None:
    round_ = a_round(5)
    reveals = revealed(round_)
    reveals[1] = flip(reveals[1], HEADER_SIZE + 2 + 3 * SHARE_SIZE)
    assert collect_all(round_.server, reveals) == exact_sum(round_.vectors, WORD32)
    assert round_.server.culprits == (1,)


def test_as_many_false_revealers_as_shares_to_spare_are_named_and_the_sum_is_made() -> None:
    round_ = a_round(9, threshold=6)
    reveals = revealed(round_)
    for liar in (0, 4, 7):
        for owner in (2, 5, 8):
            reveals[liar] = flip(reveals[liar], HEADER_SIZE + 2 + owner * SHARE_SIZE + liar)
    assert collect_all(round_.server, reveals) == exact_sum(round_.vectors, WORD32)
    assert round_.server.culprits == (0, 4, 7)


def test_two_liars_whose_errors_cancel_frame_nobody() -> None:
    """Errors in the ratio of two Lagrange weights rebuild the true secret, and an honest share is off it."""
    round_ = a_round(9, threshold=6)
    reveals = revealed(round_)
    quorum_ = [0, 1, 2, 4, 5, 6]  # without client 3, who is honest
    weights = dict(zip(quorum_, lagrange_weights(quorum_), strict=True))
    for owner, (liar, error) in itertools.product((6, 7, 8), ((0, weights[4]), (4, -weights[0]))):
        start = HEADER_SIZE + 2 + owner * SHARE_SIZE
        head, tail = reveals[liar][:start], reveals[liar][start + SHARE_SIZE :]
        share = (share_of(owner, reveals[liar]) + error) % PRIME
        reveals[liar] = head + share.to_bytes(SHARE_SIZE, "little") + tail
    assert collect_all(round_.server, reveals) == exact_sum(round_.vectors, WORD32)
    assert round_.server.culprits == (0, 4)


def test_a_dealer_whose_shares_differ_from_his_secret_in_two_places_is_the_culprit() -> None:
    round_ = a_round(9, threshold=6)
    reveals = revealed(round_)
    for holder in (1, 6):  # as if client 3 had dealt them so
        reveals[holder] = flip(reveals[holder], HEADER_SIZE + 2 + 3 * SHARE_SIZE)
    assert collect_all(round_.server, reveals) == exact_sum(round_.vectors, WORD32)
    assert round_.server.culprits == (3,)


def test_with_no_share_to_spare_a_false_revealer_ends_the_sum_and_nobody_innocent_is_named() -> None:
    round_ = a_round(5, threshold=5)
    reveals = revealed(round_)
    for owner in range(5):
        reveals[1] = flip(reveals[1], HEADER_SIZE + 2 + owner * SHARE_SIZE)
    with pytest.raises(TamperError, match=r"Either clients \[0, 1, 2, 3, 4\] dealt false shares, or too few"):
        collect_all(round_.server, reveals)
    assert round_.server.culprits == ()


def test_a_dealer_of_false_shares_is_named() -> None:
    round_ = a_round(4)
    round_.clients[2]._entropy = liar = stream("liar")
    keys = round_.keys()
    for u in range(4):
        message = round_.clients[u].share_keys(keys)
        if u == 2:  # commit to another seed than the one that was dealt
            message = message[:HEADER_SIZE] + liar(32) + message[HEADER_SIZE + 32 :]
        round_.server.collect(u, message)
    deliveries = round_.server.deliver_shares()
    for u in range(4):
        round_.server.collect(u, round_.clients[u].mask(deliveries[u], round_.vectors[u]))
    request = round_.server.announce_survivors()
    for u in range(4):
        round_.server.collect(u, round_.clients[u].unmask(request))
    with pytest.raises(TamperError, match="seed rebuilt for client 2 is not the one it committed to"):
        round_.server.total()
    assert round_.server.culprits == (2,)


def test_a_share_outside_the_field_is_refused() -> None:
    round_ = a_round(3)
    reveal = revealed(round_)[0]
    start = HEADER_SIZE + 2
    false = reveal[:start] + PRIME.to_bytes(SHARE_SIZE, "little") + reveal[start + SHARE_SIZE :]
    with pytest.raises(TamperError, match="client 0 revealed a share outside the field"):
        round_.server.collect(0, false)


# --- vectors


def test_a_masked_vector_of_another_length_is_refused_and_not_added() -> None:
    round_ = a_round(3)
    deliveries = round_.deliveries()
    true = round_.clients[0].mask(deliveries[0], round_.vectors[0])
    for false in (true[:-4], true + bytes(4), flip(true, HEADER_SIZE + 96)):
        with pytest.raises(MessageError):
            round_.server.collect(0, false)
    assert round_.server.survivors == ()
    round_.server.collect(0, true)


def test_an_unreduced_table_is_refused() -> None:
    round_ = a_round(3, ring=FIELD61)
    round_.deliveries()
    words = np.full(8, FIELD61.modulus, dtype="<u8")
    message = Writer(Kind.MASKED, round_.session.id, 0).raw(bytes(96)).array(words).finish()
    with pytest.raises(MessageError, match="client 0's masked vector: a word is not below"):
        round_.server.collect(0, message)


# --- unmasking


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        ([0, 1, 2], DropoutError),  # t − 1
        ([1, 2, 3, 4], TamperError),  # without the client that is asked
        ([0, 1, 2, 2, 3], MessageError),  # one of them twice
        ([0, 1, 3, 2], MessageError),
        ([0, 1, 2, 5], MessageError),  # not in the roster
        ([], TamperError),
    ],
)
def test_a_false_list_of_survivors_is_refused(listed: list[int], error: type[ProtocolError]) -> None:
    round_ = a_round()
    request = round_.request()
    with pytest.raises(error):
        round_.clients[0].unmask(survivors(round_, listed))
    round_.clients[0].unmask(request)


def test_a_survivor_who_shared_no_keys_is_refused() -> None:
    round_ = Round(make_session(5), random_vectors(5, 8, WORD32), [R3, R3, R3, R3, 0])
    round_.request()
    with pytest.raises(TamperError, match=r"\[4\] are named as survivors but delivered no shares"):
        round_.clients[0].unmask(survivors(round_, range(5)))


def test_a_second_unmasking_is_refused_even_for_the_same_survivors() -> None:
    round_ = a_round()
    request = round_.request()
    round_.clients[0].unmask(request)
    with pytest.raises(RefusedError, match="once"):
        round_.clients[0].unmask(request)


def test_a_second_unmasking_with_other_survivors_is_refused_after_a_restart() -> None:
    journals = [Journal() for _ in range(5)]
    session = make_session(5)
    round_ = Round(session, random_vectors(5, 8, WORD32), journals=journals)
    request = round_.request()
    stored = round_.clients[0].export_secrets()
    round_.clients[0].unmask(request)
    again = SecureAggregationClient(session, 0, identity(0), Journal.from_bytes(journals[0].to_bytes()))
    again.restore_secrets(stored)
    with pytest.raises(RefusedError, match="was unmasked for clients"):
        again.unmask(survivors(round_, [0, 1, 2, 3]))


# --- the consistency round


def consented() -> tuple[Round, dict[int, bytes]]:
    round_ = a_round(signed=True)
    request = round_.survivors()
    return round_, {u: round_.clients[u].consent(request)[HEADER_SIZE:] for u in range(5)}


def quorum(session: Session, listed: Sequence[int], signatures: dict[int, bytes]) -> bytes:
    writer = Writer(Kind.QUORUM, session.id, SERVER).numbers(list(listed), 2).numbers(sorted(signatures), 2)
    return writer.raw(b"".join(signatures[s] for s in sorted(signatures))).finish()


def test_other_survivors_than_those_signed_are_refused() -> None:
    round_, signatures = consented()
    del signatures[4]
    with pytest.raises(TamperError, match="other survivors than those this client signed"):
        round_.clients[0].unmask(quorum(round_.session, [0, 1, 2, 3], signatures))


def test_fewer_signatures_than_the_threshold_are_refused() -> None:
    round_, signatures = consented()
    few = {u: signatures[u] for u in range(3)}
    with pytest.raises(DropoutError, match="3 clients signed the survivors"):
        round_.clients[0].unmask(quorum(round_.session, range(5), few))


def test_a_forged_signature_over_the_survivors_is_refused() -> None:
    round_, signatures = consented()
    signatures[3] = flip(signatures[3], 5)
    with pytest.raises(TamperError, match="signature of client 3"):
        round_.clients[0].unmask(quorum(round_.session, range(5), signatures))
    message = Writer(Kind.CONSENT, round_.session.id, 3).raw(signatures[3]).finish()
    with pytest.raises(TamperError, match="signature of client 3"):
        round_.server.collect(3, message)


def test_the_consistency_round_cannot_be_skipped_or_added() -> None:
    signed, unsigned = a_round(signed=True), a_round()
    with pytest.raises(RefusedError, match="consented"):
        signed.clients[0].unmask(signed.survivors())
    with pytest.raises(RefusedError, match="signed=True"):
        unsigned.clients[0].consent(unsigned.survivors())


# --- a server that shows two views


def split_view(threshold: int) -> NDArray[np.uint32]:
    """Tell some clients that client 0 survived and the rest that it dropped out; client 4 helps."""
    session = make_session(5, threshold=threshold)
    round_ = Round(session, random_vectors(5, 8, WORD32))
    deliveries = round_.deliveries()
    masked = [round_.clients[u].mask(deliveries[u], round_.vectors[u]) for u in range(5)]
    colluder = SecureAggregationClient(session, 4, identity(4), Journal())
    colluder.restore_secrets(round_.clients[4].export_secrets())
    for u in range(5):
        round_.server.collect(u, masked[u])
    everybody, without = survivors(round_, range(5)), survivors(round_, range(1, 5))
    seeds = {u: share_of(0, round_.clients[u].unmask(everybody)) for u in (0, 1, 4)}
    helpers = {2: round_.clients[2], 3: round_.clients[3], 4: colluder}
    if session.needs_consent(range(5), range(1, 5)):
        consents = {u: client.consent(without)[HEADER_SIZE:] for u, client in helpers.items()}
        without = quorum(session, range(1, 5), consents)
    keys = {u: share_of(0, client.unmask(without)) for u, client in helpers.items()}
    seed, mask_key = combine_shares(seeds), EphemeralKey(combine_shares(keys))
    vector = np.frombuffer(masked[0][HEADER_SIZE + 104 :], dtype="<u4").copy()
    streams = [(self_mask_key(seed, session.id, 0, UNBOUND), -1)]
    for u in range(1, 5):
        public = round_.server._adverts[u][0][1]
        key = bound_key(pairwise_mask_key(mask_key, session.id, 0, u, public), UNBOUND)
        streams.append((key, -pairwise_sign(0, u)))
    add_masks(vector, WORD32, streams)
    return vector


def share_of(owner: int, reveal: bytes) -> int:
    start = HEADER_SIZE + 2 + owner * SHARE_SIZE
    return int.from_bytes(reveal[start : start + SHARE_SIZE], "little")


def test_a_split_view_with_one_colluder_succeeds_below_the_default_threshold_and_fails_at_it() -> None:
    target = random_vectors(5, 8, WORD32)[0]
    assert np.array_equal(split_view(threshold=3), target)  # 2t = n + c: the documented limit
    assert not np.array_equal(split_view(threshold=4), target)


def test_parties_of_different_sessions_cannot_be_mixed() -> None:
    ours, theirs = make_clients(make_session(3)), SecureAggregationServer(make_session(3, context=b"x"))
    with pytest.raises(MessageError, match="another session"):
        theirs.collect(0, ours[0].advertise())
