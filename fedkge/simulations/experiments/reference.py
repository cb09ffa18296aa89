"""The reference of the experiment file, written from its schema: docs/experiment.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fedkge.attacks import ATTACKS
from fedkge.client.kernels.losses import LOSSES
from fedkge.client.models import MODELS
from fedkge.client.privacy import MECHANISMS
from fedkge.client.training.optimizers import OPTIMIZERS
from fedkge.datasets import PARTITIONERS
from fedkge.experiment import ClientSettings, Experiment, Settings
from fedkge.storage import staged
from fedkge.strategy import STRATEGIES

__all__ = ["reference"]

_NAMES: dict[str, Collection[str]] = {
    "data.partition": PARTITIONERS,
    "model.name": MODELS,
    "training.optimizer": OPTIMIZERS,
    "training.loss": LOSSES,
    "federation.strategy": STRATEGIES,
    "adversary.attacks": [name for name, attack in ATTACKS.items() if not attack.acts],
    "privacy.dp.mode": ("off", *MECHANISMS),
    "clients.mode": ("off", *MECHANISMS),
}
_KINDS = {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}
_BOUNDS = {"ge": "at least {:g}", "gt": "above {:g}", "le": "at most {:g}", "lt": "below {:g}"}
_HEAD = """\
# The experiment file

A file says what differs from these defaults, which are the FedR paper's settings; `--set section.key=value`
changes any of them. Unknown keys are refused with the nearest known one. `fedkge init` writes a commented
file to begin with, and `experiment.toml` in a run's folder has every default filled in.

This page is written from the schema; a test fails where the two differ:

```sh
python -m fedkge.simulations.experiments.reference docs/experiment.md
```
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_section("", Experiment), *_section("[[clients]]", ClientSettings)])


def _section(title: str, settings: type[Settings]) -> Iterator[str]:
    """A table of options, then the sections within."""
    options = {key: field for key, field in settings.model_fields.items() if field.description}
    about = (settings.__doc__ or "").replace("\n    ", "\n").strip()
    yield f"## {f'`{title}`' if title else 'At the top'}\n\n{about}\n"
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    for key, field in options.items():
        name = f"{settings.section}.{key}".lstrip(".")
        cells = (f"`{key}`", _values(name, field), _default(field), field.description or "")
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
    for field in settings.model_fields.values():
        if isinstance(field.default, Settings):
            yield from _section(f"[{field.default.section}]", type(field.default))


def _values(option: str, field: FieldInfo) -> str:
    if option in _NAMES:
        return ", ".join(f"`{name}`" for name in _NAMES[option])
    bounds = [
        text.format(getattr(rule, name))
        for rule in field.metadata
        for name, text in _BOUNDS.items()
        if hasattr(rule, name)
    ]
    return ", ".join([" or ".join(_kinds(field.annotation)), *bounds])


def _kinds(annotation: Any) -> Iterator[str]:
    """What an option may be, in words; an option that may be left out has no default instead."""
    if get_origin(annotation) is Literal:
        yield ", ".join(f"`{_toml(value)}`" for value in get_args(annotation))
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _kinds(part)
    elif get_origin(annotation) is tuple:
        yield f"list of {next(_kinds(get_args(annotation)[0]))}s"
    elif get_origin(annotation) is dict:
        yield "section of options"
    elif annotation is not type(None):
        yield _KINDS[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "" if field.default is None else f"`{_toml(field.default)}`"


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


if __name__ == "__main__":
    with staged(Path(sys.argv[1])) as partial:
        partial.write_text(reference(), encoding="utf-8")
