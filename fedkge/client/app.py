"""The Flower ClientApp: messages in, messages out; the work is the participant's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkge.client.participant import Participant
from fedkge.client.secure import SecureParticipant
from fedkge.client.state import StateFiles
from fedkge.datasets import load_graph
from fedkge.errors import DataError, MessageError, RefusedError
from fedkge.exchange import Download, Upload, decode, encode
from fedkge.experiment import Experiment

__all__ = ["app", "leave", "resident"]

app = ClientApp()

_lock = threading.Lock()
_residents: dict[tuple[int, int], tuple[Participant, threading.Lock]] = {}  # participants of a sticky worker


def answer(message: Message, context: Context, verb: str) -> Message:
    """Decode, ask the participant, encode."""
    download = _read(message)
    participant, busy = resident(context)
    with busy:  # a late answer to the last message may still be under way
        ask: Callable[[Download], Upload] | None = getattr(participant, verb, None)
        if ask is None:
            raise MessageError(f"'{verb}' is for runs with privacy.secure_aggregation, and this is none")
        upload = ask(download)
        payload = encode(upload, participant.experiment.federation.precision)
    return Message(RecordDict({"fedkge": ConfigRecord({"payload": payload})}), reply_to=message)


def _read(message: Message) -> Download:
    """What all are told, with what is for this client alone."""
    content = message.content["fedkge"]
    download = decode(bytes(content["payload"]), Download)  # type: ignore[arg-type]
    if "own" not in content:
        return download
    own = decode(bytes(content["own"]), Download)  # type: ignore[arg-type]
    return replace(download, protocol={**download.protocol, **own.protocol})


def resident(context: Context) -> tuple[Participant, threading.Lock]:
    """The participant of this node, and what to hold while it works."""
    key = context.run_id, int(context.node_config["partition-id"])
    with _lock:
        if key not in _residents:
            _residents[key] = _arrive(context), threading.Lock()
        return _residents[key]


def _arrive(context: Context) -> Participant:
    """Load the client's own triples and, after a restart, its own state."""
    config = context.node_config
    for name in ("data", "state"):
        if name not in config:
            raise DataError(f"the node needs '{name}' in its node config: a folder on the client's own disk")
    experiment = Experiment.from_json(str(context.run_config["experiment"]))
    client = int(config["partition-id"])
    files = StateFiles(Path(str(config["state"])) / f"run-{context.run_id}" / f"client-{client}")
    graph = load_graph(Path(str(config["data"])))
    every_round = not config.get("one-process", False)
    keys = Path(str(config["keys"])) if "keys" in config else None
    simulated = bool(config.get("simulated", False))
    if experiment.privacy.secure_aggregation:
        run = str(config.get("run", context.run_id))
        return SecureParticipant(client, graph, experiment, files, every_round, run, keys, simulated)
    if keys is not None:
        raise RefusedError(
            "this node has keys for secure aggregation, but the run has privacy.secure_aggregation = false; "
            "take 'keys' out of the node config to take part without"
        )
    return Participant(client, graph, experiment, files, every_round, simulated)


def leave(run_id: int) -> None:
    """Forget the participants of a run that is over."""
    with _lock:
        for key in [key for key in _residents if key[0] == run_id]:
            del _residents[key]


def _answering(verb: str) -> Callable[[Message, Context], Message]:
    return lambda message, context: answer(message, context, verb)


for _action in ("join", "assign", "advertise", "share", "count", "consent", "unmask"):
    app.query(_action)(_answering(_action))
app.query("union")(_answering("unite"))
app.train()(_answering("train"))
app.evaluate()(_answering("evaluate"))
app.evaluate("test")(_answering("test"))
