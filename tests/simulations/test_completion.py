"""What the shell offers after --set is what the experiment file takes."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from fedkge.experiment import Experiment
from fedkge.simulations.cli.main import app
from fedkge.simulations.experiments.completion import complete_setting, settings


def test_every_option_is_offered_and_every_offer_is_an_option() -> None:
    dump = Experiment().model_dump()
    expected = {"name=", "seed="} | {
        f"{section}.{key}="
        for section, options in dump.items()
        if isinstance(options, dict)
        for key, value in options.items()
        if not isinstance(value, dict)
    }
    offered = {value for value, _ in complete_setting("")}
    assert expected <= offered
    for name, field in settings(Experiment):
        assert not isinstance(field.default, BaseModel)
        if isinstance(field.default, bool | int | float | str):
            value = str(field.default)
            Experiment().override([f"{name}={value.lower() if isinstance(field.default, bool) else value}"])


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("federation.str", ["federation.strategy="]),
        ("engine.name=", ["engine.name=inline", "engine.name=ray"]),
        ("engine.name=r", ["engine.name=ray"]),
        (
            "privacy.secure_aggregation=",
            ["privacy.secure_aggregation=true", "privacy.secure_aggregation=false"],
        ),
        ("model.norm=", ["model.norm=1", "model.norm=2"]),
        ("model.dim=", []),
        ("nothing", []),
    ],
)
def test_what_is_offered(typed: str, offered: list[str]) -> None:
    assert [value for value, _ in complete_setting(typed)] == offered


@pytest.mark.parametrize("command", ["run", "compare"])
def test_the_shell_asks_and_is_told(command: str) -> None:
    asked = {
        "_FEDKGE_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": f"fedkge {command} --set training.neg",
    }
    done = CliRunner().invoke(app, [], prog_name="fedkge", env=asked)
    assert "training.negatives=" in done.stdout
    assert "training.batch_size" not in done.stdout
