"""The private union under pseudonyms that no single client can compute: every name costs a rationed query.

Before the tables, all clients send one blinded query, which passes from helper to helper; what the last
helper returns travels with the opening of the tables. That is one exchange, and one more per helper.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedkge.crypto.union.conversation import Replies
from fedkge.crypto.union.oprf import POINT_SIZE, OprfHelper, OprfQuery
from fedkge.crypto.union.private import PrivateUnionClient, PrivateUnionServer
from fedkge.crypto.union.pseudonyms import WIRE, Pseudonyms
from fedkge.crypto.union.union_session import read_parts, write_parts
from fedkge.crypto.wire import SERVER, Kind
from fedkge.errors import RefusedError

__all__ = ["ObliviousUnionClient", "ObliviousUnionServer"]


class ObliviousUnionServer(PrivateUnionServer):
    """Carries the queries along the chain of helpers, and then learns what the private union shows."""

    def _ask_first(self) -> None:
        self._needs_key = False
        self._points: dict[int, bytes] = {}
        self._ask_all(write_parts(Kind.OPRF_QUERY, self.session.id, SERVER), self._on_queries)

    def _on_queries(self, replies: Replies) -> None:
        self._require_all(replies)
        self._points = dict(sorted(self._single_parts(replies, Kind.OPRF_QUERY).items()))
        self._pass_on(list(self.session.helpers))

    def _pass_on(self, helpers: list[int]) -> None:
        """To the next helper, or back to the clients."""
        if not helpers:
            self._open()
            return
        helper, *rest = helpers
        request = write_parts(Kind.OPRF_HELP, self.session.id, SERVER, *self._points.values())

        def on_help(replies: Replies) -> None:
            self._require_all(replies)
            count = len(self._points)
            answers = self._parts(helper, replies[helper], Kind.OPRF_HELP, count=count)
            self._points = dict(zip(self._points, answers, strict=True))
            self._pass_on(rest)

        self._ask({helper: request}, on_help)

    def _open(self) -> None:
        super()._open()
        if self._points:  # a larger table needs no new query
            answers, self._points = self._points, {}
            self.requests = {
                u: write_parts(Kind.OPRF_ANSWER, self.session.id, SERVER, answers[u], opening)
                for u, opening in self.requests.items()
            }


class ObliviousUnionClient(PrivateUnionClient):
    """Has its names looked up by the helpers, and may be one of them."""

    answers: ClassVar[dict[Kind, str]] = {
        Kind.OPRF_QUERY: "query",
        Kind.OPRF_HELP: "help",
        Kind.OPRF_ANSWER: "take_answer",
        **PrivateUnionClient.answers,
    }

    def _prepare(self) -> None:
        super()._prepare()
        session, secret, self._key = self.session, self._key, b""  # a helper's secret is no group key
        chain = session.helpers, session.budget, self.index, self._identity
        self._query = OprfQuery(session, *chain, self._identifiers, _entropy=self._entropy)
        self._helper: OprfHelper | None = None
        if self.index in session.helpers:
            self._helper = OprfHelper(session, *chain, self._journal, _entropy=self._entropy)
            if secret:
                self._helper.secret = int.from_bytes(secret, "little")

    def query(self, request: bytes) -> bytes:
        """The client's names, blinded and padded to the budget."""
        read_parts(request, Kind.OPRF_QUERY, self.session.id, count=0)
        return write_parts(Kind.OPRF_QUERY, self.session.id, self.index, self._query.query())

    def help(self, request: bytes) -> bytes:
        """Everybody's points times this helper's secret."""
        if self._helper is None:
            raise RefusedError(f"client {self.index} is not one of the helpers {list(self.session.helpers)}")
        queries = read_parts(request, Kind.OPRF_HELP, self.session.id, count=self.session.num_clients)
        answers = self._helper.answer_all(dict(enumerate(queries)))
        return write_parts(Kind.OPRF_HELP, self.session.id, self.index, *answers)

    def take_answer(self, request: bytes) -> bytes:
        """The pseudonyms; then the union goes on as without helpers."""
        answer, opening = self._two(request, Kind.OPRF_ANSWER)
        self._pseudonyms = self._query.finish(answer)
        return self.advertise(opening)

    def row_secret(self, name: str) -> bytes:
        """For each identifier; a colluder has those of its own identifiers alone."""
        del name
        if not self._query.row_secrets and self._identifiers:
            raise RefusedError("no name is looked up yet: the helpers' answer comes first")
        return self._query.row_secrets

    def export_key(self) -> bytes:
        """A helper's secret, without which later generations would have other pseudonyms."""
        return self._helper.secret.to_bytes(POINT_SIZE, "little") if self._helper else b""

    def _machines(self) -> list[object]:
        return [*super()._machines(), self._query, *([self._helper] if self._helper else [])]

    def _secrets(self) -> list[bytes]:
        known = b"" if self._pseudonyms is None else self._pseudonyms.to_wire().tobytes()
        helper = self._helper.export_secrets() if self._helper else b""
        return [*super()._secrets(), self._query.export_secrets(), helper, known, self._query.row_secrets]

    def _restore(self, secrets: list[bytes]) -> None:
        *private, query, helper, known, rows = secrets
        super()._restore(private)
        self._query.restore_secrets(query)
        self._query.row_secrets = rows
        if self._helper:
            self._helper.restore_secrets(helper)
        if known:
            self._pseudonyms = Pseudonyms.of_wire(np.frombuffer(known, dtype=WIRE))
