"""Flower's own runtime on loopback, as the README sets it up: a SuperLink, and a node for each client."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedkge.client.node import Node
from fedkge.experiment import Experiment
from fedkge.simulations.cli.run_commands import write_flower_config
from tests.documents import README, blocks_of

__all__ = ["Deployment", "deployed"]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
HOST = ["--host", "127.0.0.1"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_certificates(folder: Path) -> Path:
    """An authority and the SuperLink's certificate, word for word as the README makes them."""
    folder.mkdir()
    (script,) = [block.text for block in blocks_of(README) if "openssl" in block.text]
    subprocess.run(["bash", "-ec", script], cwd=folder, check=True, capture_output=True)
    return folder


@dataclass
class Deployment:
    """A SuperLink over TLS that lets in the nodes whose keys are registered, and what runs on it.

    Patience, in seconds, ends what hangs: a run takes half a minute, and many times that on a busy machine.
    """

    work: Path
    data: Sequence[Path]
    keys: Sequence[Path] = ()
    plain: bool = False  # Flower's own SuperNodes in place of ours
    patience: float = 1200.0
    link: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the server writes the run."""
        return self.work / "flower"

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "FLWR_HOME": str(self.work / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }

    # Processes.

    def start(self, name: str, command: Sequence[str]) -> None:
        with (self.work / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        """End a process and its children."""
        process = self.processes.pop(name)
        os.killpg(process.pid, how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self, name: str) -> str:
        return (self.work / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, pattern: str, times: int = 1) -> None:
        """Until a process has logged something."""
        deadline = time.monotonic() + self.patience
        while len(re.findall(pattern, self.log(name))) < times:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} does not say {pattern}: {self.log(name)[-2000:]}")
            time.sleep(0.1)

    # The SuperLink, the nodes and a run.

    def start_superlink(self) -> None:
        tls = make_certificates(self.work / "tls")
        (self.work / "home").mkdir()
        (self.work / "home" / "config.toml").write_text(
            f'[superlink.ours]\naddress = "127.0.0.1:{self.link}"\nroot-certificates = "{tls / "ca.crt"}"\n'
        )
        command = [f"{BIN}/flower-superlink", *HOST, "--port", str(self.link)]
        command += ["--disable-runtime-dependency-installation", "--enable-supernode-auth"]
        command += ["--ssl-ca-certfile", f"{tls}/ca.crt"]
        command += ["--ssl-certfile", f"{tls}/superlink.crt", "--ssl-keyfile", f"{tls}/superlink.key"]
        self.start("superlink", command)
        self._wait_for_door(tls / "ca.crt")

    def _wait_for_door(self, authority: Path) -> None:
        """Until the SuperLink shows a certificate of that authority for its name."""
        context = ssl.create_default_context(cafile=authority)
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.link)) == 0:
                    with context.wrap_socket(probe, server_hostname="localhost"):
                        return
            time.sleep(0.2)
        raise TimeoutError(f"the SuperLink did not open its door: {self.log('superlink')[-2000:]}")

    def register(self, number: int) -> None:
        key = self.work / f"node-{number}"
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key], check=True)
        self.flwr("supernode", "register", f"{key}.pub", "ours").check_returncode()

    def start_node(self, number: int) -> None:
        node = Node(
            f"127.0.0.1:{self.link}",
            number,
            self.data[number],
            self.work / f"state-{number}",
            self.keys[number] if self.keys else None,
            self.work / "tls" / "ca.crt",
            self.work / f"node-{number}",
            port=free_port(),
        )
        command = [sys.executable, "-m", "fedkge.simulations.cli.main", "node"]
        command += ["--superlink", node.superlink, "--root-certificates", str(node.root_certificates)]
        command += ["--auth-supernode-private-key", str(node.private_key), "--client", str(number)]
        command += ["--data", str(node.data), "--state", str(node.state), "--port", str(node.port)]
        command += ["--keys", str(node.keys)] if node.keys else []
        self.start(f"node-{number}", node.command if self.plain else command)

    def flwr(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [f"{BIN}/flwr", *words]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=self.patience, check=False
        )

    def configure(self, experiment: Experiment, resume: bool = False) -> Path:
        """The run config, as `fedkge flower-config` writes it."""
        file, config = self.work / "experiment.toml", self.work / "run.toml"
        file.write_text(experiment.to_toml())
        roster = self.keys[0] / "roster.txt" if self.keys else None
        write_flower_config(self.folder, config, roster, resume=resume, file=file)
        return config

    def run(self, experiment: Experiment, app: Path = ROOT, resume: bool = False) -> str:
        """What `flwr run` prints while the run goes on."""
        config = self.configure(experiment, resume)
        done = self.flwr("run", str(app), "ours", "--run-config", str(config), "--stream")
        return done.stdout + done.stderr

    def begin(self, experiment: Experiment) -> None:
        """Submit a run, and do not wait for it."""
        self.flwr("run", str(ROOT), "ours", "--run-config", str(self.configure(experiment)))

    def summary(self, printed: str = "") -> dict[str, Any]:
        path = self.folder / "summary.json"
        assert path.exists(), printed + self.log("superlink")[-3000:]
        return dict(json.loads(path.read_text()))


@contextmanager
def deployed(work: Path, data: Sequence[Path], **options: Any) -> Iterator[Deployment]:
    """A SuperLink and a node for each client; all of it ends with the block."""
    deployment = Deployment(work, data, **options)
    try:
        deployment.start_superlink()
        for number in range(len(data)):
            deployment.register(number)
            deployment.start_node(number)
        yield deployment
    finally:
        for name in list(deployment.processes):
            deployment.stop(name)


def doctored_app(folder: Path, line: str) -> Path:
    """A clone of this repository whose client has one more line."""
    shutil.copytree(ROOT / "fedkge", folder / "fedkge", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    with (folder / "fedkge" / "client" / "app.py").open("a") as file:
        file.write(f"\n{line}\n")
    return folder
