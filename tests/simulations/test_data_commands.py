"""`fedkge data`, run as people run it: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedkge.datasets import Split, load


def fedkge(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedkge.simulations.cli", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)


def test_audit_prints_writes_and_shouts(tmp_path: Path, data_folder: Path) -> None:
    done = fedkge("data", "audit", data_folder / "fedr" / "DDB14-Fed5.pkl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in ("22,249 of them distinct", "4462.20±1049.60", "12.80±0.84", "IT LEAKS", "39.7%"):
        assert text in done.stdout
    written = json.loads((tmp_path / "fedkge-audit" / "DDB14-Fed5" / "audit.json").read_text())
    assert written["leaks"]
    assert written["table_5"]["entities_mean"] == pytest.approx(4462.2)
    assert (tmp_path / "fedkge-audit" / "DDB14-Fed5" / "degrees.png").read_bytes()[:4] == b"\x89PNG"


def test_split_audit_and_reload(tmp_path: Path) -> None:
    out = tmp_path / "parts"
    done = fedkge(
        "data", "split", "UMLS", "--clients", 4, "--partition", "fedr", "--confidential", "0.5", "--out", out
    )
    assert done.returncode == 0, done.stderr
    split = load(out)
    assert isinstance(split, Split)
    assert split.content_hash in done.stdout
    assert json.loads((out / "split.json").read_text())["content_hash"] == split.content_hash
    assert split.clients[0].confidential
    shown = fedkge("data", "audit", out, "--json", "--out", tmp_path / "audit")
    assert json.loads(shown.stdout)["problems"] == []
    again = fedkge("data", "split", "UMLS", "--out", out)
    assert again.returncode == 2
    assert "--force" in again.stderr
    quiet = fedkge("data", "split", "UMLS", "--out", out, "--force", "--quiet")
    assert quiet.stdout.strip() == load(out).content_hash  # type: ignore[union-attr]


def test_force_never_removes_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "draft.txt").write_text("years of work")
    done = fedkge("data", "split", "UMLS", "--out", tmp_path / "thesis", "--force")
    assert done.returncode == 2
    assert (tmp_path / "thesis" / "draft.txt").read_text() == "years of work"


def test_a_split_becomes_a_fede_pickle_and_back(tmp_path: Path) -> None:
    assert fedkge("data", "split", "UMLS", "--out", tmp_path / "u.pkl").returncode == 0
    done = fedkge("data", "split", tmp_path / "u.pkl", "--out", tmp_path / "u")
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "u").content_hash == load(tmp_path / "u.pkl").content_hash  # type: ignore[union-attr]


def test_lists_and_info() -> None:
    assert "WN18RR" in fedkge("data", "list").stdout
    assert "fedr-legacy" in json.loads(fedkge("list", "partitions", "--json").stdout)
    assert json.loads(fedkge("data", "info", "UMLS", "--json").stdout)["train"] == 5216


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data", "audit", "nothing.tsv"], "no such file"),
        (["data", "audit", "UMSL"], "Did you mean 'UMLS'"),
        (["data", "split", "UMLS", "--out", "x", "--partition", "rondom"], "Did you mean 'random'"),
        (["data", "split", "UMLS", "--out", "x", "--clients", "9999"], "only 6529 triples"),
        (["data", "split", "UMLS", "--out", "x", "--clients", "many"], "Invalid value"),
        (["data", "split", "UMLS", "--out", "x.pkl", "--confidential", "0.5"], "folder instead"),
        (["data", "split", "UMLS"], "Missing option '--out'"),
        (["list", "partition"], "Did you mean 'partitions'"),
        (["dat"], "Did you mean 'data'"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = fedkge(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr
    assert not list(tmp_path.iterdir())


def test_an_audit_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = fedkge("data", "audit", "UMLS", "--out", tmp_path / "file" / "x")
    assert done.returncode == 2
    assert "choose another --out" in done.stderr
