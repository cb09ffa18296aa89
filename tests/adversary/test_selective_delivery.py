"""Issue 16, finding 5: a server that delivers envelopes selectively and shows different lists of survivors.

The adversary chooses who gets whose envelopes and which list each client is asked to unmask, with c colluding
clients that hold all shares and sign anything. It wins if it can rebuild the masks around fewer than t − c
honest clients. The search is over a model of who answers what; a test holds the model against real clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest

from fedkge.crypto import WORD32
from fedkge.crypto.aggregation.client import ENVELOPE_SIZE
from fedkge.crypto.keys import SIGNATURE_SIZE
from fedkge.crypto.wire import HEADER_SIZE, SERVER, Kind, Writer
from fedkge.errors import ProtocolError
from tests.crypto.parties import Round, make_session, random_vectors

Clients = frozenset[int]
Choice = dict[int, Clients]  # honest client -> whose envelopes it opened, or whom it is asked to unmask


@dataclass(frozen=True)
class Game:
    """n clients of which the last c collude with the server, and t shares that rebuild a secret."""

    n: int
    t: int
    c: int

    @property
    def honest(self) -> range:
        return range(self.n - self.c)

    @property
    def colluders(self) -> Clients:
        return frozenset(range(self.n - self.c, self.n))

    @property
    def cover(self) -> int:
        """How many honest clients a sum must have."""
        return self.t - self.c


Rule = Callable[[Game, Choice, Choice], Choice]


def before(game: Game, opened: Choice, lists: Choice) -> Choice:
    """Who answered, in the code before: whoever is on a list of enough clients whose envelopes it opened."""
    return {u: named for u, named in lists.items() if u in named <= opened[u] and len(named) >= game.t}


def signed_alike(game: Game, opened: Choice, lists: Choice) -> Choice:
    """… and all on the list have signed that they opened the same envelopes."""
    return {
        u: named
        for u, named in before(game, opened, lists).items()
        if all(opened[v] == opened[u] for v in named - game.colluders)
    }


def now(game: Game, opened: Choice, lists: Choice) -> Choice:
    """… and where lists could differ, t of those on the list have signed the list itself."""
    asked = signed_alike(game, opened, lists)
    if game.t >= game.n - 1:
        return asked
    consents = {
        (named, opened[u]): {v for v, other in asked.items() if other == named and opened[v] == opened[u]}
        for u, named in asked.items()
        if named != opened[u]
    }
    return {
        u: named
        for u, named in asked.items()
        if named == opened[u] or len(consents[named, opened[u]] | (named & game.colluders)) >= game.t
    }


def exposed(game: Game, opened: Choice, answered: Mapping[int, Clients]) -> int | None:
    """The fewest honest clients whose vectors' sum the revealed shares leave bare; None if there is none."""
    kept = {w: opened[w] - named for w, named in answered.items()}
    seeds = {u for u in game.honest if game.c + sum(u in named for named in answered.values()) >= game.t}
    keys = {u for u in game.honest if game.c + sum(u in dropped for dropped in kept.values()) >= game.t}
    best: int | None = None
    for start in seeds:
        group, edge, bare = {start}, [start], True
        while edge and bare:
            u = edge.pop()
            hidden = {v for v in opened[u] - game.colluders - {u} if not {u, v} & keys}
            bare = all(v in seeds and u in opened[v] for v in hidden)  # or its mask stays, or does not cancel
            edge += hidden - group
            group |= hidden
        if bare and (best is None or len(group) < best):
            best = len(group)
    return best


def wins(game: Game, rule: Rule, opened: Choice, lists: Choice) -> bool:
    found = exposed(game, opened, rule(game, opened, lists))
    return found is not None and found < game.cover


# --- the attack of the finding, for any n, t and c


def directed(game: Game, victim: int = 0) -> tuple[Choice, Choice]:
    """The victim opens t − 1 envelopes; everybody is shown lists that leave the senders out by turns."""
    others = [u for u in game.honest if u != victim]
    senders = others[: game.cover - 1]
    rest = others[game.cover - 1 :]
    opened = {u: frozenset(range(game.n)) for u in game.honest}
    opened[victim] = frozenset({victim, *senders}) | game.colluders
    lists, missed = {victim: opened[victim]}, dict.fromkeys(senders, 0)
    for u in [*rest, *senders]:
        named = {u, victim, *rest} | game.colluders
        spare = sorted((p for p in senders if p != u), key=missed.__getitem__, reverse=True)
        named |= set(spare[: max(game.t - len(named), 0)])
        lists[u] = frozenset(named)
        for p in set(senders) - named:
            missed[p] += 1
    return opened, lists


GRID = [
    Game(5, 3, 0),
    Game(20, 11, 0),
    Game(100, 51, 0),
    Game(7, 5, 2),
    Game(10, 7, 2),
    Game(50, 34, 8),
]


@pytest.mark.parametrize("game", GRID, ids=str)
def test_the_directed_attack_bares_one_client_before_and_nobody_now(game: Game) -> None:
    opened, lists = directed(game)
    assert exposed(game, opened, before(game, opened, lists)) == 1
    assert exposed(game, opened, now(game, opened, lists)) is None


# --- all deliveries and all lists, for few clients


def choices(game: Game, client: int, among: Clients) -> list[Clients]:
    """All sets of at least t clients that have this client in them."""
    others = sorted(among - {client})
    return [
        frozenset({client, *chosen})
        for size in range(game.t - 1, len(others) + 1)
        for chosen in combinations(others, size)
    ]


def strategies(game: Game, rule: Rule) -> Iterator[tuple[Choice, Choice]]:
    """All deliveries, and for each all lists; only clients to whom no list could be shown are shown none.

    Fewer answers never help: every share that is revealed only takes masks away.
    """
    everybody = frozenset(range(game.n))
    for sets in product(*(choices(game, u, everybody) for u in game.honest)):
        opened = dict(zip(game.honest, sets, strict=True))
        if rule is before:
            allowed = {u: choices(game, u, opened[u]) for u in game.honest}
        else:
            alike = {
                u: frozenset(v for v in game.honest if opened[v] == opened[u]) | game.colluders
                for u in game.honest
            }
            allowed = {u: choices(game, u, opened[u] & alike[u]) for u in game.honest}
        asked = [u for u in game.honest if allowed[u]]
        if len(asked) >= game.cover:
            for lists in _lists(tuple(asked), tuple(tuple(allowed[u]) for u in asked)):
                yield opened, lists


@cache
def _lists(asked: tuple[int, ...], allowed: tuple[tuple[Clients, ...], ...]) -> list[Choice]:
    return [dict(zip(asked, lists, strict=True)) for lists in product(*allowed)]


SMALL = [
    Game(3, 3, 0),
    Game(4, 3, 0),
    Game(4, 3, 1),
    Game(4, 4, 2),
    Game(5, 3, 0),
    Game(5, 4, 1),
    Game(5, 4, 2),
]


@pytest.mark.parametrize("game", SMALL, ids=str)
def test_no_delivery_and_no_lists_bare_fewer_than_t_less_c_of_up_to_five_clients(game: Game) -> None:
    assert 2 * game.t > game.n + game.c
    sums, seen = 0, set()
    for opened, lists in strategies(game, now):
        answered = now(game, opened, lists)
        if len(answered) < game.cover:
            continue  # too few shares of anything
        key = tuple(opened.items()), tuple(sorted(answered.items()))
        if key in seen:
            continue
        seen.add(key)
        found = exposed(game, opened, answered)
        assert found is None or found >= game.cover, (opened, answered)
        sums += found is not None
    assert sums > 0  # the adversary can run the protocol as it is meant


def test_below_the_bound_the_same_search_wins() -> None:
    game = Game(5, 3, 1)  # 2t = n + c
    assert any(wins(game, now, opened, lists) for opened, lists in strategies(game, now))


def test_signatures_over_deliveries_alone_are_not_enough_below_n_less_one() -> None:
    """Everybody opened everything, and each is shown two clients and itself: their sum is bare."""
    game = Game(5, 3, 0)
    opened = {u: frozenset(range(5)) for u in range(5)}
    lists = {u: frozenset({0, 1, max(u, 2) if u > 1 else 2 + u}) for u in range(5)}
    assert exposed(game, opened, signed_alike(game, opened, lists)) == 2
    assert exposed(game, opened, now(game, opened, lists)) is None


@pytest.mark.parametrize("game", [Game(3, 3, 0), Game(4, 3, 0), Game(4, 3, 1), Game(5, 4, 1)], ids=str)
def test_with_t_of_n_less_one_signatures_over_deliveries_are_enough(game: Game) -> None:
    assert not any(
        wins(game, signed_alike, opened, lists) for opened, lists in strategies(game, signed_alike)
    )


# --- a random search that starts from the attack and from the honest run


def searched(game: Game, rule: Rule, trials: int, seed: int) -> tuple[int | None, int]:
    """The smallest sum that random changes lead to, and how often there was a sum at all."""
    rng = np.random.default_rng(seed)
    everybody = frozenset(range(game.n))
    best, sums = None, 0
    for trial in range(trials):
        changes = int(rng.integers(0, 4))
        if trial % 4 == 0:
            opened, lists = directed(game, int(rng.choice(game.honest)))
            changes = min(changes, trial)  # the first as it is
        elif trial % 4 == 1:
            opened = dict.fromkeys(game.honest, everybody)
            lists = dict.fromkeys(game.honest, everybody)
        for _ in range(changes):
            _change(game, opened, lists, rng)
        found = exposed(game, opened, rule(game, opened, lists))
        sums += found is not None
        if found is not None and (best is None or found < best):
            best = found
    return best, sums


def _change(game: Game, opened: Choice, lists: Choice, rng: np.random.Generator) -> None:
    """Give a group of clients one delivery, or one list, or each its own list of just t."""
    size = int(rng.integers(1, len(game.honest) + 1))
    group = [int(u) for u in rng.choice(game.honest, size, replace=False)]
    count = int(rng.integers(game.t, game.n + 1))
    common = {int(u) for u in rng.choice(game.n, count, replace=False)}
    kind = rng.integers(4)
    for u in group:
        if kind == 0:
            opened[u] = frozenset(common | {u, *group})
        elif kind == 1:
            lists[u] = frozenset(common | {u, *group}) & (opened[u] | {u})
        elif kind == 2:
            lists[u] = opened[u]
        else:
            spare = [int(v) for v in rng.permutation(sorted(opened[u] - {u}))]
            lists[u] = frozenset({u, *spare[: game.t - 1]})


@pytest.mark.parametrize("game", [*GRID, Game(12, 9, 3), Game(30, 29, 20)], ids=str)
def test_no_random_search_bares_fewer_than_t_less_c(game: Game) -> None:
    trials = 40 if game.n > 40 else 400
    best, sums = searched(game, now, trials, seed=game.n)
    assert best is not None
    assert best >= game.cover
    assert sums >= trials // 20
    if game in GRID:
        assert searched(game, before, 20, seed=game.n)[0] == 1


# --- the model is what the clients do


def answering(game: Game, opened: Choice, lists: Choice) -> set[int]:
    """Which real clients reveal their shares to a server that plays this strategy; nobody colludes."""
    session = make_session(game.n, threshold=game.t)
    round_ = Round(session, random_vectors(game.n, 8, WORD32))
    whole = round_.deliveries()
    signatures = {}
    for u, client in enumerate(round_.clients):
        senders = [v for v in range(game.n) if v != u]
        body = whole[u][-len(senders) * ENVELOPE_SIZE :]
        envelopes = {v: body[i * ENVELOPE_SIZE : (i + 1) * ENVELOPE_SIZE] for i, v in enumerate(senders)}
        chosen = sorted(opened[u] - {u})
        writer = Writer(Kind.DELIVERY, session.id, SERVER).numbers(chosen, 2)
        message = client.mask(writer.raw(b"".join(envelopes[v] for v in chosen)).finish(), round_.vectors[u])
        signatures[u] = message[HEADER_SIZE + 32 : HEADER_SIZE + 32 + SIGNATURE_SIZE]
    requests, consents = {}, {}
    for u, named in lists.items():
        writer = Writer(Kind.SURVIVORS, session.id, SERVER).numbers(sorted(named), 2)
        requests[u] = writer.raw(b"".join(signatures[v] for v in sorted(named))).finish()
        try:
            consents[u] = round_.clients[u].consent(requests[u])[HEADER_SIZE:]
        except ProtocolError:
            continue  # refused, or not needed
    answered = set()
    for u, named in lists.items():
        request = requests[u]
        if u in consents:
            signers = [v for v in sorted(consents) if lists[v] == named and opened[v] == opened[u]]
            writer = Writer(Kind.QUORUM, session.id, SERVER).numbers(sorted(named), 2).numbers(signers, 2)
            request = writer.raw(b"".join(consents[v] for v in signers)).finish()
        try:
            round_.clients[u].unmask(request)
        except ProtocolError:
            continue
        answered.add(u)
    return answered


@pytest.mark.parametrize("game", [Game(4, 3, 0), Game(5, 3, 0), Game(6, 4, 0)], ids=str)
def test_the_model_answers_as_the_clients_do(game: Game) -> None:
    rng = np.random.default_rng(game.n)
    numbers = []
    for trial in range(25):
        everybody = frozenset(range(game.n))
        opened, lists = dict.fromkeys(game.honest, everybody), dict.fromkeys(game.honest, everybody)
        for _ in range(trial % 4):
            _change(game, opened, lists, rng)
        answered = answering(game, opened, lists)
        assert answered == set(now(game, opened, lists))
        numbers.append(len(answered))
    assert {0, game.n} <= set(numbers)


@pytest.mark.parametrize("game", [Game(5, 3, 0), Game(20, 11, 0)], ids=str)
def test_real_clients_do_not_answer_the_directed_attack(game: Game) -> None:
    assert answering(game, *directed(game)) == set()
