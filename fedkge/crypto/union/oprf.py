"""Pseudonyms that no single client can compute: an oblivious PRF chained through helper clients.

F(id) = SHA-256(x(k_1 ⋯ k_m · H(id)), id) on P-256, by x-coordinates alone, which plain ECDH gives and
which do not depend on the sign of a point. A client blinds H(id) with r; each helper multiplies by its own
k_j; the client multiplies by 1/r. Unless all m helpers collude, testing a name costs a query, and a helper
answers each client once, with exactly `budget` points. Clients pad to the budget, so their number of
identifiers does not show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric import ec

from fedkge.crypto.entropy import OPERATING_SYSTEM, Entropy
from fedkge.crypto.journal import Journal
from fedkge.crypto.keys import SIGNATURE_SIZE, Identity
from fedkge.crypto.roster import Roster
from fedkge.crypto.union.pseudonyms import Pseudonyms, normalize
from fedkge.crypto.union.union_session import UnionSession
from fedkge.crypto.wire import Kind, Reader, Writer
from fedkge.errors import MessageError, RefusedError, SettingError, TamperError

__all__ = ["POINT_SIZE", "OprfHelper", "OprfQuery"]

CURVE = ec.SECP256R1()
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
POINT_SIZE = 32
DRAW_SIZE = 48  # 384 bits mod a 256-bit order: 2^-128 from uniform


def draw_scalar(entropy: Entropy) -> int:
    """Uniform in 1 … order − 1."""
    return int.from_bytes(entropy(DRAW_SIZE), "little") % (ORDER - 1) + 1


def hash_to_point(name: bytes) -> bytes:
    """The x-coordinate of a point whose logarithm nobody knows, by trial (every second x has a point)."""
    for trial in range(256):
        x = hashlib.sha256(b"fedkge point" + bytes([trial]) + name).digest()
        try:
            _point(x)
        except TamperError:
            continue
        return x
    raise RefusedError("no point was found for a name in 256 trials")


def _point(x: bytes) -> ec.EllipticCurvePublicKey:
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, b"\x02" + x)
    except ValueError:
        raise TamperError("an x-coordinate without a point on P-256") from None


def multiply_points(scalar: int, points: Sequence[bytes]) -> list[bytes]:
    """x(scalar · P) for every x(P)."""
    key = ec.derive_private_key(scalar, CURVE)
    return [key.exchange(ec.ECDH(), _point(x)) for x in points]


def _write_scalar(session: bytes, index: int, scalar: int) -> bytes:
    return Writer(Kind.OPRF_STATE, session, index).raw(scalar.to_bytes(POINT_SIZE, "little")).finish()


def _read_scalar(stored: bytes, session: bytes, index: int) -> int:
    reader = Reader(stored, Kind.OPRF_STATE, session, index)
    scalar = reader.number(POINT_SIZE)
    reader.finish()
    return scalar


def _write_points(session: bytes, owner: int, hop: int, signer: Identity, points: Sequence[bytes]) -> bytes:
    body = b"".join(points)
    signature = signer.sign(_statement(session, owner, hop, body))
    return Writer(Kind.OPRF_POINTS, session, owner).number(hop, 1).raw(signature).blob(body).finish()


def _statement(session: bytes, owner: int, hop: int, body: bytes) -> bytes:
    return b"fedkge oprf" + session + owner.to_bytes(2, "little") + bytes([hop]) + body


def _read_points(
    message: bytes, session: bytes, owner: int, hop: int, signer: int, roster: Roster, budget: int
) -> list[bytes]:
    reader = Reader(message, Kind.OPRF_POINTS, session, owner)
    found_hop, signature, body = reader.number(1), reader.raw(SIGNATURE_SIZE), reader.blob()
    reader.finish()
    if found_hop != hop:
        raise MessageError(f"OPRF_POINTS: hop {found_hop} came where hop {hop} is expected")
    if len(body) != budget * POINT_SIZE:
        raise RefusedError(
            f"client {owner} asks for {len(body) / POINT_SIZE:g} points, and a query has exactly {budget}"
        )
    roster.verify(signer, signature, _statement(session, owner, hop, body))
    return [body[i : i + POINT_SIZE] for i in range(0, len(body), POINT_SIZE)]


class OprfQuery:
    """A client's one query: blind, send through all helpers, unblind."""

    def __init__(
        self,
        session: UnionSession,
        helpers: Sequence[int],
        budget: int,
        index: int,
        identity: Identity,
        identifiers: Sequence[str],
        *,
        _entropy: Entropy = OPERATING_SYSTEM,
    ) -> None:
        _check_helpers(session, helpers)
        if len(identifiers) > budget:
            raise SettingError(
                f"{len(identifiers)} identifiers exceed the query budget of {budget}; "
                "raise privacy.query_budget"
            )
        self._session, self._helpers, self._budget = session, tuple(helpers), budget
        self._index, self._identity = index, identity
        self._names = [normalize(identifier) for identifier in identifiers]
        self._blind = draw_scalar(_entropy)
        self.row_secrets = b""  # 32 bytes for each name, once they are looked up

    def query(self) -> bytes:
        """Hop 0: the blinded points, padded with points of random names.

        Asked again, it is the same: between two paddings the names would be what stays.
        """
        blind = self._blind.to_bytes(POINT_SIZE, "little")
        padding = [
            hashlib.sha256(b"fedkge padding" + blind + number.to_bytes(8, "little")).digest()
            for number in range(self._budget - len(self._names))
        ]
        blinded = multiply_points(self._blind, [hash_to_point(name) for name in self._names + padding])
        return _write_points(self._session.id, self._index, 0, self._identity, blinded)

    def finish(self, answer: bytes) -> Pseudonyms:
        """What the last helper returned, unblinded and hashed with each name."""
        hop, last = len(self._helpers), self._helpers[-1]
        roster = self._session.roster
        points = _read_points(answer, self._session.id, self._index, hop, last, roster, self._budget)
        cleared = multiply_points(pow(self._blind, -1, ORDER), points[: len(self._names)])
        self.row_secrets = self._digests(b"fedkge row", cleared)  # the server sees the pseudonyms alone
        return Pseudonyms.of_digests(self._digests(b"fedkge pseudonym", cleared))

    def _digests(self, purpose: bytes, points: Sequence[bytes]) -> bytes:
        pairs = zip(points, self._names, strict=True)
        return b"".join(hashlib.sha256(purpose + x + name).digest() for x, name in pairs)

    def export_secrets(self) -> bytes:
        """The blind, for the client's own file and never for a message."""
        return _write_scalar(self._session.id, self._index, self._blind)

    def restore_secrets(self, stored: bytes) -> None:
        self._blind = _read_scalar(stored, self._session.id, self._index)


class OprfHelper:
    """One link of the chain: a client that multiplies the others' points by its own secret."""

    def __init__(
        self,
        session: UnionSession,
        helpers: Sequence[int],
        budget: int,
        index: int,
        identity: Identity,
        journal: Journal,
        *,
        _entropy: Entropy = OPERATING_SYSTEM,
    ) -> None:
        _check_helpers(session, helpers)
        if index not in helpers:
            raise SettingError(f"client {index} is not one of the helpers {list(helpers)}")
        self._session, self._budget = session, budget
        self._index, self._identity, self._journal = index, identity, journal
        self._hop = list(helpers).index(index)
        self._previous = helpers[self._hop - 1] if self._hop else None
        self.secret = draw_scalar(_entropy)

    def answer(self, client: int, message: bytes) -> bytes:
        """The client's points times this helper's secret; each client once, and as the last hop signed."""
        return self.answer_all({client: message})[0]

    def answer_all(self, queries: Mapping[int, bytes]) -> list[bytes]:
        """Answers to many clients, or to none of them if one query is false or spent."""
        answers = [self._multiply(client, message) for client, message in queries.items()]
        self._journal.answer_queries(self._session.id, queries)
        return answers

    def _multiply(self, client: int, message: bytes) -> bytes:
        signer = client if self._previous is None else self._previous
        session = self._session
        points = _read_points(message, session.id, client, self._hop, signer, session.roster, self._budget)
        multiplied = multiply_points(self.secret, points)
        return _write_points(session.id, client, self._hop + 1, self._identity, multiplied)

    def export_secrets(self) -> bytes:
        """The secret, for the client's own file and never for a message; the journal has who was answered."""
        return _write_scalar(self._session.id, self._index, self.secret)

    def restore_secrets(self, stored: bytes) -> None:
        self.secret = _read_scalar(stored, self._session.id, self._index)


def _check_helpers(session: UnionSession, helpers: Sequence[int]) -> None:
    inside = all(0 <= helper < session.num_clients for helper in helpers)
    if not helpers or not inside or len(set(helpers)) != len(helpers):
        raise SettingError(
            f"helpers {list(helpers)}: name at least one client of the roster, each once; "
            "c + 1 helpers withstand c colluding clients"
        )
