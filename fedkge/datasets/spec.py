"""Names with options in one string: `dirichlet:alpha=0.5`, `synthetic:entities=1000,triples=9000`.

A class with a `free_option` takes what follows the colon as that option: `given-by:staysAt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from fedkge.errors import SettingError, UnknownNameError
from fedkge.plugins import Registry

__all__ = ["build", "construct", "parse"]

Built = TypeVar("Built")


def parse(spec: str) -> tuple[str, dict[str, str]]:
    """Split `name:key=value,key=value` into the name and its options."""
    name, _, tail = spec.partition(":")
    options = {}
    for item in filter(None, tail.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise SettingError(f"'{spec}': expected key=value after the colon, found '{item}'")
        options[key.strip()] = value.strip()
    return name.strip(), options


def build(spec: str, registry: Registry[type[Built]]) -> Built:
    """The dataclass that a spec names, with its options as typed fields."""
    name, _, tail = spec.partition(":")
    cls = registry[name.strip()]
    free = getattr(cls, "free_option", None)
    options = {free: tail.strip()} if free and tail.strip() else parse(spec)[1]
    return construct(registry.kind, name.strip(), cls, options)


def construct(kind: str, name: str, cls: type[Built], options: Mapping[str, str]) -> Built:
    """A dataclass with its options as typed fields."""
    known: dict[str, Any] = {field.name: field.default for field in fields(cls)}  # type: ignore[arg-type]
    values = {}
    for key, text in options.items():
        if key not in known:
            if not known:
                raise SettingError(f"{kind} '{name}' takes no options; remove '{key}'")
            raise UnknownNameError(f"option of {kind} '{name}'", key, known)
        convert = type(known[key])
        try:
            values[key] = convert(text)
        except ValueError:
            wanted = "a whole number" if convert is int else "a number"
            raise SettingError(f"{kind} '{name}': {key}={text}: expected {wanted}") from None
    return cls(**values)
