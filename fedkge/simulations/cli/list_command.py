"""`fedkge list`: the names that the registries know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from fedkge.errors import UnknownNameError

__all__ = ["KINDS", "list_names"]

KINDS = ("attacks", "models", "partitions", "strategies")


def _registry(kind: str) -> Mapping[str, type]:
    if kind == "partitions":
        from fedkge.datasets import PARTITIONERS  # imports numpy

        return PARTITIONERS
    if kind == "attacks":
        from fedkge.attacks import ATTACKS  # takes seconds to import

        return ATTACKS
    if kind == "models":
        from fedkge.client.models import MODELS  # takes seconds to import

        return MODELS
    if kind == "strategies":
        from fedkge.strategy import STRATEGIES  # takes seconds to import

        return STRATEGIES
    raise UnknownNameError("kind", kind, KINDS)


def list_names(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(KINDS)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the names of a kind, each with what it is."""
    about = {name: (cls.__doc__ or "").split("\n")[0] for name, cls in _registry(kind).items()}
    if as_json:
        print(json.dumps(about, indent=2))
        return
    width = max(map(len, about))
    for name, line in about.items():
        print(f"{name:<{width}}  {line}")
