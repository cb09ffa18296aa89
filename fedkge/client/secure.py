"""A client that shows the server sums alone: its rows, losses and scores are masked before they leave it.

A shared row is its initial row, which seed and label give to every holder alike, plus the offset that the
server broadcasts. What is summed is how far training moved the row, so a client that drops out counts as
unchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats
from fedkge.client.keyring import Keyring
from fedkge.client.models import build_model
from fedkge.client.participant import Participant
from fedkge.client.secrets import Secrets
from fedkge.client.state import StateFiles
from fedkge.crypto import UNION_MODES, Plan, Session, SharedTable, UnionClient, union_session
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, MessageError, RefusedError, TamperError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import Experiment
from fedkge.metrics import RANKING, TRAINING, SummedScalars

__all__ = ["SecureParticipant"]

Words = NDArray[np.uint32]
Letters = Mapping[str, bytes]


@dataclass(frozen=True, eq=False)
class Holding:
    """Which rows of a shared table this client has."""

    rows: NDArray[np.int64]  # shared row of each local row
    local: NDArray[np.int64]  # the local rows that are shared
    places: NDArray[np.int64]  # where each of them stands among the shared rows

    @classmethod
    def of(cls, rows: NDArray[np.int64], shared: NDArray[np.int32] | None) -> Holding:
        if shared is None:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(rows, nothing, nothing)
        local = np.flatnonzero(np.isin(rows, shared))
        return cls(rows, local, np.searchsorted(shared, rows[local]))


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
    ) -> None:
        self.run = run
        self.keys = keys
        self.tables: dict[str, SharedTable] = {}
        self.holdings: dict[str, Holding] = {}
        self.reference: dict[str, Floats] = {}  # the shared rows as last broadcast, in the order of `local`
        self._base: dict[str, Floats] = {}
        self._unions: dict[str, UnionClient] = {}
        self._load_tables(files)
        super().__init__(client, graph, experiment, files, every_round, simulated)

    @cached_property
    def secrets(self) -> Secrets:
        if self.keys is None:
            raise DataError(
                "the node needs 'keys' in its node config: the folder with its identity.key and roster.txt"
            )
        keyring = Keyring.load(self.keys, self.client)
        return Secrets(self.files.folder / "secrets.safetensors", keyring, self.client, self.every_round)

    @property
    def plan(self) -> Plan:
        roster, privacy = self.secrets.keyring.roster, self.experiment.privacy
        quorum = privacy.quorum(len(roster))
        return Plan(roster, self.run, quorum, privacy.clip, privacy.consistency, self.tables)

    # Before the first round: the union, and who is in the plan.

    def join(self, download: Download) -> Upload:
        """Begin the union, or go on with the one that was made; with nothing to share there is none."""
        if not download.facts["shared"]:
            return super().join(download)
        if not download.facts.get("secure"):
            raise RefusedError(
                "the server asks for labels in the clear, but privacy.secure_aggregation is on; "
                "set it to false on all sides to agree"
            )
        if self.secrets.answered(_asked(download.letters)) is None:  # else the answer was lost on the way
            self.secrets.forget_sessions()
            if download.letters:
                self.tables, self.holdings, self._base, self._unions = {}, {}, {}, {}
            self.files.forget_after(download.round)
            self.restore(download.round)
        widths = {name: self.model.tables[name].shape[1] for name in download.facts["shared"]}
        return Upload(
            download.round, self.client, facts={"widths": widths}, letters=self._unite(download.letters)
        )

    def assign(self, download: Download) -> Upload:
        if download.tables:
            raise RefusedError("rows are assigned in the clear only where privacy.secure_aggregation is off")
        return super().assign(download)

    def unite(self, download: Download) -> Upload:
        """One step of the union."""
        return Upload(download.round, self.client, letters=self._unite(download.letters))

    def advertise(self, download: Download) -> Upload:
        """Learn what the server found out, then open the session it wants to begin."""
        for letter, listing in download.letters.items():
            self._take_listing(letter.removeprefix("listing "), listing)
        if download.tables:
            self._take_shared({name: table.ids for name, table in download.tables.items()})
        session = self._session(download, "next")
        return self._answer(download, f"advertise {session.id.hex()}", lambda: self._advertise(session))

    def share(self, download: Download) -> Upload:
        """Deal the shares of a session's keys."""
        session = self._session(download, "next")
        keys = download.letters["keys"]
        return self._answer(
            download,
            f"share {session.id.hex()}",
            lambda: {"shares": self.secrets.machine(session).share_keys(keys)},
        )

    def count(self, download: Download) -> Upload:
        """One for each row it holds, zero for the others."""
        held = []
        for name, table in self.tables.items():
            own = np.zeros(table.num_rows, dtype=np.uint32)
            own[self.holdings[name].rows] = 1
            held.append(own)
        return self._masked(download, "holders", np.concatenate(held))

    # Rounds.

    def train(self, download: Download) -> Upload:
        if not self.tables:
            return super().train(download)
        if download.round < self.round:
            raise RefusedError(f"round {download.round} is over: this client trained round {self.round}")
        if self.round != download.round:
            self.merge(download.tables)
            self.files.prune(download.facts["keep"], until=download.facts["settled"])
            self._train(download.round)
        return self._masked(download, "delta", None)

    def consent(self, download: Download) -> Upload:
        """Sign over whom the sum goes, where all clients compare what the server shows them."""
        session = self._session(download, "sum")
        survivors = download.letters["survivors"]
        return self._answer(
            download,
            f"consent {session.id.hex()}",
            lambda: {"consent": self.secrets.machine(session).consent(survivors)},
        )

    def unmask(self, download: Download) -> Upload:
        """Help to unmask the sum, once and for one set of survivors; deal the next session's shares."""
        session = self._session(download, "sum")
        following = self._session(download, "next") if "keys" in download.letters else None

        def answer() -> Letters:
            letters = {"reveal": self.secrets.machine(session).unmask(download.letters["survivors"])}
            if following is not None:
                letters["shares"] = self.secrets.machine(following).share_keys(download.letters["keys"])
            self.secrets.close(session)
            return letters

        return self._answer(download, f"unmask {session.id.hex()}", answer)

    def evaluate(self, download: Download) -> Upload:
        upload = super().evaluate(download)
        if not self.tables:
            return upload
        masked = self._masked(download, "valid", _ranking(upload.facts, "valid"))
        return replace(masked, facts=_spent(upload.facts))

    def test(self, download: Download) -> Upload:
        upload = super().test(download)
        if not self.tables:
            return upload
        facts = upload.facts
        own = {split: facts[split] for split in ("valid", "test")}
        (self.files.folder / "test.json").write_text(json.dumps(own), encoding="utf-8")
        digest = np.frombuffer(bytes.fromhex(facts["digest"]), dtype="<u4")
        words = [_ranking(facts, "valid"), _ranking(facts, "test"), digest.astype(np.uint32)]
        masked = self._masked(download, "test", np.concatenate(words))
        return replace(masked, facts=_spent(facts))

    # State.

    def restore(self, until: int) -> None:
        super().restore(until)
        state = self.files.newest(until) if self.tables else None
        stored = {} if state is None else state.tables
        self.reference = {
            name: stored.get(f"reference.{name}", self._initial(name)) for name in self.holdings
        }

    def kept(self) -> Mapping[str, Floats]:
        references = {f"reference.{name}": rows for name, rows in self.reference.items()}
        return {**self.model.tables, **references}

    def merge(self, tables: Mapping[str, Table]) -> None:
        """Initial rows plus the server's offsets, in the place of its own."""
        for name, table in tables.items():
            shared, holding = self.tables[name].shared, self.holdings[name]
            if shared is None or not np.array_equal(table.ids, shared):
                raise TamperError(f"the server broadcasts other {name} rows than those that are shared")
            self.reference[name] = self._initial(name) + table.rows[holding.places]
            self.model.tables[name][holding.local] = self.reference[name]

    def _initial(self, name: str) -> Floats:
        """The shared rows before any training: seed and label alone decide them."""
        if name not in self._base:
            model = build_model(self.experiment.model, self.graph, self.experiment.seed)
            for each, holding in self.holdings.items():
                self._base[each] = model.tables[each][holding.local].copy()
        return self._base[name]

    # The protocols.

    def _unite(self, requests: Letters) -> Letters:
        if not requests:
            return {}
        known = self.secrets.answered(_asked(requests))
        if known is not None:
            return known
        replies = {}
        with self.secrets.timed():
            for letter, request in requests.items():
                name = letter.removeprefix("union ")
                union = self._union(name)
                replies[letter] = union.answer(request)
                self.secrets.notes[name] = union.export_secrets()
        return self.secrets.settle(_asked(requests), replies)

    def _union(self, name: str) -> UnionClient:
        if name not in self._unions:
            labels = {"entity": self.graph.entity_labels, "relation": self.graph.relation_labels}[name]
            roster = self.secrets.keyring.roster
            session = union_session(roster, self.run, name, self.experiment.privacy)
            kind, _ = UNION_MODES[self.experiment.privacy.union]
            union = kind(session, self.client, self.secrets.keyring.identity, self.secrets.journal, labels)
            if name in self.secrets.notes:
                union.restore_secrets(self.secrets.notes[name])
            self._unions[name] = union
        return self._unions[name]

    def _take_listing(self, name: str, listing: bytes) -> None:
        with self.secrets.timed():
            found = self._union(name).finish(listing)
        if name in self.tables:  # asked again
            if self.tables[name].digest != found.digest:
                raise TamperError(f"the server shows another list of the {name} table than before")
            return
        width = self.model.tables[name].shape[1]
        table = SharedTable(found.num_rows, width, found.digest)
        self.tables = dict(sorted({**self.tables, name: table}.items()))
        self.holdings[name] = Holding.of(found.rows, None)
        self._save_tables()

    def _take_shared(self, shared: Mapping[str, NDArray[np.int32]]) -> None:
        """Which rows enough clients hold; settled once, before anything is trained."""
        for name, table in self.tables.items():
            if table.shared is not None and not np.array_equal(table.shared, shared[name]):
                raise TamperError(f"the server changes which {name} rows are shared")
        self.tables = dict(self.plan.with_shared(shared).tables)
        self.holdings = {
            name: Holding.of(holding.rows, shared[name]) for name, holding in self.holdings.items()
        }
        self._base = {}
        self.reference = {name: self._initial(name) for name in self.holdings}
        self.secrets.notes, self._unions = {}, {}  # the union is over
        self._save_tables()

    def _session(self, download: Download, which: str) -> Session:
        """The session that the server names: this round's or the next one's, over this client's own plan."""
        named = download.facts[which]
        round = named["round"]
        if round is not None and round not in (download.round, download.round + 1):
            raise RefusedError(f"a sum of round {round} is named in round {download.round}")
        return self.plan.session(named["purpose"], round, named["attempt"])

    def _advertise(self, session: Session) -> Letters:
        return {"advert": self.secrets.machine(session).advertise()}

    def _masked(self, download: Download, purpose: str, words: Words | None) -> Upload:
        """The vector under its masks, with the keys for the next session."""
        session = self._session(download, "sum")
        if session.purpose != purpose:
            raise MessageError(f"a sum '{session.purpose}' is named where '{purpose}' is expected")
        following = self._session(download, "next") if download.facts.get("next") else None

        def answer() -> Letters:
            machine, delivery = self.secrets.machine(session), download.letters["delivery"]
            if words is None:
                masked = machine.mask_in_place(delivery, self._write_delta)
            else:
                masked = machine.mask(delivery, words)
            return {"masked": masked, **(self._advertise(following) if following else {})}

        return self._answer(download, f"mask {session.id.hex()}", answer)

    def _answer(self, download: Download, question: str, answer: Any) -> Upload:
        """Answer each question once; asked again, say the same."""
        letters = self.secrets.answered(question)
        if letters is None:
            with self.secrets.timed():
                letters = self.secrets.settle(question, answer())
        return Upload(download.round, self.client, letters=letters)

    def _write_delta(self, words: Words) -> None:
        """Over zeros, how far training moved each shared row that is held; then the figures."""
        start = clipped = values = 0
        for name, table in self.tables.items():
            holding = self.holdings[name]
            moved = self.model.tables[name][holding.local].astype(np.float64) - self.reference[name]
            encoded = self.plan.fixed_point.encode(moved)
            block = words[start : start + table.num_words].reshape(-1, table.width)
            block[holding.places] = encoded.words.reshape(-1, table.width)
            start += table.num_words
            clipped += encoded.num_clipped
            values += moved.size
        crypto, self.secrets.seconds = self.secrets.seconds, 0.0
        figures = {
            "loss": max(float(self.facts["loss"] or 0.0), 0.0),
            "triples": self.facts["triples"],
            "seconds": float(self.facts["seconds"]),
            "crypto": crypto,
            "rss_mb": float(self.facts["rss_mb"]),
            "clipped": clipped,
            "values": values,
        }
        words[start:] = TRAINING.encode(figures)

    def _save_tables(self) -> None:
        arrays: dict[str, NDArray[Any]] = {}
        for name, table in self.tables.items():
            arrays[f"{name}.rows"] = self.holdings[name].rows
            arrays[f"{name}.shape"] = np.array([table.num_rows, table.width])
            arrays[f"{name}.digest"] = np.frombuffer(table.digest, dtype=np.uint8)
            if table.shared is not None:
                arrays[f"{name}.shared"] = np.ascontiguousarray(table.shared)
        self.files.save_arrays("holdings", arrays)

    def _load_tables(self, files: StateFiles) -> None:
        arrays = files.load_arrays("holdings")
        for name in sorted(key.removesuffix(".shape") for key in arrays if key.endswith(".shape")):
            num_rows, width = map(int, arrays[f"{name}.shape"])
            shared = arrays.get(f"{name}.shared")
            self.tables[name] = SharedTable(num_rows, width, arrays[f"{name}.digest"].tobytes(), shared)
            self.holdings[name] = Holding.of(arrays[f"{name}.rows"], shared)


def _asked(requests: Letters) -> str:
    """A name for these requests of a union."""
    return f"union {hashlib.sha256(b''.join(requests.values())).hexdigest()}"


def _spent(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What private training has cost is said in the open: it follows from public numbers."""
    return {"privacy": facts["privacy"]} if "privacy" in facts else {}


def _ranking(facts: Mapping[str, Any], split: str) -> Words:
    return RANKING.encode(SummedScalars.of_metric_sums(facts[split], float(facts[f"{split}_seconds"])))
