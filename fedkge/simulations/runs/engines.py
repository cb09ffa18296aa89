"""Engines: a Flower Grid in this process or over Ray actors, for the very same client and server apps."""

from __future__ import annotations

import logging
import os
import socket
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedkge.errors import FederationError, InputError
from fedkge.experiment import EngineSettings
from fedkge.simulations.runs.worker import Answer, Worker, identify

__all__ = [
    "ENGINES",
    "InlineGrid",
    "NodeConfig",
    "RayGrid",
    "SimulatedGrid",
    "one_ray",
    "open_grid",
    "start_ray",
]

NodeConfig = Mapping[str, str | int | bool]

_log = logging.getLogger(__name__)
_CLIENT_FAILED = 2  # Flower's code for an exception in the ClientApp
_MAX_RESTARTS = 3
_KNOCK = 5.0  # seconds to wait for a cluster to open its door


@dataclass(frozen=True)
class Envelope:
    """A message on its way to a worker: to whom, of what kind, and its payload."""

    node: int
    kind: str
    group: str
    payload: bytes  # the same object for all who are told the same
    own: bytes = b""  # what is for this client alone

    def __len__(self) -> int:
        return len(self.payload) + len(self.own)


class SimulatedGrid(Grid):
    """Carries messages to workers in this machine or cluster, and counts what it carries."""

    def __init__(
        self, run_id: int, experiment: str, nodes: Mapping[int, NodeConfig], settings: EngineSettings
    ) -> None:
        identify(run_id)
        self.run_id = run_id
        self.experiment = experiment
        self.nodes = nodes
        self.settings = settings
        self.bytes_down = 0
        self.bytes_up = 0
        self._run = Run.create_empty(run_id)
        self._answers: dict[str, Message] = {}
        self.start()

    @abstractmethod
    def start(self) -> None:
        """Make the workers, each with its clients."""

    @abstractmethod
    def deliver(self, envelopes: list[Envelope], timeout: float | None) -> Iterator[tuple[int, Answer]]:
        """Answers by node, as they come; whoever takes too long is left out."""

    @abstractmethod
    def close(self) -> None:
        """End the workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = {message.metadata.dst_node_id: message for message in messages}
        for message in sent.values():
            message.metadata.__dict__["_message_id"] = uuid4().hex  # as the SuperLink gives one
        envelopes = [_envelope(message) for message in sent.values()]
        self.bytes_down += sum(map(len, envelopes))
        for node, (payload, reason) in self.deliver(envelopes, timeout):
            if payload is None:
                yield Message(Error(_CLIENT_FAILED, reason), reply_to=sent[node])
            else:
                self.bytes_up += len(payload)
                content = RecordDict({"fedkge": ConfigRecord({"payload": payload})})
                yield Message(content, reply_to=sent[node])

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for reply in self.send_and_receive(messages):
            names.append(f"{len(self._answers)}")
            self._answers[names[-1]] = reply
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._answers.pop(name) for name in message_ids if name in self._answers]


class InlineGrid(SimulatedGrid):
    """Clients run in threads of this process; the kernels release the interpreter's lock."""

    def start(self) -> None:
        nodes = {node: {**config, "one-process": True} for node, config in self.nodes.items()}
        self.worker = Worker(self.run_id, self.experiment, nodes)
        self.pool = ThreadPoolExecutor(self.settings.workers, thread_name_prefix="client")

    def deliver(self, envelopes: list[Envelope], timeout: float | None) -> Iterator[tuple[int, Answer]]:
        deadline = _deadline(timeout)
        waiting: dict[Future[Answer], int] = {
            self.pool.submit(self.worker.handle, *astuple(envelope)): envelope.node for envelope in envelopes
        }
        while waiting:
            done, _ = wait(waiting, timeout=_left(deadline), return_when=FIRST_COMPLETED)
            if not done:
                for late in waiting:
                    late.cancel()
                return
            for future in done:
                yield waiting.pop(future), future.result()

    def close(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.worker.close()


class RayGrid(SimulatedGrid):
    """Clients live in Ray actors, each always in the same one; an actor that dies is replaced.

    Its clients then take up their last state from their own files, and are asked again.
    """

    def start(self) -> None:
        import ray  # takes seconds to import

        self.ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            start_ray(self.settings)
        workers = min(self.settings.workers, len(self.nodes))
        self.home = {node: number % workers for number, node in enumerate(self.nodes)}  # node -> its worker
        self.actors = [self._actor(worker) for worker in range(workers)]

    def deliver(self, envelopes: list[Envelope], timeout: float | None) -> Iterator[tuple[int, Answer]]:
        deadline = _deadline(timeout)
        shared = self._put_once(envelopes)
        waiting = {self._submit(envelope, shared): envelope for envelope in envelopes}
        restarts = 0
        while waiting:
            done, _ = self.ray.wait(list(waiting), num_returns=1, timeout=_left(deadline))
            if not done:
                return
            envelope = waiting.pop(done[0])
            try:
                yield envelope.node, self.ray.get(done[0])
            except self.ray.exceptions.RayActorError as error:
                restarts += 1
                if restarts > _MAX_RESTARTS:
                    raise FederationError(
                        f"a Ray worker died {restarts} times in one exchange ({_first_line(error)}); "
                        "lower engine.workers or give the machine more memory, then resume"
                    ) from error
                lost = [envelope, *self._take(waiting, self.home[envelope.node])]
                self._replace(self.home[envelope.node])
                waiting |= {self._submit(again, shared): again for again in lost}

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        if self._started:
            self.ray.shutdown()

    def _actor(self, worker: int) -> Any:
        settings = self.settings
        nodes = {node: dict(self.nodes[node]) for node, home in self.home.items() if home == worker}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        options: dict[str, Any] = {
            "num_cpus": settings.cpus_per_worker,
            "num_gpus": settings.gpus_per_worker,
            "runtime_env": {"env_vars": threads},
        }
        return self.ray.remote(Worker).options(**options).remote(self.run_id, self.experiment, nodes)

    def _replace(self, worker: int) -> None:
        _log.warning("worker %d died; starting another, and its clients go on from their last state", worker)
        self.actors[worker] = self._actor(worker)

    def _submit(self, envelope: Envelope, shared: Mapping[int, Any]) -> Any:
        payload = shared.get(id(envelope.payload), envelope.payload)
        return self.actors[self.home[envelope.node]].handle.remote(
            envelope.node, envelope.kind, envelope.group, payload, envelope.own
        )

    def _put_once(self, envelopes: list[Envelope]) -> dict[int, Any]:
        """What several clients are told goes into the object store once."""
        counts: dict[int, int] = {}
        for envelope in envelopes:
            counts[id(envelope.payload)] = counts.get(id(envelope.payload), 0) + 1
        payloads = {id(envelope.payload): envelope.payload for envelope in envelopes}
        return {key: self.ray.put(payload) for key, payload in payloads.items() if counts[key] > 1}

    def _take(self, waiting: dict[Any, Envelope], worker: int) -> list[Envelope]:
        """Withdraw what a dead actor was still to answer."""
        refs = [ref for ref, envelope in waiting.items() if self.home[envelope.node] == worker]
        return [waiting.pop(ref) for ref in refs]


ENGINES: dict[str, type[SimulatedGrid]] = {"inline": InlineGrid, "ray": RayGrid}


def open_grid(
    run_id: int, experiment: str, nodes: Mapping[int, NodeConfig], settings: EngineSettings
) -> SimulatedGrid:
    """The grid of the engine that the settings name; close it when the run is over."""
    return ENGINES[settings.name](run_id, experiment, nodes, settings)


@contextmanager
def one_ray(settings: EngineSettings) -> Iterator[None]:
    """Let all runs within share one Ray, if that is their engine: starting one takes seconds."""
    if settings.name != "ray":
        yield
        return
    import ray  # takes seconds to import

    started = not ray.is_initialized()
    if started:
        start_ray(settings)
    try:
        yield
    finally:
        if started:
            ray.shutdown()


def start_ray(settings: EngineSettings) -> None:
    """Start a Ray in this machine, or join a cluster."""
    import ray  # takes seconds to import

    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if settings.ray_address is None:
            cpus = max(1, round(settings.workers * settings.cpus_per_worker + 0.5))
            memory = settings.object_store_mb * 2**20
            ray.init(num_cpus=cpus, object_store_memory=memory, include_dashboard=False, **quiet)
        else:
            _check_address(settings.ray_address)
            ray.init(address=settings.ray_address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = settings.ray_address or "this machine"
        raise InputError(
            f"engine.ray_address: no Ray at {where} ({_first_line(error)}); start one with 'ray start "
            "--head', or leave ray_address out to use this machine, or use --engine inline"
        ) from error


def _check_address(address: str) -> None:
    """Ray itself would knock for ten minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local") or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_KNOCK).close()
    except OSError as error:
        raise ConnectionError(error.strerror or str(error)) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _envelope(message: Message) -> Envelope:
    content = message.content["fedkge"]
    return Envelope(
        message.metadata.dst_node_id,
        message.metadata.message_type,
        message.metadata.group_id,
        content["payload"],  # type: ignore[arg-type]
        content.get("own", b""),  # type: ignore[arg-type]
    )


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)
