"""Starter files: valid for any data that can be loaded, never in another file's place, and they run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedkge.datasets import load_graph, partition, write_graph, write_split
from fedkge.errors import DataError, SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.cli.main import app
from fedkge.simulations.experiments.starter import Starter
from fedkge.simulations.runs.run import run
from tests.simulations.finished import GRAPH


def init(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["init", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def client_folders(folder: Path, triples: list[list[tuple[str, str, str]]], held_out: bool = True) -> Path:
    for number, own in enumerate(triples):
        (folder / f"client-{number}").mkdir(parents=True)
        text = "".join("\t".join(triple) + "\n" for triple in own)
        for name in ("train", "valid", "test") if held_out else ("train",):
            (folder / f"client-{number}" / f"{name}.tsv").write_text(text)
    return folder


def test_a_starter_file_runs(tmp_path: Path) -> None:
    data = tmp_path / "two wards"
    write_graph(data, load_graph(GRAPH))
    out = tmp_path / "mine.toml"
    said = init(data, "--out", out)
    assert f"fedkge run {out}" in said
    experiment = Experiment.load(out)
    assert experiment.data.dataset == str(data)
    assert experiment.name == "two-wards"
    assert experiment.privacy.secure_aggregation
    small = experiment.override(["federation.rounds=1", "model.dim=4", "training.negatives=2"])
    assert run(small, tmp_path / "run").summary["utility"]["test"]["count"] > 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("triples.tsv", "a\tr\tb\nb\tr\tc\nc\tr\td\n"),
        ("triples.csv", "head,relation,tail\na,r,b\nb,r,c\nc,r,d\n"),
        (
            "triples.nt",
            "".join(f"<http://x/{s}> <http://x/r> <http://x/{o}> .\n" for s, o in ("ab", "bc", "cd")),
        ),
    ],
)
def test_a_lone_file_of_any_format(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    found = Starter.of(tmp_path / name)
    assert (found.given, found.clients, found.train, found.strategy) == (False, 3, 3, "FedR")
    assert Experiment.from_toml(found.to_toml()).data.partition == "random"


def test_client_folders_are_a_given_split(tmp_path: Path) -> None:
    write_split(tmp_path / "parts", partition(load_graph(GRAPH), "random", clients=4))
    experiment = Experiment.from_toml(Starter.of(tmp_path / "parts").to_toml())
    assert (experiment.data.partition, experiment.data.clients) == ("given", 4)


@pytest.mark.parametrize(
    ("triples", "strategy", "secure"),
    [
        ([[("a", "r", "b")]] * 3, "FedR", True),
        ([[("a", f"r{n}", "b")] for n in range(3)], "FedE", True),
        ([[(f"a{n}", f"r{n}", f"b{n}")] for n in range(3)], "Local", False),
        ([[("a", "r", "b")]] * 2, "FedR", False),
        ([[("a", "r", "b")]], "Local", False),
    ],
)
def test_what_is_shared_is_what_clients_have_in_common(
    triples: list[list[tuple[str, str, str]]], strategy: str, secure: bool, tmp_path: Path
) -> None:
    found = Starter.of(client_folders(tmp_path / "parts", triples))
    experiment = Experiment.from_toml(found.to_toml())
    assert (experiment.federation.strategy, experiment.privacy.secure_aggregation) == (strategy, secure)
    assert (found.warning is not None) == (strategy == "Local" and len(triples) > 1)


def test_nothing_held_out_is_said(tmp_path: Path) -> None:
    folder = client_folders(tmp_path / "parts", [[("a", "r", "b")]] * 3, held_out=False)
    assert "nothing can be measured" in init(folder, "--out", tmp_path / "x.toml")
    assert "# Warning: no client has a valid.tsv" in (tmp_path / "x.toml").read_text()


def test_a_file_is_replaced_only_by_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    init()
    assert Experiment.load(Path("quickstart.toml")).data.dataset == "UMLS"
    Path("quickstart.toml").write_text("years of work")
    with pytest.raises(SettingError, match="--force to replace it"):
        init()
    assert Path("quickstart.toml").read_text() == "years of work"
    init("--force")
    assert Experiment.load(Path("quickstart.toml")).name == "quickstart"


def test_data_that_cannot_be_read_name_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected train\.tsv"):
        init(tmp_path / "empty")
    with pytest.raises(DataError, match="no such file or folder"):
        init(tmp_path / "nowhere")


@settings(max_examples=50)
@given(st.text(min_size=1), st.text(min_size=1), st.integers(1, 200), st.booleans(), st.integers(1, 10**6))
def test_any_name_and_path_gives_a_valid_file(
    name: str, path: str, clients: int, is_given: bool, train: int
) -> None:
    starter = Starter(name, path, clients, is_given, "some", train, 0, "FedE")
    experiment = Experiment.from_toml(starter.to_toml())
    assert (experiment.name, experiment.data.dataset) == (name, path)
    assert Experiment.from_toml(experiment.to_toml()) == experiment
