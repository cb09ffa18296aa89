"""A run under Flower begins in a folder of its own, and goes on where it was begun."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedkge.errors import DataError, SettingError
from fedkge.experiment import Experiment
from fedkge.server import app
from fedkge.simulations.cli.run_commands import write_flower_config


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What is served in place of a run."""
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(app, "serve", lambda grid, experiment, folder, **options: calls.append(options))
    return calls


def begin(folder: Path, *changes: str, resume: bool = False) -> None:
    """As `flwr run` does with the file of `fedkge flower-config`."""
    file, config = folder.parent / "experiment.toml", folder.parent / "run.toml"
    file.write_text(Experiment().override(changes).to_toml())
    write_flower_config(folder, config, run="ours", resume=resume, file=file)
    run_config = tomllib.loads(config.read_text())
    app.main(None, Context(1, 1, {}, RecordDict(), run_config))


def test_a_run_does_not_write_over_another(tmp_path: Path, served: list[dict[str, object]]) -> None:
    begin(tmp_path / "run")
    with pytest.raises(DataError, match=r"holds a run; .*flower-config .*experiment\.toml .*--resume"):
        begin(tmp_path / "run")
    assert [options["resume"] for options in served] == [False]


def test_the_command_that_an_error_names_goes_on_with_the_run(
    tmp_path: Path, served: list[dict[str, object]]
) -> None:
    begin(tmp_path / "run")
    begin(tmp_path / "run", resume=True)
    first, second = served
    assert (first["resume"], second["resume"]) == (False, True)
    assert first["run"] == second["run"] == "ours"
    stored = tmp_path / "run" / "experiment.toml"
    command = f"fedkge flower-config {stored} --folder {tmp_path / 'run'} --run ours --resume"
    assert first["resume_command"] == command
    assert Experiment.load(stored) == Experiment()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('adversary.attacks=["active"]', "adversary.attacks: active cannot be scored in a deployment"),
        ('adversary.attacks=["membership"]', "attack a simulation of the run"),
        ("federation.start=alike", "a deployed client starts rows that are its own from its own secret"),
    ],
)
def test_what_only_a_simulation_does_is_refused_by_the_config_and_by_the_server(
    change: str, words: str, tmp_path: Path, served: list[dict[str, object]]
) -> None:
    with pytest.raises(SettingError, match=words):
        write_flower_config(tmp_path / "run", tmp_path / "run.toml", sets=[change])
    assert not (tmp_path / "run.toml").exists()
    config = {"experiment": Experiment().override([change]).to_json(), "folder": str(tmp_path / "run")}
    with pytest.raises(SettingError, match=words):
        app.main(None, Context(1, 1, {}, RecordDict(), config))
    assert not (tmp_path / "run").exists()
    assert served == []


def test_only_the_same_unfinished_run_goes_on(tmp_path: Path, served: list[dict[str, object]]) -> None:
    with pytest.raises(DataError, match="holds no run to go on with"):
        begin(tmp_path / "run", resume=True)
    begin(tmp_path / "run")
    with pytest.raises(DataError, match="a different experiment"):
        begin(tmp_path / "run", "seed=9", resume=True)
    (tmp_path / "run" / "summary.json").write_text("{}")
    with pytest.raises(DataError, match="is finished"):
        begin(tmp_path / "run", resume=True)
    assert len(served) == 1
