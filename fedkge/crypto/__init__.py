"""Cryptographic protocols as pure state machines: bytes in, bytes out, no network, no files, no torch."""

from fedkge.crypto.aggregation import UNBOUND, SecureAggregationClient, SecureAggregationServer
from fedkge.crypto.fixed_point import FixedPoint, FixedPointWords
from fedkge.crypto.journal import Journal
from fedkge.crypto.keys import Identity
from fedkge.crypto.plan import DIGEST_WORDS, Plan, SharedTable
from fedkge.crypto.rings import FIELD61, WORD32
from fedkge.crypto.roster import Roster, default_threshold
from fedkge.crypto.session import Session
from fedkge.crypto.union import UNION_MODES, UnionClient, UnionRows, UnionServer, UnionSession

__all__ = [
    "DIGEST_WORDS",
    "FIELD61",
    "UNBOUND",
    "UNION_MODES",
    "WORD32",
    "FixedPoint",
    "FixedPointWords",
    "Identity",
    "Journal",
    "Plan",
    "Roster",
    "SecureAggregationClient",
    "SecureAggregationServer",
    "Session",
    "SharedTable",
    "UnionClient",
    "UnionRows",
    "UnionServer",
    "UnionSession",
    "default_threshold",
]
