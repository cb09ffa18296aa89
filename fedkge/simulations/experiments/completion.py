"""What the shell offers after `--set`: every option of the experiment file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

__all__ = ["complete_setting", "settings"]


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """The options that begin like what was typed, with their defaults; after '=', the values there are."""
    from fedkge.experiment import Experiment  # only a shell that asks needs it

    prefix, equals, _ = incomplete.partition("=")
    options = dict(settings(Experiment))
    if equals and prefix in options:
        offered = [(f"{prefix}={value}", "") for value in _choices(options[prefix])]
    else:
        offered = [(f"{name}=", f"default: {field.default}") for name, field in options.items()]
    return [(value, about) for value, about in offered if value.startswith(incomplete)]


def settings(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every option as section.key; sections within sections too."""
    from pydantic import BaseModel

    for key, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from settings(type(field.default), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", field


def _choices(field: FieldInfo) -> list[str]:
    if field.annotation is bool:
        return ["true", "false"]
    kinds = (field.annotation, *get_args(field.annotation))  # the choices of `Literal[…] | None` too
    return [str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
