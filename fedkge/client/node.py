"""A client's machine: Flower's SuperNode, which runs the fedkge that is installed there.

A plain SuperNode runs whatever code comes with a run. Here the programs that it starts for a task are our
own: they fetch the message as Flower's do, and let the installed ClientApp answer it. The code that came
along is neither unpacked nor imported, and nothing is installed for it.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fedkge.errors import DataError, RefusedError, SettingError
from fedkge.storage import staged, storage_errors

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp

__all__ = ["Node", "run_task", "start"]

_OUR_APP = "fedkge/fedkge"  # publisher and name, as pyproject.toml tells them Flower
_VERSION = str(sys.modules["fedkge"].__version__)  # by its name: the package itself knows all rooms
_TASK = "flwr-clientapp"
_REFUSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


@dataclass(frozen=True)
class Node:
    """What a client's operator decides."""

    superlink: str  # host:port
    client: int
    data: Path
    state: Path
    keys: Path | None = None
    root_certificates: Path | None = None
    private_key: Path | None = None  # by which the SuperLink knows this node
    insecure: bool = False
    port: int = 9094

    def check(self, anywhere: bool = False) -> None:
        """Refuse what cannot work, and a connection that others can read unless it may go anywhere."""
        if self.insecure == (self.root_certificates is not None):
            raise SettingError("give --root-certificates, or --insecure on one machine: one of the two")
        if self.insecure and not anywhere and not _is_loopback(self.superlink):
            raise SettingError(
                f"--insecure: all could read and change what travels to {self.superlink}; give "
                "--root-certificates, or --force if the network is your own"
            )
        if self.insecure and self.private_key is not None:
            raise SettingError("--auth-supernode-private-key needs TLS: give --root-certificates")
        files = {"data": self.data, "keys": self.keys}
        files |= {"root-certificates": self.root_certificates, "auth-supernode-private-key": self.private_key}
        for option, path in files.items():
            if path is not None and not path.exists():
                raise DataError(f"--{option}: {path} does not exist")

    @property
    def config(self) -> str:
        """The node config, as Flower's command line takes it."""
        paths = {"data": self.data, "state": self.state, "keys": self.keys}
        parts = [f"partition-id={self.client}"]
        for name, path in paths.items():
            if path is not None:
                parts.append(f"{name}={_quoted(path)}")
        return " ".join(parts)

    @property
    def command(self) -> list[str]:
        """Flower's SuperNode with all this; its own door is open to this machine alone."""
        command = [str(_scripts() / "flower-supernode"), "--superlink", self.superlink]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--node-config", self.config]
        command += ["--insecure"] if self.insecure else ["--root-certificates", str(self.root_certificates)]
        if self.private_key is not None:
            command += ["--auth-supernode-private-key", str(self.private_key)]
        return command


def start(node: Node) -> NoReturn:
    """Become Flower's SuperNode; it finds our programs before its own."""
    programs = node.state / "programs"
    with storage_errors(node.state):
        programs.mkdir(parents=True, exist_ok=True)
        programs.chmod(0o700)
        for name in (_TASK, *_REFUSED):
            with staged(programs / name) as path:
                command = shlex.join([sys.executable, "-P", "-m", __name__, name])
                path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
                path.chmod(0o700)
    places = [str(programs.resolve()), str(_scripts()), os.environ.get("PATH", os.defpath)]
    environment = {**os.environ, **_QUIET, "PATH": os.pathsep.join(places)}
    os.execve(node.command[0], node.command, environment)


def run_task(program: str) -> None:
    """Stand in for one of Flower's programs: answer a message with the installed ClientApp, or refuse it."""
    from flwr.supernode.cli import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as flower

    def load(fab_id: str, fab_version: str, fab_hash: str) -> ClientApp:
        del fab_hash
        if program != _TASK or fab_id != _OUR_APP:
            raise RefusedError(f"this node runs {_OUR_APP} alone, and no {program} of {fab_id}")
        if fab_version != _VERSION:
            raise RefusedError(
                f"the run is one of fedkge {fab_version}, and this node has {_VERSION}; install "
                "the same version on all sides"
            )
        from fedkge.client.app import app

        return app

    replaced = {
        "install_from_fab": lambda *_, **__: None,
        "install_app_dependencies": _refuse_to_install,
        "get_load_client_app_fn": lambda **_: load,
    }
    for name, function in replaced.items():
        if not hasattr(flower, name):
            raise RefusedError(f"Flower has no {name} any more: install a version that fedkge knows")
        setattr(flower, name, function)
    flwr_clientapp()


def _refuse_to_install(*_: Any, **__: Any) -> NoReturn:
    raise RefusedError("this node installs nothing for a run")


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _quoted(path: Path) -> str:
    text = str(path.resolve())
    if "'" in text or not text.isprintable():
        raise DataError(f"{text!r}: Flower cannot take a path with this sign; use another")
    return f"'{text}'"


def _scripts() -> Path:
    return Path(sysconfig.get_path("scripts"))


if __name__ == "__main__":
    run_task(sys.argv.pop(1))
