"""A union gives all clients the same row for the same identifier, and shows no more than its mode says."""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fedkge.crypto import UNION_MODES, Journal, UnionClient, UnionRows, UnionServer, UnionSession
from fedkge.crypto.keys import derive_key
from fedkge.crypto.union import HashedUnionServer, PrivateUnionClient, PrivateUnionServer
from fedkge.crypto.union.pseudonyms import pseudonyms_under
from fedkge.crypto.union.table import TableShape
from fedkge.crypto.wire import HEADER_SIZE, Kind
from fedkge.errors import DropoutError, MessageError, ProtocolError, RefusedError, TamperError
from tests.crypto.parties import identity, roster, stream

MODES = sorted(UNION_MODES)
HELD = [
    ["born in", "capital of", "part of"],
    ["capital of", "treats", "part of"],
    ["treats"],
    ["born in", "cousin of", "part of", "née"],
]


class Conversation:
    """All parties of one union, and every message that passed the server."""

    def __init__(
        self,
        mode: str,
        held: Sequence[Sequence[str]],
        *,
        generation: int = 0,
        expected: int = 64,
        keys: Sequence[bytes] | None = None,
        journals: Sequence[Journal] | None = None,
        listing: object = None,
        seed: object = 0,
        signed: bool = False,
    ) -> None:
        n = len(held)
        oblivious = {"helpers": (0, n - 1), "budget": max(map(len, held))} if mode == "oprf" else {}
        self.session = UnionSession(roster(n), "run", "relation", generation, signed=signed, **oblivious)
        client_class, server_class = UNION_MODES[mode]
        self.journals = journals or [Journal() for _ in range(n)]
        self.clients: list[UnionClient] = [
            client_class(
                self.session,
                u,
                identity(u),
                self.journals[u],
                held[u],
                key=keys[u] if keys else b"",
                _entropy=stream(seed, mode, generation, u),
            )
            for u in range(n)
        ]
        self.server: UnionServer = server_class(self.session, expected=expected, listing=listing)
        self.uploads: dict[int, list[bytes]] = {u: [] for u in range(n)}
        self.downloads: list[bytes] = []
        self.exchanges = 0

    def step(self, absent: Sequence[int] = ()) -> None:
        replies = {}
        for u, request in self.server.requests.items():
            self.downloads.append(request)
            if u not in absent:
                replies[u] = self.clients[u].answer(request)
                self.uploads[u].append(replies[u])
        self.server.collect(replies)
        self.exchanges += 1

    def run(self) -> list[UnionRows]:
        while not self.server.done:
            self.step()
        listing = self.server.listing_message()
        self.downloads.append(listing)
        return [client.finish(listing) for client in self.clients]


def row_of(held: Sequence[Sequence[str]], found: Sequence[UnionRows]) -> dict[str, int]:
    """Each identifier's row, once all clients agree on it and no two identifiers share one."""
    rows: dict[str, int] = {}
    for names, result in zip(held, found, strict=True):
        for name, row in zip(names, result.rows.tolist(), strict=True):
            assert rows.setdefault(unicodedata.normalize("NFC", name), row) == row
    assert len(set(rows.values())) == len(rows)
    return rows


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_shared_dense_and_one_per_identifier(mode: str) -> None:
    found = Conversation(mode, HELD).run()
    rows = row_of(HELD, found)
    assert sorted(rows.values()) == list(range(6))
    assert {result.num_rows for result in found} == {6}
    assert len({result.digest for result in found}) == 1


@pytest.mark.parametrize("mode", MODES)
def test_random_sets_give_their_union(mode: str) -> None:
    rng = np.random.default_rng(1)
    for case in range(12):
        pool = [f"/m/{i:05x}" for i in range(int(rng.integers(1, 120)))]
        held = [[name for name in pool if rng.random() < 0.4] for _ in range(int(rng.integers(3, 6)))]
        found = Conversation(mode, held, expected=int(rng.integers(1, 100)), seed=case).run()
        rows = row_of(held, found)
        assert set(rows) == set().union(*held)
        assert sorted(rows.values()) == list(range(found[0].num_rows))


@pytest.mark.parametrize("mode", MODES)
def test_one_letter_composed_in_two_ways_is_one_identifier(mode: str) -> None:
    held = [["caf\u00e9"], ["cafe\u0301"], ["tea"]]
    found = Conversation(mode, held).run()
    assert found[0].rows.tolist() == found[1].rows.tolist()
    assert found[0].num_rows == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_client_without_identifiers_takes_part(mode: str) -> None:
    found = Conversation(mode, [["a"], [], ["a", "b"]]).run()
    assert [len(result.rows) for result in found] == [1, 0, 2]
    assert found[1].num_rows == 2


@pytest.mark.parametrize("mode", MODES)
def test_later_identifiers_append_and_old_rows_stay(mode: str) -> None:
    first = Conversation(mode, HELD)
    before = row_of(HELD, first.run())
    more = [[*names, f"new {u}", "aaa"] for u, names in enumerate(HELD)]
    keys = [client.export_key() for client in first.clients]
    second = Conversation(
        mode,
        more,
        generation=1,
        keys=keys,
        journals=first.journals,
        listing=first.server.listing,  # type: ignore[attr-defined]
    )
    after = row_of(more, second.run())
    assert {name: after[name] for name in before} == before
    assert sorted(set(after.values()) - set(before.values())) == list(range(6, 11))


@pytest.mark.parametrize(
    ("mode", "signed", "exchanges"),
    [
        ("plain", False, 1),
        ("hashed", False, 3),
        ("private", False, 4),
        ("private", True, 5),
        ("oprf", False, 7),
        ("oprf", True, 8),
    ],
)
def test_a_union_takes_few_exchanges(mode: str, signed: bool, exchanges: int) -> None:
    conversation = Conversation(mode, HELD, signed=signed)
    assert sorted(row_of(HELD, conversation.run()).values()) == list(range(6))
    assert conversation.exchanges == exchanges


def test_a_table_that_is_too_small_is_doubled_under_fresh_masks() -> None:
    held = [[f"r{i}" for i in range(u, 300)] for u in range(3)]
    conversation = Conversation("private", held, expected=40)
    found = conversation.run()
    assert sorted(row_of(held, found).values()) == list(range(300))
    assert conversation.exchanges % 4 == 0
    assert conversation.exchanges > 4


@pytest.mark.parametrize("mode", MODES)
def test_clients_can_be_interrupted_between_any_two_steps(mode: str) -> None:
    conversation = Conversation(mode, HELD, expected=2)
    client_class = UNION_MODES[mode][0]
    while not conversation.server.done:
        conversation.step()
        for u, client in enumerate(conversation.clients):
            conversation.journals[u] = Journal.from_bytes(conversation.journals[u].to_bytes())  # type: ignore[index]
            reborn = client_class(conversation.session, u, identity(u), conversation.journals[u], HELD[u])
            reborn.restore_secrets(client.export_secrets())
            conversation.clients[u] = reborn
    found = [client.finish(conversation.server.listing_message()) for client in conversation.clients]
    assert sorted(row_of(HELD, found).values()) == list(range(6))
    if mode != "plain":
        row_secrets(conversation)


def row_secrets(conversation: Conversation) -> dict[str, bytes]:
    """What each identifier's initial row comes from, once all clients agree on it."""
    secrets: dict[str, bytes] = {}
    for client in conversation.clients:
        secret, names = client.row_secret("relation"), client._identifiers
        parts = [secret[i : i + 32] for i in range(0, len(secret), 32)]
        for name, part in zip(names, parts if len(parts) == len(names) else parts * len(names), strict=True):
            assert secrets.setdefault(unicodedata.normalize("NFC", name), part) == part
    return secrets


@pytest.mark.parametrize("mode", ["hashed", "private", "oprf"])
def test_what_initial_rows_come_from_is_the_clients_alone(mode: str) -> None:
    conversation, messages = transcript(mode)
    secrets = set(row_secrets(conversation).values())
    assert len(secrets) == (len(NAMES) if mode == "oprf" else 1)
    assert not any(secret in message for secret in secrets for message in messages)
    fresh = Conversation(mode, HELD)
    with pytest.raises(RefusedError, match=r"no group key|no name is looked up"):
        fresh.clients[0].row_secret("relation")


# --- what the server sees


def encodings(name: str) -> list[bytes]:
    """A name as it might stand in a message: in clear, or as an unkeyed hash, cut, raw or printed."""
    forms = [
        name.encode(),
        name.encode("utf-16-le"),
        name.encode().hex().encode(),
        base64.b64encode(name.encode()),
    ]
    for algorithm in ("md5", "sha1", "sha256", "sha512", "sha3_256", "blake2b", "blake2s"):
        digest = hashlib.new(algorithm, name.encode()).digest()
        forms += [
            digest[:8],
            digest[-8:],
            digest[:8][::-1],
            digest.hex()[:16].encode(),
            base64.b64encode(digest)[:10],
        ]
    return forms


def leaks(messages: Sequence[bytes], names: Sequence[str]) -> set[str]:
    wire = b"\0".join(messages)
    return {name for name in names if any(form in wire for form in encodings(name))}


NAMES = [f"/people/person/place_{i:04d}" for i in range(60)]


def transcript(mode: str) -> tuple[Conversation, list[bytes]]:
    conversation = Conversation(mode, [NAMES[:40], NAMES[20:], NAMES[10:50]])
    conversation.run()
    return conversation, conversation.downloads + [m for sent in conversation.uploads.values() for m in sent]


def test_no_identifier_and_no_unkeyed_hash_is_on_the_wire() -> None:
    assert leaks(transcript("plain")[1], NAMES) == set(NAMES)  # the search finds what is there
    assert leaks([hashlib.sha256(name.encode()).digest() for name in NAMES], NAMES) == set(NAMES)
    assert leaks(transcript("hashed")[1], NAMES) == set()
    assert leaks(transcript("private")[1], NAMES) == set()
    assert leaks(transcript("oprf")[1], NAMES) == set()


def held_pseudonyms(mode: str) -> list[set[int]]:
    """For each client, which of the union's pseudonyms occur in what it sent."""
    conversation, _ = transcript(mode)
    key = derive_key(conversation.clients[0].export_key(), b"fedkge pseudonyms" + b"relation")
    packed = pseudonyms_under(key, NAMES).to_wire()
    sent = [b"".join(messages) for messages in conversation.uploads.values()]
    return [{i for i in range(60) if packed[i].tobytes() in wire} for wire in sent]


def test_hashed_mode_shows_who_holds_what_and_private_mode_does_not() -> None:
    assert held_pseudonyms("hashed") == [set(range(40)), set(range(20, 60)), set(range(10, 50))]
    assert held_pseudonyms("private") == [set(), set(), set()]


def test_the_group_key_is_not_on_the_wire_and_differs_between_runs() -> None:
    conversation, messages = transcript("private")
    keys = {client.export_key() for client in conversation.clients}
    assert len(keys) == 1
    assert not any(key in message for key in keys for message in messages)
    other = Conversation("private", HELD, seed="another run")
    other.run()
    assert other.clients[0].export_key() not in keys


@pytest.mark.parametrize("mode", ["private", "oprf"])
def test_a_client_s_upload_has_the_same_size_whatever_it_holds(mode: str) -> None:
    conversation = Conversation(mode, [NAMES, [], NAMES[:1]])
    conversation.run()
    helped = Kind.OPRF_HELP  # what a helper returns is everybody's
    sizes = {
        tuple(len(message) for message in sent if message[5] != helped)
        for sent in conversation.uploads.values()
    }
    assert len(sizes) == 1


# --- bad input


def test_a_missing_client_stops_the_key_agreement_by_name() -> None:
    for mode in ("plain", "hashed", "private"):
        with pytest.raises(DropoutError, match=r"clients \[2\]"):
            Conversation(mode, HELD).step(absent=[2])


def test_a_client_that_drops_out_later_is_left_out_and_told() -> None:
    conversation = Conversation("private", [["a", "x"], ["b", "x"], ["c", "x"], ["d", "x"]])
    conversation.step()
    conversation.step()
    conversation.step(absent=[3])
    conversation.step()
    assert isinstance(conversation.server, PrivateUnionServer)
    assert conversation.server.survivors == (0, 1, 2)
    listing = conversation.server.listing_message()
    assert conversation.clients[0].finish(listing).num_rows == 4
    with pytest.raises(RefusedError, match="no group key"):
        conversation.clients[3].finish(listing)


class Spoiler(PrivateUnionClient):
    """Adds items of its own whose cells do not fit together."""

    def _table(self, shape: TableShape) -> NDArray[np.uint64]:
        return super()._table(shape) | np.uint64(1)


def test_a_false_table_blocks_the_union_and_nothing_is_listed() -> None:
    conversation = Conversation("private", HELD)
    conversation.server = PrivateUnionServer(conversation.session, expected=64)
    conversation.server.max_expected = 300
    conversation.clients[1] = Spoiler(conversation.session, 1, identity(1), Journal(), HELD[1])
    with pytest.raises(TamperError, match="no table for up to 256 items peels: a client's table is false"):
        conversation.run()
    with pytest.raises(RefusedError, match="not known yet"):
        conversation.server.listing_message()


def test_clients_with_different_keys_are_found_out_before_their_tables_are_summed() -> None:
    conversation = Conversation("private", HELD)
    conversation.step()
    conversation.step()
    conversation.clients[1]._key = b"x" * 32
    with pytest.raises(TamperError, match=r"one per group: \[0, 2, 3\]; \[1\]"):
        conversation.step()


@pytest.mark.parametrize("mode", MODES)
def test_a_listing_that_was_changed_is_refused(mode: str) -> None:
    conversation = Conversation(mode, HELD)
    conversation.run()
    listing = bytearray(conversation.server.listing_message())
    for place in range(HEADER_SIZE, len(listing)):
        listing[place] ^= 1
        with pytest.raises(ProtocolError):
            conversation.clients[0].finish(bytes(listing))
        listing[place] ^= 1


def test_a_listing_without_one_s_own_identifiers_is_refused() -> None:
    conversation = Conversation("hashed", HELD)
    conversation.run()
    other = Conversation("hashed", [["x"], ["y"], ["z"], ["w"]])
    other.run()
    with pytest.raises(TamperError, match="3 of this client's 3 identifiers are not in the union"):
        conversation.clients[0].finish(other.server.listing_message())


def test_requests_out_of_turn_are_refused() -> None:
    conversation = Conversation("private", HELD)
    client = conversation.clients[0]
    with pytest.raises(MessageError, match="not a request of this kind of union"):
        client.answer(b"")
    hashed = Conversation("hashed", HELD)
    hashed.step()
    hashed.step()
    with pytest.raises(MessageError, match="not a request of this kind of union; it answers UNION_OPEN"):
        client.answer(next(iter(hashed.server.requests.values())))
    assert isinstance(hashed.server, HashedUnionServer)
    assert next(iter(hashed.server.requests.values()))[5] == Kind.UNION_IDS


def test_a_replayed_union_is_refused() -> None:
    first = Conversation("private", HELD)
    first.run()
    with pytest.raises(RefusedError, match="opened before"):
        Conversation("private", HELD, journals=first.journals, seed=0).clients[0].answer(first.downloads[0])


def test_replies_nobody_asked_for_are_refused() -> None:
    conversation = Conversation("plain", HELD)
    with pytest.raises(MessageError, match=r"clients \[9\] answer"):
        conversation.server.collect({9: b""})
    conversation.run()
    with pytest.raises(MessageError, match="known already"):
        conversation.server.collect({})
