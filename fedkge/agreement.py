"""What client and server derive alike, each from its own settings, before they sum anything.

If the two differ, so do their sessions, and nothing is summed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fedkge.crypto import DIGEST_WORDS, Plan, Roster, SharedTable, UnionSession
from fedkge.experiment import PrivacySettings
from fedkge.metrics import RANKING, TRAINING

__all__ = ["plan_of", "union_session", "weights_digest"]

_SCALARS = {
    "delta": TRAINING.num_words,
    "valid": RANKING.num_words,
    "test": 2 * RANKING.num_words + DIGEST_WORDS,
}


def plan_of(roster: Roster, run: str, privacy: PrivacySettings, tables: Mapping[str, SharedTable]) -> Plan:
    """Which sums are made over the roster, and how long each vector is."""
    quorum = privacy.quorum(len(roster))
    known = dict(sorted(tables.items()))
    return Plan(roster, run, quorum, privacy.clip, privacy.consistency, known, _SCALARS)


def union_session(roster: Roster, run: str, name: str, privacy: PrivacySettings) -> UnionSession:
    """The union of the labels of one table."""
    oblivious = privacy.union == "oprf"
    return UnionSession(
        roster,
        run,
        name,
        threshold=privacy.quorum(len(roster)),
        signed=privacy.consistency,
        helpers=tuple(range(privacy.helpers)) if oblivious else (),
        budget=privacy.query_budget if oblivious else 0,
    )


def weights_digest(rows: int, width: int) -> bytes:
    """In the place of the digest of a union's list: weights have no labels, only a shape."""
    return hashlib.sha256(f"fedkge weights {rows} {width}".encode()).digest()
