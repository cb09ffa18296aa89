"""Private set union: shared row numbers for identifiers that the server never sees."""

from fedkge.crypto.union.conversation import UnionClient, UnionRows, UnionServer
from fedkge.crypto.union.hashed import HashedUnionClient, HashedUnionServer
from fedkge.crypto.union.oblivious import ObliviousUnionClient, ObliviousUnionServer
from fedkge.crypto.union.plain import PlainUnionClient, PlainUnionServer
from fedkge.crypto.union.private import PrivateUnionClient, PrivateUnionServer
from fedkge.crypto.union.union_session import UnionSession

__all__ = [
    "UNION_MODES",
    "HashedUnionClient",
    "HashedUnionServer",
    "ObliviousUnionClient",
    "ObliviousUnionServer",
    "PlainUnionClient",
    "PlainUnionServer",
    "PrivateUnionClient",
    "PrivateUnionServer",
    "UnionClient",
    "UnionRows",
    "UnionServer",
    "UnionSession",
]

UNION_MODES: dict[str, tuple[type[UnionClient], type[UnionServer]]] = {
    "plain": (PlainUnionClient, PlainUnionServer),
    "hashed": (HashedUnionClient, HashedUnionServer),
    "private": (PrivateUnionClient, PrivateUnionServer),
    "oprf": (ObliviousUnionClient, ObliviousUnionServer),
}
