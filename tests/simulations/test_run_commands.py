"""`fedkge run` and `fedkge compare`, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from fedkge.client.keyring import create_identity
from fedkge.experiment import Experiment
from tests.simulations.conftest import TINY
from tests.simulations.test_data_commands import fedkge

ROOT = Path(__file__).parents[2]
SETS = [part for change in TINY for part in ("--set", change)]


def test_compare_prints_one_table(tmp_path: Path) -> None:
    out = tmp_path / "c"
    done = fedkge(
        "compare", *SETS, "--strategies", "Local,FedE,FedR", "--target-mrr", 0.05, "--seeds", 2, "--out", out
    )
    assert done.returncode == 0, done.stderr
    for word in ("strategy", "test MRR", "Local", "FedE", "FedR", "bytes to 0.05", "saved"):
        assert word in done.stdout
    table = pd.read_csv(out / "comparison.csv").set_index("strategy")
    assert (
        table.loc["Local", "bytes_total"]
        < table.loc["FedR", "bytes_total"]
        < table.loc["FedE", "bytes_total"]
    )
    saved = 1 - table.loc["FedR", "bytes_total"] / table.loc["FedE", "bytes_total"]
    assert table.loc["FedR", "saved_total"] == pytest.approx(saved)
    splits = {
        json.dumps(
            [(out / f"{name}-seed0" / "data" / f"client-{n}" / "train.tsv").read_text() for n in range(3)]
        )
        for name in ("Local", "FedE", "FedR")
    }
    assert len(splits) == 1  # all strategies saw the same split
    for folder in (out, out / "FedR-seed1"):
        assert "FedR" in (folder / "report.html").read_text(encoding="utf-8")
    assert str(out / "report.html") in done.stdout


def has_evaluated(folder: Path) -> bool:
    """Whether there is a checkpoint after some rounds; that of round 0 is the union."""
    path = folder / "checkpoint" / "server.json"
    return path.exists() and json.loads(path.read_text())["round"] > 0


def test_kill_minus_9_and_resume(tmp_path: Path) -> None:
    slow = [
        *SETS,
        "--set",
        "federation.rounds=60",
        "--set",
        "federation.patience=60",
        "--set",
        "training.local_epochs=40",
    ]
    whole = fedkge("run", *slow, "--out", tmp_path / "whole", "--json", "--quiet")
    assert whole.returncode == 0, whole.stderr
    command = [
        sys.executable,
        "-m",
        "fedkge.simulations.cli.main",
        "run",
        *slow,
        "--out",
        str(tmp_path / "cut"),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not has_evaluated(tmp_path / "cut") and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cut" / "summary.json").exists()
    resumed = fedkge("run", "--resume", tmp_path / "cut", "--json", "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["result_hash"] == json.loads(whole.stdout)["result_hash"]


def test_control_c_leaves_a_readable_run(tmp_path: Path) -> None:
    slow = [*SETS, "--set", "federation.rounds=900", "--set", "training.local_epochs=40"]
    command = [
        sys.executable,
        "-m",
        "fedkge.simulations.cli.main",
        "run",
        *slow,
        "--out",
        str(tmp_path / "cut"),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell's background job ignores it
    )
    while not has_evaluated(tmp_path / "cut") and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "fedkge run --resume" in stdout + stderr
    assert "Traceback" not in stderr
    assert len(pd.read_csv(tmp_path / "cut" / "metrics.csv")) > 0


def test_a_run_config_for_flower(tmp_path: Path) -> None:
    (tmp_path / "roster.txt").write_text(
        "".join(f"{create_identity(tmp_path / str(i)).hex()}\n" for i in range(5))
    )
    done = fedkge(
        *("flower-config", "--folder", tmp_path / "f", "--out", tmp_path / "run.toml", "--set", "seed=4"),
        *("--roster", tmp_path / "roster.txt"),
    )
    assert done.returncode == 0, done.stderr
    import tomllib

    written = tomllib.loads((tmp_path / "run.toml").read_text())
    assert json.loads(written["experiment"])["seed"] == 4
    assert written["folder"] == str(tmp_path / "f")
    experiment = Experiment.from_json(written["experiment"])
    assert written["run"] == f"{experiment.name}-{experiment.digest()[:8]}"
    assert written["roster"] == str(tmp_path / "roster.txt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no roster"),
        ("not hexadecimal\n", "one public key per line"),
        ("".join(f"{i:064x}\n" for i in range(3)), "3 public keys for 5 clients"),
    ],
)
def test_a_run_config_for_flower_names_a_roster_that_fits(
    text: str | None, words: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "roster.txt").write_text(text)
    done = fedkge("flower-config", "--folder", "f", "--roster", "roster.txt", cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "run.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nothing.toml"], "no such experiment file"),
        (["run", "--set", "engine.workers=0"], "engine.workers: expected a number of at least 1"),
        (["run", "--set", "federation.rounds=0"], "federation.rounds: expected a number of at least 1"),
        (["run", "--set", "training.negatives=-1"], "training.negatives"),
        (["run", "--set", "modle.dim=3"], "did you mean 'model'"),
        (["run", "--set", "federation.strategy=FedX"], "unknown strategy 'FedX'"),
        (["run", "--set", "data.dataset=UMSL"], "Did you mean 'UMLS'"),
        (["run", "--set", "nonsense"], "expected section.key=value"),
        (["run", "--engine", "spark"], "engine.name"),
        (["run", "--ray-address", "127.0.0.1:1"], "no Ray at 127.0.0.1:1"),
        (["run", "--resume", "nowhere"], "nowhere: no such folder"),
        (["run", "--resume", "."], "not a run folder"),
        (["compare", "--strategies", "FedE,FedX"], "unknown strategy 'FedX'"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = fedkge(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr
