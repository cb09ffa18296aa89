"""What client and server derive alike, each from its own settings, before they sum anything.

If the two differ, so do their sessions, and nothing is summed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedkge.crypto import DIGEST_WORDS, Plan, Roster, Session, SharedTable, UnionSession
from fedkge.errors import MessageError
from fedkge.exchange import Table
from fedkge.experiment import Experiment, PrivacySettings
from fedkge.metrics import RANKING, TRAINING

__all__ = ["Acted", "plan_of", "run_name", "union_session", "weights_digest"]

_SCALARS = {
    "delta": TRAINING.num_words,
    "valid": RANKING.num_words,
    "test": RANKING.num_words + DIGEST_WORDS,
}
_BOUND = (
    "best",
    "last",
)  # what a request says beside tables: the best round, and over whom the last sum went


def run_name(experiment: Experiment, run_config: Mapping[str, Any]) -> str:
    """What all parties call a run: as its run config says, or after the experiment.

    Sessions, journals, states and consents belong to this name. Whoever starts the same experiment again
    under it continues the run, as far as clients are concerned.
    """
    name = str(run_config.get("run") or "")
    if not name:
        return f"{re.sub('[^A-Za-z0-9]+', '-', experiment.name)[:64]}-{experiment.digest()[:8]}".lstrip("-")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise MessageError(
            f"the run is called {name[:100]!r}; use up to 100 letters, digits, '.', '_' and '-', and begin "
            "with a letter or digit"
        )
    return name


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


class Acted:
    """What a client acts on, noted alike by the client as it hears and by the server as it says it.

    The binding of a sum digests all of it. It is derived into the masks, so that the masks of clients who
    were told different things do not cancel. The shared row numbers are in the session's own digest.
    """

    def __init__(self, facts: Mapping[str, bytes] | None = None) -> None:
        self.facts = dict(facts or {})  # what it is about -> digest of the last that was said of it

    def broadcast(self, tables: Mapping[str, Table]) -> None:
        """Rows that clients start from: their numbers and values, in the order in which they came."""
        for name, table in tables.items():
            state = hashlib.sha256(f"fedkge broadcast {table.rows.shape}".encode())
            state.update(table.ids.data)  # a table is contiguous and little-endian
            state.update(table.rows.data)
            self.facts[f"table {name}"] = state.digest()

    def begin(self, tables: Mapping[str, SharedTable]) -> None:
        """Before any broadcast, clients start from offsets of zero."""
        for name, table in tables.items():
            if table.shared is not None:
                zeros = np.zeros((len(table.shared), table.width), dtype=np.float32)
                self.broadcast({name: Table(table.shared, zeros)})

    def binding(self, session: Session, metadata: Mapping[str, Any]) -> bytes:
        """The digest for one sum; another attempt at the same sum has the same."""
        said = {name: metadata.get(name) for name in _BOUND}
        state = hashlib.sha256(b"fedkge binding")
        state.update(json.dumps([session.purpose, session.round, said], sort_keys=True).encode())
        # Counts rest on no broadcast, and the test on what clients have stored of the best round.
        if session.purpose not in ("holders", "test"):
            for name, digest in sorted(self.facts.items()):
                state.update(repr((name, digest)).encode())
        return state.digest()


def weights_digest(rows: int, width: int) -> bytes:
    """In the place of the digest of a union's list: weights have no labels, only a shape."""
    return hashlib.sha256(f"fedkge weights {rows} {width}".encode()).digest()
