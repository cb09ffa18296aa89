"""The Flower ClientApp: messages in, messages out; the work is the participant's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkge.client.participant import Participant
from fedkge.client.state import StateFiles
from fedkge.datasets import load_graph
from fedkge.errors import DataError
from fedkge.exchange import Download, Upload, decode, encode
from fedkge.experiment import Experiment

__all__ = ["app"]

app = ClientApp()

_lock = threading.Lock()
_residents: dict[tuple[int, int], tuple[Participant, threading.Lock]] = {}  # participants of a sticky worker


def answer(message: Message, context: Context, ask: Callable[[Participant, Download], Upload]) -> Message:
    """Decode, ask the participant, encode."""
    download = decode(bytes(message.content["fedkge"]["payload"]), Download)  # type: ignore[arg-type]
    participant, busy = _resident(context)
    with busy:  # a late answer to the last message may still be under way
        upload = ask(participant, download)
        payload = encode(upload, participant.experiment.federation.precision)
    return Message(RecordDict({"fedkge": ConfigRecord({"payload": payload})}), reply_to=message)


def _resident(context: Context) -> tuple[Participant, threading.Lock]:
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
    return Participant(client, graph, experiment, files, every_round=not config.get("one-process", False))


def leave(run_id: int) -> None:
    """Forget the participants of a run that is over."""
    with _lock:
        for key in [key for key in _residents if key[0] == run_id]:
            del _residents[key]


@app.query("join")
def join(message: Message, context: Context) -> Message:
    return answer(message, context, Participant.join)


@app.query("assign")
def assign(message: Message, context: Context) -> Message:
    return answer(message, context, Participant.assign)


@app.train()
def train(message: Message, context: Context) -> Message:
    return answer(message, context, Participant.train)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    return answer(message, context, Participant.evaluate)


@app.evaluate("test")
def test(message: Message, context: Context) -> Message:
    return answer(message, context, Participant.test)
