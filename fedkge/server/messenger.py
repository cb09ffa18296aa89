"""Asking clients and collecting their answers: every byte counted, every failure noted."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import astuple

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedkge.errors import FederationError
from fedkge.exchange import Download, Upload, decode, encode
from fedkge.experiment import FederationSettings
from fedkge.server.ledger import Entry, Ledger
from fedkge.server.records import Records
from fedkge.server.transcript import Transcript

__all__ = ["Messenger"]

_log = logging.getLogger(__name__)
_ATTEMPTS = 3
_ARRIVAL_POLL = 0.5


class Messenger:
    """Speaks with clients by their number, whatever the nodes behind them are called."""

    def __init__(
        self,
        grid: Grid,
        settings: FederationSettings,
        ledger: Ledger,
        records: Records,
        transcript: Transcript,
    ) -> None:
        self.grid = grid
        self.settings = settings
        self.ledger = ledger
        self.records = records
        self.transcript = transcript
        self.node_of: dict[int, int] = {}
        self.last_failure = ""

    @property
    def clients(self) -> list[int]:
        return sorted(self.node_of)

    def meet(self, num_clients: int, hello: Download) -> dict[int, Upload]:
        """Wait for the nodes, greet them, and learn from their answers which client each one is."""
        self.node_of = dict(enumerate(self._wait_for(num_clients)))
        answers = self.ask(dict.fromkeys(self.node_of, hello), "query.join", "union", hello.round)
        if len(answers) < num_clients:
            raise FederationError(
                f"{len(answers)} of {num_clients} clients joined; the reasons are in "
                f"{self.records.folder / 'failures.csv'} ({self.last_failure})"
            )
        named = sorted(upload.client for upload in answers.values())
        if named != list(range(num_clients)):
            raise FederationError(f"clients call themselves {named}; give each its own partition-id, from 0")
        self.node_of = {upload.client: self.node_of[place] for place, upload in answers.items()}
        return {upload.client: upload for upload in answers.values()}

    def ask(
        self,
        downloads: Mapping[int, Download],
        kind: str,
        phase: str,
        round: int,
        protocol: Mapping[int, Mapping[str, bytes]] | None = None,
        fewest: int | None = None,
    ) -> dict[int, Upload]:
        """The answers by client; whoever failed is asked again if so configured, and left out otherwise.

        `protocol` are for one client each, and travel beside what all are told. Without `fewest` answers,
        which are federation.min_clients unless given, the run stops.
        """
        answers: dict[int, Upload] = {}
        for attempt in range(_ATTEMPTS if self.settings.on_failure == "repeat" else 1):
            missing = {client: download for client, download in downloads.items() if client not in answers}
            if not missing:
                break
            if attempt:
                _log.warning("round %d: asking %d clients again", round, len(missing))
            answers |= self._ask_once(missing, kind, phase, round, protocol or {})
        if fewest is None:
            fewest = min(self.settings.min_clients, len(self.node_of))
        if len(answers) < fewest:
            raise FederationError(
                f"round {round}, {phase}: {len(answers)} of {len(downloads)} clients answered, but "
                f"federation.min_clients is {self.settings.min_clients}; the reasons are in "
                f"{self.records.folder / 'failures.csv'} ({self.last_failure}). The last checkpoint is "
                "intact: resume later"
            )
        return dict(sorted(answers.items()))

    def _ask_once(
        self,
        downloads: Mapping[int, Download],
        kind: str,
        phase: str,
        round: int,
        protocol: Mapping[int, Mapping[str, bytes]],
    ) -> dict[int, Upload]:
        # One object for all who are told the same: it is encoded once, and an engine can send it once.
        contents = {
            id(download): encode(download, self.settings.precision) for download in downloads.values()
        }
        payloads = {client: contents[id(download)] for client, download in downloads.items()}
        own = {
            client: encode(Download(round, protocol=protocol[client]))
            for client in downloads
            if client in protocol
        }
        entries = [
            Entry(round, phase, client, "down", len(raw) + len(own.get(client, b"")))
            for client, raw in payloads.items()
        ]
        answers, failures = {}, dict.fromkeys(downloads, "no answer in time")
        client_of = {self.node_of[client]: client for client in downloads}
        messages = [
            _message(raw, own.get(client, b""), self.node_of[client], kind, round)
            for client, raw in payloads.items()
        ]
        for reply in self.grid.send_and_receive(messages, timeout=self.settings.timeout):
            client = client_of[reply.metadata.src_node_id]
            if reply.has_error():
                failures[client] = _reason(reply)
                continue
            raw = bytes(reply.content["fedkge"]["payload"])  # type: ignore[arg-type]
            entries.append(Entry(round, phase, client, "up", len(raw)))
            answers[client] = decode(raw, Upload)
            self.transcript.hear(kind, answers[client].client, raw)
            del failures[client]
        self._note(entries, failures, phase, round)
        return answers

    def blame(self, client: int, why: object, phase: str, round: int) -> None:
        """Note that an answer came which cannot be used."""
        self._note([], {client: str(why)}, phase, round)

    def _note(self, entries: list[Entry], failures: Mapping[int, str], phase: str, round: int) -> None:
        entries.sort(key=lambda entry: (entry.direction, entry.client))  # arrival order is chance
        self.ledger.entries += entries
        self.records.add("messages", map(astuple, entries))
        self.records.add(
            "failures", ((round, phase, client, why) for client, why in sorted(failures.items()))
        )
        for client, why in sorted(failures.items()):
            _log.warning("round %d, %s: client %d failed: %s", round, phase, client, why)
            self.last_failure = f"client {client}: {why}"

    def _wait_for(self, num_clients: int) -> list[int]:
        """Nodes may take a while to appear."""
        deadline = time.monotonic() + self.settings.timeout
        while len(nodes := sorted(self.grid.get_node_ids())) < num_clients:
            if time.monotonic() > deadline:
                raise FederationError(
                    f"{len(nodes)} of {num_clients} nodes appeared within federation.timeout = "
                    f"{self.settings.timeout:g} s; start the others, or lower data.clients"
                )
            time.sleep(_ARRIVAL_POLL)
        return nodes[:num_clients]


def _message(payload: bytes, own: bytes, node: int, kind: str, round: int) -> Message:
    content = RecordDict({"fedkge": ConfigRecord({"payload": payload, **({"own": own} if own else {})})})
    return Message(content, node, kind, group_id=str(round))


def _reason(reply: Message) -> str:
    lines = (reply.error.reason or "").strip().splitlines()
    return lines[-1] if lines else f"error {reply.error.code}"
