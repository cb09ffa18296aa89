"""The package as a whole: what it exports exists, and every error is in the tree that its docstring draws."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

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
