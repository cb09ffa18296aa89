"""Flower's own runtime on loopback: a SuperLink, a SuperNode per client, and one run of the app over TLS."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedkge.experiment import Experiment
from tests.documents import README, blocks_of

__all__ = ["run_on_loopback"]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
HOST = ["--host", "127.0.0.1"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    """A process and its children, ended together."""
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=env, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, 15)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def make_certificates(folder: Path) -> Path:
    """An authority and the SuperLink's certificate, word for word as the README makes them."""
    folder.mkdir()
    (script,) = [block.text for block in blocks_of(README) if "openssl" in block.text]
    subprocess.run(["bash", "-ec", script], cwd=folder, check=True, capture_output=True)
    return folder


def wait_for_door(port: int, authority: Path, patience: float) -> None:
    """Until the SuperLink shows a certificate of that authority for its name."""
    context = ssl.create_default_context(cafile=authority)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                with context.wrap_socket(probe, server_hostname="localhost"):
                    return
        time.sleep(0.2)
    raise TimeoutError("the SuperLink did not open its door")


def run_on_loopback(
    experiment: Experiment,
    data: Sequence[Path],
    work: Path,
    *,
    keys: Sequence[Path] = (),
    patience: float = 1200.0,
) -> dict[str, Any]:
    """The summary of a run over SuperNodes that each know their own data, and their own keys if given.

    Patience, in seconds, ends what hangs: a run takes half a minute, and many times that on a busy machine.
    """
    env = {
        **os.environ,
        "FLWR_HOME": str(work / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    link = free_port()
    tls = make_certificates(work / "tls")
    (work / "home").mkdir(parents=True)
    (work / "home" / "config.toml").write_text(
        f'[superlink.loop]\naddress = "127.0.0.1:{link}"\nroot-certificates = "{tls / "ca.crt"}"\n'
    )
    config = f"experiment = {json.dumps(experiment.to_json())}\nfolder = '{work / 'flower'}'\n"
    if keys:
        config += f"roster = '{keys[0] / 'roster.txt'}'\n"
    (work / "run.toml").write_text(config)
    with ExitStack() as stack:
        superlink = [f"{BIN}/flower-superlink", *HOST, "--port", str(link)]
        superlink += ["--disable-runtime-dependency-installation", "--ssl-ca-certfile", f"{tls}/ca.crt"]
        superlink += ["--ssl-certfile", f"{tls}/superlink.crt", "--ssl-keyfile", f"{tls}/superlink.key"]
        stack.enter_context(running(superlink, env, work / "superlink.log"))
        wait_for_door(link, tls / "ca.crt", patience)
        for number, own in enumerate(data):
            node = f"partition-id={number} num-partitions={len(data)} data='{own}'"
            node += f" state='{work / f'state-{number}'}'"
            if keys:
                node += f" keys='{keys[number]}'"
            supernode = [f"{BIN}/flower-supernode", *HOST, "--port", str(free_port())]
            supernode += ["--superlink", f"127.0.0.1:{link}", "--root-certificates", f"{tls}/ca.crt"]
            supernode += ["--node-config", node]
            stack.enter_context(running(supernode, env, work / f"supernode-{number}.log"))
        command = [f"{BIN}/flwr", "run", str(ROOT), "loop"]
        command += ["--run-config", str(work / "run.toml"), "--stream"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience, check=False)
    summary = work / "flower" / "summary.json"
    assert summary.exists(), done.stdout + done.stderr + (work / "superlink.log").read_text()[-2000:]
    return dict(json.loads(summary.read_text()))
