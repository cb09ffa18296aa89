"""A client that shows the server sums alone: its steps, losses and scores are masked before they leave it.

A client that drops out counts as unchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.agreement import Acted, plan_of, union_session, weights_digest
from fedkge.client.holdings import Holding, RowSource, common_labels, simulated_source
from fedkge.client.keyring import Keyring
from fedkge.client.participant import Participant
from fedkge.client.policy import Policy
from fedkge.client.secrets import Secrets
from fedkge.client.state import StateFiles
from fedkge.covers import check_claimed, thin_rows, thin_words, veil, veil_key
from fedkge.crypto import UNION_MODES, Plan, Session, SharedTable, UnionClient
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, MessageError, RefusedError, TamperError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import Experiment
from fedkge.metrics import RANKING, TRAINING, MetricSums
from fedkge.storage import staged
from fedkge.strategy import STRATEGIES

__all__ = ["SecureParticipant"]

Words = NDArray[np.uint32]
Messages = Mapping[str, bytes]
Commit = Callable[[], object]  # writes what a step changed


def _nothing() -> None:
    """A step that changes no file but the journal."""


class SecureParticipant(Participant):
    """Takes part in sums over the roster of its own keyring, and in nothing that would show its rows."""

    def __init__(
        self,
        client: int,
        graph: KnowledgeGraph,
        experiment: Experiment,
        files: StateFiles,
        every_round: bool,
        run: str,
        keys: Path | None,
        simulated: bool = False,
        policy: Policy | None = None,
    ) -> None:
        self.run = run
        self.keys = keys
        self.tables: dict[str, SharedTable] = {}
        self.row_secrets: dict[str, bytes] = {}  # what initial rows come from, as the union gave it
        self._unions: dict[str, UnionClient] = {}
        self.client, self.experiment, self.files, self.every_round = client, experiment, files, every_round
        self.policy = policy or Policy()
        if keys is not None and STRATEGIES[experiment.federation.strategy].shared:
            _ = self.secrets  # what its operator does not accept is refused before anything is made
        try:
            super().__init__(client, graph, experiment, files, every_round, simulated, policy)
        except BaseException:
            self.close()
            raise

    @cached_property
    def secrets(self) -> Secrets:
        if self.keys is None:
            raise DataError(
                "the node needs 'keys' in its node config: the folder with its identity.key and roster.txt"
            )
        self.policy.check_sums(self.experiment.privacy, Keyring.load(self.keys, self.client).roster)
        return Secrets(
            self.keys, self.client, self.run, self.policy, durable=self.every_round, synced=self.files.durable
        )

    def close(self) -> None:
        if "secrets" in vars(self):
            self.secrets.close()

    @property
    def plan(self) -> Plan:
        return plan_of(self.secrets.keyring.roster, self.run, self.experiment.privacy, self.tables)

    # Before the first round: the union, and who is in the plan.

    def join(self, download: Download) -> Upload:
        """Begin the union, or go on with the one that was made; with nothing to share there is none."""
        if not self.strategy.shared:
            return super().join(download)
        self._agree(download.metadata)
        if not download.metadata.get("secure"):
            raise RefusedError(
                "the server asks for labels in the clear, but privacy.secure_aggregation is on; "
                "set it to false on all sides to agree"
            )
        requests = self._of_tables(download.protocol)
        if requests and self.secrets.tables:
            raise RefusedError(
                f"run '{self.run}' was trained on the union it began with; to unite anew, begin a new run"
            )
        if self.secrets.answered(_asked(requests)) is None:  # else the answer was lost on the way
            self.secrets.forget_sessions()
            self._unions = {}
        return Upload(
            download.round,
            self.client,
            metadata={"parameters": self.shapes()},
            protocol=self._unite(requests, lambda: self.return_to(download.round)),
        )

    def assign(self, download: Download) -> Upload:
        if download.tables:
            raise RefusedError("rows are assigned in the clear only where privacy.secure_aggregation is off")
        return super().assign(download)

    def unite(self, download: Download) -> Upload:
        """One step of the union."""
        return Upload(download.round, self.client, protocol=self._unite(download.protocol))

    def advertise(self, download: Download) -> Upload:
        """Learn what the server found out, then open the session it wants to begin."""
        before = self.tables
        for key, listing in download.protocol.items():
            self._take_listing(key.removeprefix("listing "), listing)
        if download.tables:
            self._take_shared(download.tables)
        if download.metadata["next"]["purpose"] == "holders":
            self._take_weights()
        session = self._session(download, "next")
        commit = _nothing if self.tables is before else self._save_tables
        return self._answer(
            download, f"advertise {session.id.hex()}", lambda: self._advertise(session), commit
        )

    def share(self, download: Download) -> Upload:
        """Deal the shares of a session's keys."""
        session = self._session(download, "next")
        keys = download.protocol["keys"]
        return self._answer(
            download,
            f"share {session.id.hex()}",
            lambda: {"shares": self.secrets.machine(session).share_keys(keys)},
        )

    def count(self, download: Download) -> Upload:
        """One for each row it holds, zero for the others."""
        self._require_union(counted=False)
        held = []
        for name, table in self.tables.items():
            own = np.zeros(table.num_rows, dtype=np.uint32)
            rows = self.holdings[name].rows
            own[rows[rows >= 0]] = 1
            held.append(own)
        return self._masked(download, "holders", np.concatenate(held))

    # Rounds.

    def train(self, download: Download) -> Upload:
        if not self.strategy.shared:
            return super().train(download)
        self._require_union()
        if download.round < self.round:
            raise RefusedError(f"round {download.round} is over: this client trained round {self.round}")
        self.advance(download)
        self.secrets.pin(self.plan.session("delta", self.round, 0).context)
        return self._masked(download, "delta", None, lambda: self.settle(download))

    def consent(self, download: Download) -> Upload:
        """Sign over whom the sum goes, where all clients compare what the server shows them."""
        session = self._session(download, "sum")
        survivors = download.protocol["survivors"]
        return self._answer(
            download,
            f"consent {session.id.hex()}",
            lambda: {"consent": self.secrets.machine(session).consent(survivors)},
        )

    def unmask(self, download: Download) -> Upload:
        """Help to unmask the sum, once and for one set of survivors; deal the next session's shares."""
        session = self._session(download, "sum")
        following = self._session(download, "next") if "keys" in download.protocol else None

        def answer() -> Messages:
            machine = self.secrets.machine(session)
            messages = {"reveal": machine.unmask(download.protocol["survivors"])}
            if session.purpose == "delta":
                messages |= self._unveil(session, len(machine.survivors))
            if following is not None:
                messages["shares"] = self.secrets.machine(following).share_keys(download.protocol["keys"])
            if session.purpose == "delta" and session.round is not None:
                self.secrets.sums.reveal(session.round)
            self.secrets.end_session(session)
            return messages

        return self._answer(download, f"unmask {session.id.hex()}", answer)

    def evaluate(self, download: Download) -> Upload:
        if not self.strategy.shared:
            return super().evaluate(download)
        self._require_union()
        self.take_to_rank(download.tables)
        words = _ranking(self.measure("valid"), "valid")

        def commit() -> None:
            self.secrets.sums.score(self.round, download.round)
            self.save(download.round)

        masked = self._masked(download, "valid", words, commit)
        return replace(masked, metadata=self.spent(download.round))  # in the open

    def test(self, download: Download) -> Upload:
        if not self.strategy.shared:
            return super().test(download)
        self._require_union()
        metadata = super().test(download).metadata
        digest = np.frombuffer(bytes.fromhex(metadata["digest"]), dtype="<u4")
        words = [_ranking(metadata, "test"), digest.astype(np.uint32)]
        masked = self._masked(download, "test", np.concatenate(words), lambda: self._keep_scores(metadata))
        return replace(masked, metadata={"privacy": metadata["privacy"]} if "privacy" in metadata else {})

    def _keep_scores(self, metadata: Mapping[str, Any]) -> None:
        """Its own scores are its own to see."""
        scores = {split: metadata[split] for split in ("valid", "test")}
        with staged(self.files.folder / "test.json", private=True) as path:
            path.write_text(json.dumps(scores), encoding="utf-8")

    def merge(self, tables: Mapping[str, Table], into_model: bool = True) -> None:
        for name, table in tables.items():
            shared = self.tables[name].shared if name in self.tables else None
            if shared is None or not np.array_equal(table.ids, shared):
                raise TamperError(f"the server broadcasts other {name} rows than those that are shared")
        super().merge(tables, into_model)
        if tables:
            with self.secrets.timed():
                self.acted.broadcast(tables)

    def save(self, round: int) -> None:
        acted = {name: digest.hex() for name, digest in self.acted.facts.items()}
        self.metadata = {**self.metadata, "acted": acted}
        super().save(round)

    def restore(self, until: int) -> None:
        super().restore(until)
        acted = self.metadata.get("acted", {})
        self.acted = Acted({name: bytes.fromhex(digest) for name, digest in acted.items()})
        if not acted:
            self.acted.begin(self.tables)

    # The protocols.

    def _require_union(self, counted: bool = True) -> None:
        """Nothing is answered about rows before it is known which ones are shared."""
        tables = self.tables
        if set(tables) != set(self.strategy.shared) or any(
            t.shared is None for t in tables.values() if counted
        ):
            raise RefusedError(
                "nothing is answered before the union and the count of holders that it needs; join first"
            )

    def _unite(self, requests: Messages, commit: Commit = _nothing) -> Messages:
        if not requests:
            commit()
            return {}
        known = self.secrets.answered(_asked(requests))
        if known is not None:
            return known
        replies = {}
        with self.secrets.timed():
            for key, request in requests.items():
                name = key.removeprefix("union ")
                union = self._union(name)
                replies[key] = union.answer(request)
                self.secrets.notes[name] = union.export_secrets()
        commit()
        return self.secrets.settle(_asked(requests), replies)

    def _of_tables(self, requests: Messages) -> Messages:
        """The server does not know yet which of what is shared has labels."""
        return {
            key: value for key, value in requests.items() if key.removeprefix("union ") in self.model.tables
        }

    def _union(self, name: str) -> UnionClient:
        if name not in self.strategy.shared or name not in self.model.tables:
            raise MessageError(f"a union of '{name}', which is no table that {self._name} shares")
        if name not in self._unions:
            labels = common_labels(self.model, self.graph, name)
            roster = self.secrets.keyring.roster
            session = replace(
                union_session(roster, self.run, name, self.experiment.privacy),
                max_cells=self.policy.max_cells,
            )
            kind, _ = UNION_MODES[self.experiment.privacy.union]
            union = kind(session, self.client, self.secrets.keyring.identity, self.secrets.journal, labels)
            if name in self.secrets.notes:
                union.restore_secrets(self.secrets.notes[name])
            self._unions[name] = union
        return self._unions[name]

    def _take_listing(self, name: str, listing: bytes) -> None:
        with self.secrets.timed():
            union = self._union(name)
            listed = union.finish(listing)
        self.policy.check_table(name, listed.num_rows)
        if self.secrets.tables and name in self.tables and self.tables[name].digest != listed.digest:
            raise TamperError(f"the server shows another list of the {name} table than before")
        rows = self._own_rows(name, listed.rows)
        self._take_rows(name, rows, listed.num_rows, listed.digest, union.row_secret(name))

    def _take_weights(self) -> None:
        """Weights belong to the model, so that every client holds every row of them."""
        for name in self.strategy.shared:
            if name not in self.model.tables:
                rows = np.arange(len(self._start[name]))
                keyed = not self._is_oblivious and bool(self._unions)
                secret = self._unions[min(self._unions)].row_secret(name) if keyed else b""
                self._take_rows(name, rows, len(rows), weights_digest(*self._start[name].shape), secret)

    @property
    def _is_oblivious(self) -> bool:
        return self.experiment.privacy.union == "oprf"

    def row_source(self, name: str) -> RowSource | None:
        """From what only clients have, as soon as the union gives it; not so where the server reads labels.

        Weights have no labels that a row could tell: without a group key they start from the seed.
        """
        privacy, seed = self.experiment.privacy, self.experiment.seed
        if self.simulated or privacy.union == "plain" or privacy.rows_from_seed:
            return simulated_source(privacy, seed, name)
        if name in self.row_secrets:
            return RowSource.of_secret(self.row_secrets[name], self._is_oblivious)
        return RowSource.of_seed(seed, name) if name in self.tables else None

    def _take_rows(
        self, name: str, rows: NDArray[np.int64], num_rows: int, digest: bytes, secret: bytes
    ) -> None:
        if name in self.tables and self.tables[name].digest == digest:  # asked again
            return
        # A union that was begun anew, before anything was trained, is counted anew.
        tables = {other: replace(table, shared=None) for other, table in self.tables.items()}
        tables[name] = SharedTable(num_rows, self._start[name].shape[1], digest)
        self.tables = dict(sorted(tables.items()))
        self.holdings[name] = Holding.of(rows, None)
        if secret and not self.simulated:
            self.row_secrets = {**self.row_secrets, name: secret}
            self.restore(self.round)  # nothing is trained yet: the rows start from what the union gave

    def _take_shared(self, named: Mapping[str, Table]) -> None:
        """Which rows enough clients hold; settled once, before anything is trained."""
        self._require_union(counted=False)
        privacy, clients = self.experiment.privacy, len(self.secrets.keyring.roster)
        for name, table in self.tables.items():
            if name not in named:
                raise MessageError(f"the server does not say which {name} rows are shared")
            check_claimed(name, table, named[name].ids, named[name].holders, privacy, clients)
            if table.shared is not None and not np.array_equal(table.shared, named[name].ids):
                raise TamperError(f"the server changes which {name} rows are shared")
        shared = {name: named[name].ids for name in self.tables}
        holders = {name: np.asarray(named[name].holders) for name in self.tables}
        self.tables = dict(self.plan.with_shared(shared, holders).tables)
        self.acted.begin(self.tables)
        self.holdings = {
            name: Holding.of(holding.rows, shared[name]) for name, holding in self.holdings.items()
        }
        self.reference = {name: self._initial(name) for name in self.holdings}
        self.secrets.notes, self._unions = {}, {}  # the union is over

    def _session(self, download: Download, which: str) -> Session:
        """The session that the server names: this round's or the next one's, over this client's own plan."""
        named = download.metadata.get(which)
        if named is None:
            raise MessageError(f"no '{which}' is named; do both sides run the same version?")
        round = named["round"]
        if round is not None and round not in (download.round, download.round + 1):
            raise RefusedError(f"a sum of round {round} is named in round {download.round}")
        return self.plan.session(named["purpose"], round, named["attempt"])

    def _advertise(self, session: Session) -> Messages:
        return {"advert": self.secrets.machine(session).advertise()}

    def _masked(
        self, download: Download, purpose: str, words: Words | None, commit: Commit = _nothing
    ) -> Upload:
        """The vector under its masks, with the keys for the next session."""
        session = self._session(download, "sum")
        if session.purpose != purpose:
            raise MessageError(f"a sum '{session.purpose}' is named where '{purpose}' is expected")
        self._check_own_round(session, download)
        self._check_last(session, download.metadata.get("last"))
        binding = self.acted.binding(session, download.metadata)
        following = self._session(download, "next") if download.metadata.get("next") else None

        def answer() -> Messages:
            machine, delivery = self.secrets.machine(session), download.protocol["delivery"]
            if words is None:
                fill = lambda room: self._write_veiled(session, room)  # noqa: E731
                masked = machine.mask_in_place(delivery, fill, binding)
            else:
                masked = machine.mask(delivery, words, binding)
            return {"masked": masked, **(self._advertise(following) if following else {})}

        return self._answer(download, f"mask {session.id.hex()}", answer, commit)

    def _check_own_round(self, session: Session, download: Download) -> None:
        """A step is summed in the round that made it, and a score in no round before that."""
        round, trained = session.round, session.purpose == "delta"
        if round is None:
            return
        if round != download.round or (round != self.round if trained else round < self.round):
            raise RefusedError(
                f"a sum '{session.purpose}' of round {round} is named where this client has trained round "
                f"{self.round}: every round gives one sum of each kind"
            )

    def _check_last(self, session: Session, last: Any) -> None:
        """The server says over whom the last sum went; it may not contradict whom this client unmasked."""
        if session.round is None:
            return
        try:
            purpose, round, survivors = last
            known = self.secrets.journal.survivors_of(self.plan.session(purpose, round, 0))
        except (TypeError, ValueError):
            raise MessageError("the server does not say over whom the last sum went") from None
        if known is not None and list(known) != survivors:
            raise TamperError(
                f"the server says that the sum '{purpose}' of round {round} went over {survivors}, and this "
                f"client unmasked it for {list(known)}"
            )

    def _answer(
        self,
        download: Download,
        question: str,
        answer: Callable[[], Messages],
        commit: Commit = _nothing,
    ) -> Upload:
        """Answer each question once; asked again, say the same.

        What is refused changes nothing: `commit` writes the state only when there is an answer, and the
        journal follows, so that a process which dies between the two gives the same answer again.
        """
        messages = self.secrets.answered(question)
        if messages is None:
            with self.secrets.timed():
                answered = answer()
            commit()
            with self.secrets.timed():
                messages = self.secrets.settle(question, answered)
        return Upload(download.round, self.client, protocol=messages)

    def _write_veiled(self, session: Session, words: Words) -> None:
        """The step, with rows that dropouts could lay bare under a mask of this client's own."""
        self._write_delta(words)
        thin = thin_words(self.tables, self.experiment.privacy, session.num_clients)
        veil(words, thin, [(veil_key(self.secrets.keyring.identity, session.id), 1)])

    def _unveil(self, session: Session, survivors: int) -> dict[str, bytes]:
        """The key of that mask, if all rows keep their cover; else the steps stay for the next round."""
        privacy, clients = self.experiment.privacy, session.num_clients
        if survivors >= privacy.cover_quorum(clients):
            return {"veil": veil_key(self.secrets.keyring.identity, session.id)}
        for name, table in self.tables.items():
            holding = self.holdings[name]
            sent = self.sent.get(name, np.ones(len(holding.local), dtype=bool)).copy()
            assert table.holders is not None
            sent[thin_rows(table.holders, privacy, clients)[holding.places]] = False
            self.sent[name] = sent
        if self.every_round:
            self.save(self.round)
        return {}

    def _write_delta(self, words: Words) -> None:
        """Over zeros, how far training moved each shared row that is held and selected; then the scalars."""
        start = clipped = values = 0
        for name, table in self.tables.items():
            holding = self.holdings[name]
            moved = self.step(name)
            if name in self.sent:
                moved[~self.sent[name]] = 0.0
            encoded = self.plan.fixed_point.encode(moved)
            block = words[start : start + table.num_words].reshape(-1, table.width)
            block[holding.places] = encoded.words.reshape(-1, table.width)
            start += table.num_words
            clipped += encoded.num_clipped
            values += moved.size
        self.secrets.sums.mask(self.round, hashlib.sha256(words[:start].data).hexdigest())
        crypto, self.secrets.seconds = self.secrets.seconds, 0.0
        scalars = {
            "loss": max(float(self.metadata["loss"] or 0.0), 0.0),
            "triples": self.metadata["triples"],
            "seconds": float(self.metadata["seconds"]),
            "crypto": crypto,
            "rss_mb": float(self.metadata["rss_mb"]),
            "clipped": clipped,
            "values": values,
        }
        words[start:] = TRAINING.encode(scalars)

    def _save_tables(self) -> None:
        arrays: dict[str, NDArray[Any]] = {}
        for name, table in self.tables.items():
            arrays[f"{name}.rows"] = self.holdings[name].rows
            arrays[f"{name}.shape"] = np.array([table.num_rows, table.width])
            arrays[f"{name}.digest"] = np.frombuffer(table.digest, dtype=np.uint8)
            if table.shared is not None:
                arrays[f"{name}.shared"] = np.ascontiguousarray(table.shared)
                arrays[f"{name}.holders"] = np.ascontiguousarray(table.holders)
        secrets = {name: np.frombuffer(kept, dtype=np.uint8) for name, kept in self.row_secrets.items()}
        self.files.save_arrays("rows", secrets)
        self.files.save_arrays("holdings", arrays)

    def _load_holdings(self) -> None:
        secrets = self.files.load_arrays("rows")
        self.row_secrets = {name: secret.tobytes() for name, secret in secrets.items()}
        arrays = self.files.load_arrays("holdings")
        for name in sorted(key.removesuffix(".shape") for key in arrays if key.endswith(".shape")):
            num_rows, width = map(int, arrays[f"{name}.shape"])
            shared = arrays.get(f"{name}.shared")
            holders, digest = arrays.get(f"{name}.holders"), arrays[f"{name}.digest"].tobytes()
            self.tables[name] = SharedTable(num_rows, width, digest, shared, holders)
            self.holdings[name] = Holding.of(arrays[f"{name}.rows"], shared)


def _asked(requests: Messages) -> str:
    """A name for these requests of a union."""
    return f"union {hashlib.sha256(b''.join(requests.values())).hexdigest()}"


def _ranking(metadata: Mapping[str, Any], split: str) -> Words:
    seconds = float(metadata[f"{split}_seconds"])
    return RANKING.encode(MetricSums.from_json(metadata[split]).scalars(seconds))
