"""The package as a whole: what it exports exists, and every error is in the tree that its docstring draws."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

import fedkge
from fedkge import errors

MODULES = [module.name for module in pkgutil.walk_packages(fedkge.__path__, "fedkge.")]


@pytest.mark.parametrize("name", MODULES)
def test_all_is_true(name: str) -> None:
    module = importlib.import_module(name)
    for exported in getattr(module, "__all__", []):
        assert hasattr(module, exported)


def test_the_error_tree_is_drawn() -> None:
    for name in errors.__all__:
        assert name in (errors.__doc__ or "")
        assert issubclass(getattr(errors, name), errors.FedkgeError)


def test_help_imports_nothing_slow() -> None:
    """Help must come at once: what takes long to import waits until a command needs it."""
    slow = ("flwr", "jinja2", "matplotlib", "numba", "numpy", "pandas", "pydantic", "pykeen", "ray", "torch")
    code = f"""
import atexit, sys
atexit.register(lambda: print([name for name in {slow} if name in sys.modules]))
sys.argv = ["fedkge", "--help"]
import fedkge.simulations.cli.main as cli
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reproduce" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_attacks_that_need_no_truth_are_bound_by_the_contract_to_do_without() -> None:
    """What computes a guess cannot come to look at the answers without a check that fails."""
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    (bound,) = (
        set(contract["source_modules"])
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith("an attack works on a view")
    )
    rooms = ("behaviours", "holdings", "membership.federated")
    modules = [
        name for name in MODULES if name.startswith(tuple(f"fedkge.attacks.{room}." for room in rooms))
    ]
    graph = grimp.build_graph("fedkge")
    free = {name for name in modules if not graph.chain_exists(name, "fedkge.attacks.truth")}
    assert "fedkge.attacks.holdings.row_motion" in free
    assert free <= bound
