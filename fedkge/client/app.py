"""The Flower ClientApp: messages in, messages out; the work is the participant's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkge.agreement import run_name
from fedkge.client.participant import Participant
from fedkge.client.policy import Policy
from fedkge.client.requests import check_request
from fedkge.client.secure import SecureParticipant
from fedkge.client.state import StateFiles
from fedkge.datasets import load_graph
from fedkge.errors import DataError, FedkgeError, MessageError, RefusedError
from fedkge.exchange import Download, Upload, decode, encode
from fedkge.experiment import Experiment

__all__ = ["app", "leave", "resident"]

app = ClientApp()

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_residents: dict[tuple[int, int], tuple[Participant, threading.Lock]] = {}  # participants of a sticky worker


def answer(message: Message, context: Context, verb: str) -> Message:
    """Decode, ask the participant, encode; what is refused is logged, told to the server, and undone."""
    try:
        return _answer(message, context, verb)
    except FedkgeError as error:
        _log.warning("'%s' of run %d is refused: %s", verb, context.run_id, error)
        raise


def _answer(message: Message, context: Context, verb: str) -> Message:
    participant, busy = resident(context)
    with busy:  # a late answer to the last message may still be under way
        ask: Callable[[Download], Upload] | None = getattr(participant, verb, None)
        if ask is None:
            raise MessageError(f"'{verb}' is for runs with privacy.secure_aggregation, and this is none")
        try:
            upload = ask(_read(message, participant.policy, verb))
        except BaseException:
            if participant.every_round:  # all that it may remember is on its disk
                _dismiss(context)
            raise
        payload = encode(upload, participant.experiment.federation.precision)
    return Message(RecordDict({"fedkge": ConfigRecord({"payload": payload})}), reply_to=message)


def _read(message: Message, policy: Policy, verb: str) -> Download:
    """What all are told, with what is for this client alone."""
    try:
        content = message.content["fedkge"]
        parts = [content[name] for name in ("payload", "own") if name in content]
    except KeyError as error:
        raise MessageError(f"the message has no record {error}") from None
    if not parts or not all(isinstance(part, bytes) for part in parts):
        raise MessageError("the message has no payload")
    policy.check_message(sum(map(len, parts)))  # type: ignore[arg-type]
    download, *rest = (decode(bytes(part), Download) for part in parts)  # type: ignore[arg-type]
    for own in rest:
        download = replace(download, protocol={**download.protocol, **own.protocol})
    check_request(download, verb)
    return download


def resident(context: Context) -> tuple[Participant, threading.Lock]:
    """The participant of this node, and what to hold while it works."""
    key = _key(context)
    with _lock:
        if key not in _residents:
            _residents[key] = _arrive(context), threading.Lock()
        return _residents[key]


def _key(context: Context) -> tuple[int, int]:
    return context.run_id, int(context.node_config["partition-id"])


def _arrive(context: Context) -> Participant:
    """Load the client's own triples and, after a restart, its own state, if its operator accepts the run."""
    config = context.node_config
    for name in ("data", "state"):
        if name not in config:
            raise DataError(f"the node needs '{name}' in its node config: a folder on the client's own disk")
    experiment = _experiment(context)
    run = run_name(experiment, config if "run" in config else context.run_config)
    client = int(config["partition-id"])
    every_round = not config.get("one-process", False)
    keys = Path(str(config["keys"])) if "keys" in config else None
    simulated = bool(config.get("simulated", False))
    policy = Policy.simulated() if simulated else _policy(config)
    if not simulated:
        experiment.data.check_deployed()
        experiment.evaluation.check_deployed()
    _check_keys(keys, experiment)
    policy.check_experiment(experiment)
    graph = load_graph(Path(str(config["data"])))
    policy.check_data(graph, experiment.dp_of(client))
    folder = Path(str(config["state"])) / f"run-{run}" / f"client-{client}"
    ledgers = None if simulated else keys or Path(str(config["state"])) / f"client-{client}"
    files = StateFiles(folder, durable=not simulated, ledgers=ledgers)
    if experiment.privacy.secure_aggregation:
        return SecureParticipant(
            client, graph, experiment, files, every_round, run, keys, simulated, policy=policy
        )
    return Participant(client, graph, experiment, files, every_round, simulated, policy=policy)


def _check_keys(keys: Path | None, experiment: Experiment) -> None:
    """A node with keys shows nothing in the open, whatever the run says."""
    if keys is not None and not experiment.privacy.secure_aggregation:
        raise RefusedError(
            "this node has keys for secure aggregation, but the run has privacy.secure_aggregation = false; "
            "take 'keys' out of the node config to take part without"
        )


def _policy(config: Mapping[str, Any]) -> Policy:
    """Of its operator: beside its keys, or where the node config says; a node with neither hides little."""
    place = config.get("policy", config.get("keys"))
    return Policy(own_scores=True) if place is None else Policy.load(Path(str(place)))


def _experiment(context: Context) -> Experiment:
    try:
        return Experiment.from_json(str(context.run_config["experiment"]))
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError(
            f"the run config has no experiment ({error}); write it with 'fedkge flower-config'"
        ) from None


def leave(run_id: int) -> None:
    """Forget the participants of a run that is over."""
    with _lock:
        for key in [key for key in _residents if key[0] == run_id]:
            _residents.pop(key)[0].close()


def _dismiss(context: Context) -> None:
    """Forget one participant: the next message finds what was written, not the step that failed."""
    with _lock:
        if _key(context) in _residents:
            _residents.pop(_key(context))[0].close()


def _answering(verb: str) -> Callable[[Message, Context], Message]:
    return lambda message, context: answer(message, context, verb)


for _action in ("join", "assign", "advertise", "share", "count", "consent", "unmask"):
    app.query(_action)(_answering(_action))
app.query("union")(_answering("unite"))
app.train()(_answering("train"))
app.evaluate()(_answering("evaluate"))
app.evaluate("test")(_answering("test"))
