"""`fedkge list`: the names that the registries know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from fedkge.datasets import PARTITIONERS
from fedkge.errors import UnknownNameError

__all__ = ["REGISTRIES", "list_names"]

REGISTRIES: dict[str, Mapping[str, type]] = {"partitions": PARTITIONERS}


def list_names(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(REGISTRIES)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the names of a kind, each with what it is."""
    if kind not in REGISTRIES:
        raise UnknownNameError("kind", kind, REGISTRIES)
    about = {name: (cls.__doc__ or "").split("\n")[0] for name, cls in REGISTRIES[kind].items()}
    if as_json:
        print(json.dumps(about, indent=2))
        return
    width = max(map(len, about))
    for name, line in about.items():
        print(f"{name:<{width}}  {line}")
