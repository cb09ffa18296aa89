"""`fedkge data`, run as people run it: in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fedkge.datasets import Split, load


def fedkge(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedkge.simulations.cli.main", *map(str, arguments)]
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
    assert "choose another folder" in done.stderr


TSV = "".join(f"a{number}\tr\tb{number % 7}\n" for number in range(60))


def refused(done: subprocess.CompletedProcess[str], words: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr


def test_force_never_takes_the_source(tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text(TSV)
    (tmp_path / "mine.entities.tsv").write_text(TSV)
    for source, out in (
        ("mine.tsv", "mine.tsv"),
        ("mine.tsv", "./mine.tsv"),
        ("mine.entities.tsv", "mine.pkl"),
    ):
        done = fedkge("data", "split", source, "--clients", 1, "--out", out, "--force", cwd=tmp_path)
        refused(done, "would replace the source itself")
    assert (tmp_path / "mine.tsv").read_text() == TSV


def test_force_keeps_the_old_split_when_the_new_one_fails(tmp_path: Path) -> None:
    good = tmp_path / "good"
    assert fedkge("data", "split", "UMLS", "--clients", 2, "--out", good).returncode == 0
    refused(fedkge("data", "split", "NOSUCH.tsv", "--out", good, "--force"), "no such file")
    refused(fedkge("data", "split", "UMLS", "--clients", 9999, "--out", good, "--force"), "only 6529")
    assert load(good).num_clients == 2  # type: ignore[union-attr]


def test_force_takes_no_plain_file_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    done = fedkge("data", "split", "UMLS", "--out", tmp_path / "notes", "--force")
    refused(done, "remove it yourself")
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_full_disk_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    command = [sys.executable, "-m", "fedkge.simulations.cli.main", "data", "split", "UMLS", "--out"]
    for name in ("parts", "parts.pkl"):
        done = subprocess.run(
            [*command, str(tmp_path / name)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=small_files,
            check=False,
        )
        refused(done, "cannot write")
        assert list(tmp_path.iterdir()) == []


def test_an_interruption_is_announced(tmp_path: Path) -> None:
    stop = (
        "import fedkge.datasets as datasets, fedkge.simulations.cli.main as cli, sys\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "datasets.load = stop\n"
        "sys.argv = ['fedkge', 'data', 'info', 'UMLS']\n"
        "cli.main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", stop], capture_output=True, text=True, env=env, check=False, cwd=tmp_path
    )
    assert done.returncode == 130
    assert "stopped; what was already written is complete" in done.stderr


def test_a_source_that_is_split_takes_no_other_number_or_partition(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    assert fedkge("data", "split", "UMLS", "--clients", 3, "--out", parts).returncode == 0
    refused(fedkge("data", "split", parts, "--clients", 4, "--out", tmp_path / "x"), "has 3 clients, not 4")
    refused(fedkge("data", "split", parts, "--partition", "random", "--out", tmp_path / "x"), "already split")
    assert fedkge("data", "split", parts, "--clients", 3, "--out", tmp_path / "x").returncode == 0
    assert load(tmp_path / "x").content_hash == load(parts).content_hash  # type: ignore[union-attr]


def test_a_pickle_keeps_its_hash_and_labels(tmp_path: Path) -> None:
    made = fedkge("data", "split", "UMLS", "--out", tmp_path / "u.pkl", "--quiet")
    info = json.loads(fedkge("data", "info", tmp_path / "u.pkl", "--json").stdout)
    assert info["content_hash"] == made.stdout.strip()
    assert load(tmp_path / "u.pkl").relation_labels == load("UMLS").relation_labels


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data", "split", "UMLS", "--out", "x", "--seed", "-1"], "seed = -1"),
        (["data", "split", "UMLS", "--out", "x", "--confidential", ""], "expected a share"),
        (["data", "split", "UMLS", "--out", "x" * 300], "too long"),
        (["data", "audit", "UMLS", "--out", "x" * 300], "too long"),
        (["data", "info", "x" * 300], "too long"),
        (["data", "info", "[/x]"], "no such file"),
        (["data", "split", "UMLS", "--out", "/dev/null/x"], "cannot write"),
        (["data", "split", "UMLS", "--out", "/proc/x"], "cannot write"),
        (["data", "info", "two\nlines.tsv"], "two lines.tsv: no such file"),
    ],
)
def test_more_mistakes_get_one_line_and_exit_code_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    refused(fedkge(*arguments, cwd=tmp_path), words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x[]", "[bold]", r"$\foo$", "ü"])
def test_odd_names_and_narrow_encodings_are_shown_as_they_are(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "train.tsv").write_text(TSV)
    for encoding in ("utf-8", "ascii"):
        command = [sys.executable, "-m", "fedkge.simulations.cli.main", "data", "audit", str(tmp_path / name)]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=env, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert name.encode(encoding, "replace") in done.stdout
        assert b"cannot be judged" in done.stdout


def test_a_folder_of_the_user_does_not_get_the_licence_of_a_named_dataset(tmp_path: Path) -> None:
    (tmp_path / "DDB14").mkdir()
    (tmp_path / "DDB14" / "train.tsv").write_text(TSV)
    assert "licence" not in fedkge("data", "info", "DDB14", cwd=tmp_path).stdout
