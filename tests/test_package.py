"""The package as a whole: what it exports exists, and every error is in the tree that its docstring draws."""

from __future__ import annotations

import importlib
import pkgutil

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
