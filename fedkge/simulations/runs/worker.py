"""Runs the clients of a simulation: the same ClientApp that Flower would run, message by message."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import Mod
from flwr.supercore.task_identity import TaskIdentity

from fedkge.attacks.behaviours import BEHAVIOURS
from fedkge.client.app import app, leave

__all__ = ["Answer", "Worker", "identify"]

Program = Callable[[Message, Context], Message]
Answer = tuple[bytes | None, str]  # the payload, or None and the reason


class Worker:
    """Holds some clients for the whole run; a client always comes back to the same worker."""

    def __init__(
        self, run_id: int, experiment: str, nodes: Mapping[int, Mapping[str, str | int | bool]]
    ) -> None:
        identify(run_id)
        self.run_id = run_id
        self.contexts = {
            node: Context(run_id, node, dict(config), RecordDict(), {"experiment": experiment})
            for node, config in nodes.items()
        }
        self.apps = {node: _app_of(config) for node, config in nodes.items()}

    def handle(self, node: int, kind: str, group: str, payload: bytes, own: bytes = b"") -> Answer:
        """One message to one client; whatever it raises is its answer."""
        content = RecordDict({"fedkge": ConfigRecord({"payload": payload, **({"own": own} if own else {})})})
        message = Message(content, node, kind, group_id=group)
        try:
            reply = self.apps[node](message, self.contexts[node])
        except Exception as error:  # noqa: BLE001 - a client's failure is news for the server, not the end of the worker
            reason = "".join(traceback.format_exception(error)).strip()
            return None, reason
        return bytes(reply.content["fedkge"]["payload"]), ""  # type: ignore[arg-type]

    def close(self) -> None:
        leave(self.run_id)


def _app_of(config: Mapping[str, str | int | bool]) -> Program:
    """The client's program; a plan in its node config makes it malicious."""
    program: Program = app
    for name in BEHAVIOURS:
        if name in config:
            program = _around(BEHAVIOURS[name].load(Path(str(config[name]))), program)
    return program


def _around(mod: Mod, program: Program) -> Program:
    return lambda message, context: mod(message, context, program)


def identify(run_id: int) -> None:
    """Flower wants to know which task makes a message."""
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = 1
    TaskIdentity.task_id = 1
