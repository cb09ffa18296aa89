"""A package outside of the repository adds a model, a strategy and an attack, for every engine and sum."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedkge

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "outside"
version = "1.0"

[project.entry-points."fedkge.models"]
HalfStep = "outside.model:HalfStep"

[project.entry-points."fedkge.strategies"]
FedProx = "outside.strategy:FedProx"

[project.entry-points."fedkge.attacks"]
headcount = "outside.attack:Headcount"
"""
MODEL = '''
from fedkge.client.kernels.comparisons import length
from fedkge.client.models import Model


class HalfStep(Model):
    """-|h + r / 2 - t|."""

    def score(self, h, r, t):
        return -length(h + r / 2 - t, self.settings.norm)

    def query_tail(self, h, r):
        return h + r / 2

    def query_head(self, t, r):
        return t - r / 2
'''
STRATEGY = '''
import numpy as np
from pydantic import Field

from fedkge.experiment import Settings
from fedkge.strategy import Strategy


class Proximal:
    """mu / 2 |row - last global row|^2 for the rows that are shared (Li et al., 2020)."""

    def __init__(self, mu, round):
        self.mu, self.round = mu, round

    def gradient(self, name, ids, rows):
        if name not in self.round.reference:
            return None
        local = self.round.local[name]
        place = np.full(max(local.max(initial=0), ids.max(initial=0)) + 1, -1)
        place[local] = np.arange(len(local))
        shared = place[ids] >= 0
        pull = np.zeros_like(rows)
        pull[shared] = self.mu * (rows[shared] - self.round.reference[name][place[ids[shared]]])
        return pull


class FedProx(Strategy):
    """FedE whose clients stay near the last global rows."""

    class Options(Settings):
        mu: float = Field(default=0.1, ge=0)

    shared = ("entity",)

    def objective(self, round):
        return Proximal(self.options.mu, round)
'''
ATTACK = '''
from fedkge.attacks import Attack, Finding


class Headcount(Attack):
    """How many clients there are, which every server knows."""

    def assess(self, view, truth, protocol, rng):
        del rng
        right = view.num_clients == len(truth.clients)
        details = {"baseline": 0.5, "count": 1, "note": f"{view.num_clients} clients"}
        return [Finding.of("headcount", protocol, view, None, "accuracy", float(right), **details)]
'''
EXPERIMENT = """
[data]
dataset = "UMLS"
clients = 3

[model]
dim = 8

[training]
local_epochs = 1
batch_size = 128
negatives = 8
learning_rate = 0.01

[federation]
strategy = "FedE"
rounds = 2
evaluate_every = 1

[privacy]
secure_aggregation = false
union = "plain"
min_holders = 1

[adversary]
record = "last"
attacks = ["headcount"]

[engine]
name = "inline"
workers = 2
"""
RAY = "engine.name=ray"
SECURE = "privacy={secure_aggregation = true, min_holders = 1, rows_from_seed = true}"
FEDPROX = "federation.strategy=FedProx"
HALF_STEP = "model.name=HalfStep"


class Site:
    """A folder of installed packages, and runs by processes that see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "site"
        self.experiment = folder / "experiment.toml"
        self.experiment.write_text(EXPERIMENT)
        self.results: dict[tuple[str, ...], dict[str, Any]] = {}

    def install(self, project: Path) -> None:
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q"]
        target = ["--target", str(self.packages), str(project)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *target], check=True)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        paths = [str(self.packages), str(Path(fedkge.__file__).parents[1])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def fedkge(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-c", "from fedkge.simulations.cli.main import main; main()", *arguments)

    def run(self, *changes: str) -> dict[str, Any]:
        """The summary of the experiment with some options changed."""
        if changes not in self.results:
            out = self.folder / f"run-{len(self.results)}"
            settings = [part for change in changes for part in ("--set", change)]
            ended = self.fedkge("run", str(self.experiment), "--out", str(out), "--quiet", *settings)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            summary = json.loads((out / "summary.json").read_text())
            self.results[changes] = {**summary, "folder": out}
        return self.results[changes]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("outside")
    package = folder / "project" / "outside"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT)
    sources = {"__init__": "", "model": MODEL, "strategy": STRATEGY, "attack": ATTACK}
    for module, source in sources.items():
        (package / f"{module}.py").write_text(source)
    site = Site(folder)
    site.install(package.parent)
    return site


def mrr(summary: dict[str, Any]) -> float:
    return float(summary["utility"]["test"]["mrr"]["value"])


def test_each_is_short_enough_to_be_worth_writing() -> None:
    assert max(len(source.strip().splitlines()) for source in (MODEL, ATTACK)) <= 30
    assert len(STRATEGY.strip().splitlines()) <= 40


@pytest.mark.parametrize(
    ("kind", "name"), [("models", "HalfStep"), ("strategies", "FedProx"), ("attacks", "headcount")]
)
def test_the_commands_list_what_the_package_adds(site: Site, kind: str, name: str) -> None:
    listed = site.fedkge("list", kind)
    assert listed.returncode == 0, listed.stderr
    assert name in listed.stdout


def test_a_model_from_outside_gives_the_same_result_inline_and_on_ray(site: Site) -> None:
    inline, ray = site.run(HALF_STEP), site.run(HALF_STEP, RAY)
    assert inline["result_hash"] == ray["result_hash"]
    assert inline["result_hash"] != site.run()["result_hash"]  # that of TransE


def test_a_model_from_outside_trains_alike_with_open_and_with_secure_sums(site: Site) -> None:
    assert mrr(site.run(HALF_STEP, SECURE)) == pytest.approx(mrr(site.run(HALF_STEP)), abs=2e-3)


def test_a_strategy_from_outside_gives_the_same_result_inline_and_on_ray(site: Site) -> None:
    settings = (HALF_STEP, FEDPROX, "federation.options.mu=2")
    assert site.run(*settings)["result_hash"] == site.run(*settings, RAY)["result_hash"]


@pytest.mark.slow
def test_the_term_of_a_strategy_from_outside_acts_on_every_engine_and_under_masks(site: Site) -> None:
    without = (HALF_STEP, FEDPROX, "federation.options.mu=0")
    strong = (HALF_STEP, FEDPROX, "federation.options.mu=2")
    assert mrr(site.run(*without)) == pytest.approx(mrr(site.run(HALF_STEP)), abs=1e-6)  # it is FedE
    for engine in ((), (RAY,)):
        assert site.run(*strong, *engine)["result_hash"] != site.run(*without)["result_hash"]
    assert site.run(*strong, SECURE)["result_hash"] != site.run(*without, SECURE)["result_hash"]


def test_a_strategy_from_outside_trains_alike_with_open_and_with_secure_sums(site: Site) -> None:
    settings = (HALF_STEP, FEDPROX, "federation.options.mu=2")
    assert mrr(site.run(*settings, SECURE)) == pytest.approx(mrr(site.run(*settings)), abs=2e-3)


@pytest.mark.parametrize("changes", [(HALF_STEP,), (HALF_STEP, RAY), (HALF_STEP, SECURE)])
def test_an_attack_from_outside_leaves_its_findings(site: Site, changes: tuple[str, ...]) -> None:
    summary = site.run(*changes)
    findings = summary["leakage"]["headcount"]["rigorous"]
    assert findings
    assert all((entry["metric"], entry["value"]) == ("accuracy", 1.0) for entry in findings)
    with (summary["folder"] / "findings.csv").open(newline="") as file:
        assert {row["note"] for row in csv.DictReader(file) if row["attack"] == "headcount"} == {"3 clients"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ((FEDPROX, "federation.options.my=1"), "federation.options.my: unknown key; did you mean 'mu'?"),
        ((FEDPROX, "federation.options.mu=-1"), "federation.options.mu: expected a number of at least 0"),
        (("federation.options.mu=1",), "federation.options.mu: unknown key; FedE has no options"),
        ((HALF_STEP, "model.options.x=1"), "model.options.x: unknown key; HalfStep has no options"),
        (("federation.strategy=FedProxy",), "Did you mean 'FedProx'?"),
    ],
)
def test_a_mistake_in_options_ends_with_one_line(site: Site, changes: tuple[str, ...], message: str) -> None:
    settings = [part for change in changes for part in ("--set", change)]
    ended = site.fedkge("run", str(site.experiment), "--out", "refused", *settings)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert message in " ".join(ended.stderr.split())
    assert not (site.folder / "refused").exists()


@pytest.mark.parametrize(
    ("registry", "change"),
    [
        ("fedkge.client.models:MODELS", "model.name=Mine"),
        ("fedkge.strategy:STRATEGIES", "federation.strategy=Mine"),
    ],
)
def test_a_name_of_a_script_alone_is_refused_where_workers_would_not_find_it(
    site: Site, registry: str, change: str
) -> None:
    module, _, name = registry.partition(":")
    script = f"""
from pathlib import Path
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.runs.run import run
from {module} import {name}
{name}["Mine"] = {name}["{"HalfStep" if name == "MODELS" else "FedProx"}"]
experiment = Experiment.load("experiment.toml").override(["{change}"])
run(experiment, Path("mine-{name}"))
try:
    run(experiment.override(["{RAY}"]), Path("refused"))
except SettingError as error:
    print(error)
"""
    ended = site.python("-c", script)
    assert "'Mine' exists in this process alone, and workers of Ray" in ended.stdout, ended.stderr
    assert f'entry point of group "fedkge.{name.lower()}"' in ended.stdout


def test_nothing_of_the_package_is_left_in_the_environment(site: Site) -> None:
    assert (site.packages / "outside" / "model.py").is_file()
    ended = subprocess.run([sys.executable, "-c", "import outside"], capture_output=True, check=False)
    assert ended.returncode != 0
