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


def test_the_command_line_imports_nothing_slow() -> None:
    """Help must come at once: what takes long to import waits until a command needs it."""
    slow = ("flwr", "jinja2", "numpy", "pandas", "pydantic", "ray", "torch")
    code = f"import sys, fedkge.simulations.cli; print([n for n in {slow} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
