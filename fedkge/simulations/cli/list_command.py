"""`fedkge list`: the names that the registries know, those of installed plug-ins among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

from fedkge.errors import UnknownNameError

__all__ = ["KINDS", "list_names"]

KINDS = {  # where each registry is; they take seconds to import
    "attacks": "fedkge.attacks:ATTACKS",
    "formats": "fedkge.datasets.formats:FORMATS",
    "mechanisms": "fedkge.client.privacy:MECHANISMS",
    "models": "fedkge.client.models:MODELS",
    "partitions": "fedkge.datasets:PARTITIONERS",
    "strategies": "fedkge.strategy:STRATEGIES",
    "texts": "fedkge.client.texts:TEXT_ENCODERS",
}


def list_names(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(KINDS)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the names of a kind, each with what it is."""
    about = {name: (value.__doc__ or "").split("\n")[0] for name, value in _registry(kind).items()}
    if as_json:
        print(json.dumps(about, indent=2))
        return
    width = max(map(len, about))
    for name, line in about.items():
        print(f"{name:<{width}}  {line}")


def _registry(kind: str) -> Mapping[str, Any]:
    if kind not in KINDS:
        raise UnknownNameError("kind", kind, KINDS)
    module, _, name = KINDS[kind].partition(":")
    registry: Mapping[str, Any] = getattr(import_module(module), name)
    return registry
