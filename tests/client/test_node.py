"""A node decides itself which code it runs, and to whom it speaks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.common.config import parse_config_args
from flwr.supernode import cli
from flwr.supernode.runtime import run_clientapp as flower

import fedkge
from fedkge.client.app import app
from fedkge.client.node import Node, run_task, start
from fedkge.errors import DataError, RefusedError, SettingError


@pytest.fixture
def node(tmp_path: Path) -> Node:
    folder = tmp_path / "with a space"
    for name in ("data", "keys"):
        (folder / name).mkdir(parents=True)
    (folder / "ca.crt").touch()
    return Node("example.org:8000", 2, folder / "data", folder / "state", folder / "keys", folder / "ca.crt")


def test_flower_reads_the_node_config_as_it_was_meant(node: Node) -> None:
    node.check()
    words = dict(zip(node.command[1::2], node.command[2::2], strict=True))
    paths = {name: str(getattr(node, name)) for name in ("data", "state", "keys")}
    assert parse_config_args([words["--node-config"]]) == {"partition-id": 2, **paths}
    assert words["--root-certificates"] == str(node.root_certificates)
    assert words["--host"] == "127.0.0.1"


def test_a_connection_that_others_can_read_stays_on_this_machine(node: Node) -> None:
    bare = replace(node, root_certificates=None, insecure=True)
    with pytest.raises(SettingError, match=r"example\.org:8000; give --root-certificates, or --force"):
        bare.check()
    bare.check(anywhere=True)
    for address in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000"):
        replace(bare, superlink=address).check()
    for unclear in (replace(node, insecure=True), replace(node, root_certificates=None)):
        with pytest.raises(SettingError, match="one of the two"):
            unclear.check()
    with pytest.raises(SettingError, match="needs TLS"):
        replace(bare, private_key=node.root_certificates).check(anywhere=True)


def test_what_is_not_there_is_named(node: Node, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--keys: .*elsewhere does not exist"):
        replace(node, keys=tmp_path / "elsewhere").check()
    with pytest.raises(DataError, match="Flower cannot take a path"):
        _ = replace(node, state=tmp_path / "it's").config


def test_a_supernode_finds_our_programs_before_its_own(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[Any] = []
    monkeypatch.setenv("PYTHONPATH", str(Path(fedkge.__file__).parents[1]))
    monkeypatch.setattr(os, "execve", lambda *arguments: became.extend(arguments))
    start(node)
    program, command, environment = became
    assert Path(program).name == "flower-supernode"
    assert command == node.command
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    tasks = ("clientapp", "agentapp", "connector", "model", "serverapp", "simulation")
    for task in tasks:  # all that a SuperNode can be told to start
        found = subprocess.run(
            ["sh", "-c", f"command -v flwr-{task}"], env=environment, capture_output=True, text=True
        )
        assert found.stdout.strip() == str(node.state / "programs" / f"flwr-{task}")
    helped = subprocess.run(
        ["flwr-clientapp", "--help"], env=environment, capture_output=True, text=True, check=True
    )
    assert "Run a Flower ClientApp" in helped.stdout


# What such a program does with a task, in place of Flower's.


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The app that a program takes for a bundle of this name and version."""
    for name in ("install_from_fab", "install_app_dependencies", "get_load_client_app_fn"):
        monkeypatch.setattr(flower, name, getattr(flower, name))  # to be put back
    apps: list[Any] = []

    def load(program: str, fab_id: str, version: str) -> Any:
        def task() -> None:
            flower.install_from_fab(b"no bundle at all", skip_prompt=True)
            load = flower.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
            apps.append(load(fab_id, version, "hash"))

        monkeypatch.setattr(cli, "flwr_clientapp", task)
        run_task(program)
        return apps.pop()

    return load


def test_a_bundle_is_answered_by_the_installed_app(loaded: Callable[..., Any]) -> None:
    assert loaded("flwr-clientapp", "fedkge/fedkge", fedkge.__version__) is app
    with pytest.raises(RefusedError, match="installs nothing"):
        flower.install_app_dependencies(Path("anywhere"))


@pytest.mark.parametrize(
    ("program", "fab_id", "version", "why"),
    [
        ("flwr-clientapp", "other/app", fedkge.__version__, "no flwr-clientapp of other/app"),
        ("flwr-agentapp", "fedkge/fedkge", fedkge.__version__, "no flwr-agentapp"),
        ("flwr-clientapp", "fedkge/fedkge", "99.0", r"fedkge 99\.0, and this node has"),
    ],
)
def test_anything_else_is_refused(
    program: str, fab_id: str, version: str, why: str, loaded: Callable[..., Any]
) -> None:
    with pytest.raises(RefusedError, match=why):
        loaded(program, fab_id, version)


def test_a_flower_that_loads_apps_in_another_way_is_refused(
    loaded: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(flower, "get_load_client_app_fn")
    with pytest.raises(RefusedError, match="a version that fedkge knows"):
        loaded("flwr-clientapp", "fedkge/fedkge", fedkge.__version__)
