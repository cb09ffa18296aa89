"""What client and server derive alike, each from its own settings, before they sum anything.

If the two differ, so do their sessions, and nothing is summed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from fedkge.crypto import DIGEST_WORDS, Plan, Roster, SharedTable, UnionSession
from fedkge.errors import MessageError
from fedkge.experiment import Experiment, PrivacySettings
from fedkge.metrics import RANKING, TRAINING

__all__ = ["plan_of", "run_name", "union_session", "weights_digest"]

_SCALARS = {
    "delta": TRAINING.num_words,
    "valid": RANKING.num_words,
    "test": 2 * RANKING.num_words + DIGEST_WORDS,
}


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


def weights_digest(rows: int, width: int) -> bytes:
    """In the place of the digest of a union's list: weights have no labels, only a shape."""
    return hashlib.sha256(f"fedkge weights {rows} {width}".encode()).digest()
