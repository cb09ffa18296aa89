"""Asking clients and collecting their answers: every byte counted, every failure noted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedkge.errors import FederationError, FedkgeError, MessageError
from fedkge.exchange import Download, Upload, decode, encode
from fedkge.experiment import FederationSettings
from fedkge.server.ledger import Entry, Ledger
from fedkge.server.records import Records
from fedkge.server.transcript import Transcript

__all__ = ["Messenger"]

_log = logging.getLogger(__name__)
_ATTEMPTS = 3
_ARRIVAL_POLL = 0.5
_LARGEST_UPLOAD = 2**30  # bytes
_LONGEST_REASON = 500  # signs


@dataclass(frozen=True, eq=False)
class Reply:
    """An upload, and the very bytes that it came in."""

    raw: bytes
    upload: Upload


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
        self.failed: Mapping[int, str] = {}  # whose answers to the last question could not be used, and why

    @property
    def clients(self) -> list[int]:
        return sorted(self.node_of)

    def meet(self, num_clients: int, hello: Download) -> dict[int, Upload]:
        """Wait for the nodes, greet them, and learn from their answers which client each one is."""
        self.node_of = {}
        answers: dict[int, Upload] = {}
        for _ in range(self._attempts):
            nodes = self._wait_for(num_clients)
            strangers = sorted(nodes - set(self.node_of.values()))
            for node, upload in self._greet(strangers, hello).items():
                if upload.client in answers or not 0 <= upload.client < num_clients:
                    named = sorted([*answers, upload.client])
                    raise FederationError(
                        f"clients call themselves {named}; give each its own partition-id, from 0 to "
                        f"{num_clients - 1}"
                    )
                self.node_of[upload.client], answers[upload.client] = node, upload
            if len(answers) == num_clients:
                return dict(sorted(answers.items()))
        raise FederationError(
            f"{len(answers)} of {num_clients} clients joined; the reasons are in "
            f"{self.records.folder / 'failures.csv'} ({self.last_failure}). {self.records.remedy}"
        )

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

        An answer that does not decode, or that is another client's or another round's, is a failure.
        `protocol` are for one client each, and travel beside what all are told. Without `fewest` answers,
        which are federation.min_clients unless given, the run stops.
        """
        answers: dict[int, Upload] = {}
        for attempt in range(self._attempts):
            missing = {client: download for client, download in downloads.items() if client not in answers}
            if not missing:
                break
            if attempt:
                _log.warning("round %d: asking %d clients again", round, len(missing))
                self._wait_until({self.node_of[client] for client in missing}.issubset)
            answers |= self._ask_once(missing, kind, phase, round, protocol or {})
        if fewest is None:
            fewest = min(self.settings.min_clients, len(self.node_of))
        if len(answers) < fewest:
            raise FederationError(
                f"round {round}, {phase}: {len(answers)} of {len(downloads)} clients answered, but "
                f"federation.min_clients is {self.settings.min_clients}; the reasons are in "
                f"{self.records.folder / 'failures.csv'} ({self.last_failure}). {self.records.remedy}"
            )
        return dict(sorted(answers.items()))

    @property
    def _attempts(self) -> int:
        return _ATTEMPTS if self.settings.on_failure == "repeat" else 1

    def _greet(self, nodes: Sequence[int], hello: Download) -> dict[int, Upload]:
        """What the clients at these nodes say, by node; who each is, it says itself."""
        raw, round = encode(hello, self.settings.precision), hello.round
        messages = {node: _message(raw, b"", node, "query.join", round) for node in nodes}
        replies, failures = self._exchange(messages, round, known=False)
        entries = []
        for reply in replies.values():
            client = reply.upload.client
            entries.append(Entry(round, "union", client, "down", len(raw)))
            entries.append(Entry(round, "union", client, "up", len(reply.raw)))
            self.transcript.hear("query.join", client, reply.raw)
        self._note(entries, {f"node {node}": why for node, why in failures.items()}, "union", round)
        return {node: reply.upload for node, reply in replies.items()}

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
            client: encode(Download(round, protocol=protocol[client])) if client in protocol else b""
            for client in downloads
        }
        messages = {
            client: _message(raw, own[client], self.node_of[client], kind, round)
            for client, raw in payloads.items()
        }
        replies, failures = self._exchange(messages, round)
        self.failed = failures
        entries = [
            Entry(round, phase, client, "down", len(raw) + len(own[client]))
            for client, raw in payloads.items()
        ]
        for client, reply in replies.items():
            entries.append(Entry(round, phase, client, "up", len(reply.raw)))
            self.transcript.hear(kind, client, reply.raw)
        self._note(entries, failures, phase, round)
        return {client: reply.upload for client, reply in replies.items()}

    def _exchange(
        self, messages: Mapping[int, Message], round: int, known: bool = True
    ) -> tuple[dict[int, Reply], dict[int, str]]:
        """What came back for each message, and why nothing did; by client, or by node until all are known."""
        replies: dict[int, Reply] = {}
        failures = dict.fromkeys(messages, "no answer in time")
        with self._flower_errors():
            for reply in self.grid.send_and_receive(list(messages.values()), timeout=self.settings.timeout):
                # Not by sender: where a node is away, the SuperLink itself answers.
                key = next((k for k in messages if _answers(reply, messages[k])), None)
                if key is None or key in replies:
                    continue
                try:
                    replies[key] = _read(reply, messages[key], key if known else None, round)
                except MessageError as error:
                    failures[key] = str(error)
        return replies, {key: why for key, why in failures.items() if key not in replies}

    @contextmanager
    def _flower_errors(self) -> Iterator[None]:
        """Whatever Flower raises means that nothing can be carried any more."""
        try:
            yield
        except FedkgeError:
            raise
        except Exception as error:
            raise FederationError(
                f"Flower could not carry the messages ({type(error).__name__}: {error}). "
                f"{self.records.remedy}"
            ) from error

    def blame(self, client: int, why: object, phase: str, round: int) -> None:
        """Note that an answer came which cannot be used."""
        self._note([], {client: str(why)}, phase, round)

    def _note(self, entries: list[Entry], failures: Mapping[Any, str], phase: str, round: int) -> None:
        entries.sort(key=lambda entry: (entry.direction, entry.client))  # arrival order is chance
        self.ledger.entries += entries
        self.records.add("messages", map(astuple, entries))
        for client, why in sorted(failures.items()):
            reason = _printable(why)
            self.records.add("failures", [(round, phase, client, reason)])
            who = client if isinstance(client, str) else f"client {client}"
            _log.warning("round %d, %s: %s failed: %s", round, phase, who, reason)
            self.last_failure = f"{who}: {reason}"

    def _wait_for(self, num_clients: int) -> set[int]:
        """Nodes may take a while to appear."""
        nodes = self._wait_until(lambda nodes: len(nodes) >= num_clients)
        if len(nodes) < num_clients:
            raise FederationError(
                f"{len(nodes)} of {num_clients} nodes appeared within federation.timeout = "
                f"{self.settings.timeout:g} s; start the others. {self.records.remedy}"
            )
        return nodes

    def _wait_until(self, enough: Callable[[set[int]], bool]) -> set[int]:
        """The nodes that are there, once they are enough or federation.timeout is over."""
        deadline = time.monotonic() + self.settings.timeout
        with self._flower_errors():
            while not enough(nodes := set(self.grid.get_node_ids())) and time.monotonic() < deadline:
                time.sleep(_ARRIVAL_POLL)
        return nodes


def _message(payload: bytes, own: bytes, node: int, kind: str, round: int) -> Message:
    content = RecordDict({"fedkge": ConfigRecord({"payload": payload, **({"own": own} if own else {})})})
    return Message(content, node, kind, group_id=str(round))


def _answers(reply: Message, message: Message) -> bool:
    return reply.metadata.reply_to_message_id == message.metadata.message_id


def _read(reply: Message, message: Message, client: int | None, round: int) -> Reply:
    """The upload in a reply; whatever else it holds is refused."""
    if reply.has_error():
        raise MessageError(_reason(reply))
    if reply.metadata.src_node_id != message.metadata.dst_node_id:
        raise MessageError("another node answered")
    record = reply.content.get("fedkge") if reply.has_content() else None
    raw = record.get("payload") if isinstance(record, ConfigRecord) else None
    if not isinstance(raw, bytes):
        raise MessageError("an answer without a payload")
    if len(raw) > _LARGEST_UPLOAD:
        raise MessageError(f"an answer of {len(raw)} bytes; {_LARGEST_UPLOAD} are the most")
    try:
        upload = decode(raw, Upload)
    except FedkgeError:
        raise
    except Exception as error:  # whatever a client sends, it harms itself alone
        raise MessageError(f"an answer that does not decode ({type(error).__name__}: {error})") from error
    if type(upload.round) is not int or upload.round != round:
        raise MessageError(f"an answer for round {upload.round!r} where {round} was asked")
    if type(upload.client) is not int or client not in (None, upload.client):
        raise MessageError(f"an answer that names client {upload.client!r}")
    return Reply(raw, upload)


def _reason(reply: Message) -> str:
    lines = (reply.error.reason or "").strip().splitlines()
    return lines[-1] if lines else f"error {reply.error.code}"


def _printable(text: str) -> str:
    """What a stranger wrote, fit for a line of a table."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:_LONGEST_REASON])
