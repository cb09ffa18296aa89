"""Pseudonyms through helpers: the same for all, computable by none alone, and rationed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fedkge.crypto import Journal, UnionSession
from fedkge.crypto.union import ObliviousUnionClient, ObliviousUnionServer
from fedkge.crypto.union.oprf import OprfHelper, OprfQuery, hash_to_point, multiply_points
from fedkge.crypto.union.pseudonyms import Pseudonyms
from fedkge.crypto.wire import HEADER_SIZE
from fedkge.errors import MessageError, RefusedError, SettingError, TamperError
from tests.crypto.parties import identity, roster, stream

SESSION = UnionSession(roster(4), "run", "relation")
HELPERS = [1, 3]
BUDGET = 5


def make_helpers(chain: Sequence[int] = HELPERS) -> list[OprfHelper]:
    return [
        OprfHelper(SESSION, chain, BUDGET, h, identity(h), Journal(), _entropy=stream("helper", h))
        for h in chain
    ]


def make_query(client: int, names: Sequence[str], chain: Sequence[int] = HELPERS) -> OprfQuery:
    return OprfQuery(
        SESSION, chain, BUDGET, client, identity(client), names, _entropy=stream("query", client)
    )


def ask(client: int, names: Sequence[str], helpers: Sequence[OprfHelper]) -> Pseudonyms:
    query = make_query(client, names)
    message = query.query()
    for helper in helpers:
        message = helper.answer(client, message)
    return query.finish(message)


def test_all_clients_get_the_same_pseudonym_for_the_same_name() -> None:
    helpers = make_helpers()
    first = ask(0, ["a", "b", "caf\u00e9"], helpers)
    second = ask(2, ["cafe\u0301", "b"], helpers)
    assert first.find(second).tolist() == [2, 1]
    assert len(Pseudonyms.concatenate([first, second]).distinct()) == 3


def test_a_pseudonym_needs_every_helper_s_secret() -> None:
    full = ask(0, ["a"], make_helpers())
    for missing in (0, 1):
        helpers = make_helpers()
        helpers[missing].secret += 1
        assert full.find(ask(0, ["a"], helpers)).tolist() == [-1]


def test_blinding_cancels_whatever_the_blind_and_the_sign_of_the_point() -> None:
    point = hash_to_point(b"name")
    direct = multiply_points(6 * 35, [point])
    assert multiply_points(35, multiply_points(6, [point])) == direct
    assert len(direct[0]) == 32


def test_queries_for_different_names_have_the_same_size_and_nothing_in_common() -> None:
    small, large = make_query(0, ["a"]).query(), make_query(2, ["a", "b", "c"]).query()
    assert len(small) == len(large)
    start = HEADER_SIZE + 1 + 64 + 8
    points = [m[i : i + 32] for m in (small, large) for i in range(start, len(m), 32)]
    assert len(set(points)) == 2 * BUDGET
    assert hash_to_point(b"a") not in points


def test_a_second_query_is_refused_even_after_a_restart() -> None:
    journal = Journal()
    helper = OprfHelper(SESSION, HELPERS, BUDGET, 1, identity(1), journal)
    message = make_query(0, ["a"]).query()
    helper.answer(0, message)
    reborn = OprfHelper(SESSION, HELPERS, BUDGET, 1, identity(1), Journal.from_bytes(journal.to_bytes()))
    reborn.restore_secrets(helper.export_secrets())
    for again in (helper, reborn):
        with pytest.raises(RefusedError, match="spent its query budget"):
            again.answer(0, message)
    assert reborn.export_secrets() == helper.export_secrets()


def test_more_names_than_the_budget_are_refused_on_both_sides() -> None:
    with pytest.raises(SettingError, match="6 identifiers exceed the query budget of 5"):
        make_query(0, list("abcdef"))
    greedy = OprfQuery(SESSION, HELPERS, 6, 0, identity(0), list("abcdef"))
    with pytest.raises(RefusedError, match="asks for 6 points"):
        make_helpers()[0].answer(0, greedy.query())


def test_the_server_cannot_query_in_a_client_s_name_or_skip_a_helper() -> None:
    helpers = make_helpers()
    message = make_query(0, ["a"]).query()
    forged = bytearray(message)
    forged[-1] ^= 1
    with pytest.raises(TamperError, match="signature of client 0"):
        helpers[0].answer(0, bytes(forged))
    with pytest.raises(MessageError, match="came from 2"):
        helpers[0].answer(2, message)
    with pytest.raises(MessageError, match="hop 0 came where hop 1"):
        helpers[1].answer(0, message)
    query = make_query(0, ["a"])
    with pytest.raises(MessageError, match="hop 1 came where hop 2"):
        query.finish(helpers[0].answer(0, message))


def test_an_interrupted_query_is_taken_up_again() -> None:
    helpers = make_helpers()
    query = make_query(0, ["a", "b"])
    message = query.query()
    for helper in helpers:
        message = helper.answer(0, message)
    reborn = OprfQuery(SESSION, HELPERS, BUDGET, 0, identity(0), ["a", "b"])
    reborn.restore_secrets(query.export_secrets())
    assert np.array_equal(reborn.finish(message).high, query.finish(message).high)


@pytest.mark.parametrize("chain", [[], [1, 1], [1, 4], [-1]])
def test_impossible_helpers_are_refused(chain: list[int]) -> None:
    with pytest.raises(SettingError, match="helpers"):
        make_query(0, ["a"], chain)


def test_only_a_helper_helps_and_only_once_per_run() -> None:
    session = UnionSession(roster(4), "run", "relation", helpers=(1,), budget=2)
    journals = [Journal() for _ in range(4)]
    clients = [ObliviousUnionClient(session, u, identity(u), journals[u], ["a"]) for u in range(4)]
    server = ObliviousUnionServer(session, expected=10)
    server.collect({u: clients[u].answer(request) for u, request in server.requests.items()})
    (request,) = server.requests.values()
    with pytest.raises(RefusedError, match="not one of the helpers"):
        clients[0].answer(request)
    clients[1].answer(request)
    anew = ObliviousUnionClient(session, 1, identity(1), journals[1], ["a"])
    with pytest.raises(RefusedError, match="begin a new run"):
        anew.answer(request)


def test_a_query_asked_for_twice_is_the_same() -> None:
    """Between two paddings the names would be what stays."""
    query = OprfQuery(SESSION, HELPERS, BUDGET, 0, identity(0), ["a", "b"])
    first = query.query()
    reborn = OprfQuery(SESSION, HELPERS, BUDGET, 0, identity(0), ["a", "b"])
    reborn.restore_secrets(query.export_secrets())
    assert query.query() == reborn.query() == first
