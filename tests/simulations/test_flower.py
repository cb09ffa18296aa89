"""The same app under Flower's own runtime: a SuperLink and SuperNodes on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fedkge.experiment import Experiment
from fedkge.simulations import runs

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 240.0


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
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def wait_for_door(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail("the SuperLink did not open its door")


def test_superlink_and_supernodes_give_the_same_bits(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment = tiny("data.clients=2", "federation.rounds=1", "federation.evaluate_every=1")
    inline = runs.run(experiment, tmp_path / "inline")
    env = {
        **os.environ,
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    link = free_port()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        f'[superlink]\ndefault = "loop"\n[superlink.loop]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    config = f"experiment = {json.dumps(experiment.to_json())}\nfolder = '{tmp_path / 'flower'}'\n"
    (tmp_path / "run.toml").write_text(config)
    host = ["--insecure", "--host", "127.0.0.1"]
    with ExitStack() as stack:
        superlink = [
            f"{BIN}/flower-superlink",
            *host,
            "--port",
            str(link),
            "--disable-runtime-dependency-installation",
        ]
        stack.enter_context(running(superlink, env, tmp_path / "superlink.log"))
        wait_for_door(link)
        for number in range(2):
            data = tmp_path / "inline" / "data" / f"client-{number}"
            node = (
                f"partition-id={number} num-partitions=2 data='{data}' state='{tmp_path / f'state-{number}'}'"
            )
            supernode = [f"{BIN}/flower-supernode", *host, "--port", str(free_port())]
            supernode += ["--superlink", f"127.0.0.1:{link}", "--node-config", node]
            stack.enter_context(running(supernode, env, tmp_path / f"supernode-{number}.log"))
        command = [
            f"{BIN}/flwr",
            "run",
            str(ROOT),
            "loop",
            "--run-config",
            str(tmp_path / "run.toml"),
            "--stream",
        ]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    summary = tmp_path / "flower" / "summary.json"
    assert summary.exists(), done.stdout + done.stderr + (tmp_path / "superlink.log").read_text()[-2000:]
    flower = json.loads(summary.read_text())
    assert flower["result_hash"] == inline.summary["result_hash"]
    assert flower["communication"]["bytes_up"] == inline.summary["communication"]["bytes_up"]
