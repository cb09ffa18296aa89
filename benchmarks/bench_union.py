"""Private set union on one core: time and bytes per client for 237, 15,000 and a million identifiers.

Run: python benchmarks/bench_union.py

Five clients hold each identifier with probability 0.6; the table is sized for the true union. Times are CPU
seconds of one core. `oprf` names identifiers through two helpers, whose work counts as the clients'.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from fedkge.crypto import UNION_MODES, Identity, Journal, Roster, UnionSession

NUM_CLIENTS = 5
SIZES = [237, 15_000, 1_000_000]
SHARE = 0.6
HELPERS = (0, 1)
MOST_OBLIVIOUS = 15_000  # a point costs a tenth of a millisecond, and a name passes four times
T = TypeVar("T")


class Clock:
    """CPU seconds by party, and bytes by direction."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.exchanges = 0

    def time(self, party: str, work: Callable[[], T]) -> T:
        start = time.process_time()
        result = work()
        self.seconds[party] += time.process_time() - start
        return result

    def row(self, mode: str, size: int) -> list[str]:
        client = self.seconds["client"] / NUM_CLIENTS
        up, down = (self.bytes[way] / NUM_CLIENTS for way in ("up", "down"))
        return [
            mode,
            f"{size:,}",
            str(self.exchanges),
            f"{1000 * client:,.1f} ms",
            f"{1000 * self.seconds['server']:,.1f} ms",
            f"{up / 1e6:,.3f} MB",
            f"{down / 1e6:,.3f} MB",
        ]


def holdings(size: int) -> list[list[str]]:
    rng = np.random.default_rng(size)
    return [[f"/m/{i:07x}" for i in np.flatnonzero(rng.random(size) < SHARE)] for _ in range(NUM_CLIENTS)]


def run(mode: str, held: list[list[str]], identities: list[Identity]) -> Clock:
    clock = Clock()
    client_class, server_class = UNION_MODES[mode]
    oblivious = {"helpers": HELPERS, "budget": max(map(len, held))} if mode == "oprf" else {}
    roster = Roster.of(identity.public for identity in identities)
    session = UnionSession(roster, "bench", "entity", **oblivious)
    united = len(set().union(*held))
    clients = [client_class(session, u, identities[u], Journal(), names) for u, names in enumerate(held)]
    server = server_class(session, expected=united)
    while not server.done:
        clock.exchanges += 1
        clock.bytes["down"] += sum(map(len, server.requests.values()))
        replies = {}
        for u, request in server.requests.items():
            replies[u] = clock.time("client", lambda u=u, request=request: clients[u].answer(request))
        clock.bytes["up"] += sum(map(len, replies.values()))
        clock.time("server", lambda replies=replies: server.collect(replies))
    listing = server.listing_message()
    clock.bytes["down"] += len(listing) * NUM_CLIENTS
    found = [clock.time("client", lambda client=client: client.finish(listing)) for client in clients]
    assert {result.num_rows for result in found} == {united}
    return clock


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    identities = [Identity.generate() for _ in range(NUM_CLIENTS)]
    run("private", holdings(100), identities)  # compile
    table = Table(
        "union", "identifiers", "exchanges", "per client", "server", "up per client", "down per client"
    )
    for size in SIZES:
        held = holdings(size)
        for mode in UNION_MODES:
            if mode != "oprf" or size <= MOST_OBLIVIOUS:
                table.add_row(*run(mode, held, identities).row(mode, size))
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
