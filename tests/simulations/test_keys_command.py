"""`fedkge keys`: a client's identity from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedkge.client.keyring import Keyring, allowed_runs
from fedkge.client.policy import Policy
from fedkge.errors import DataError
from fedkge.simulations.cli.main import app
from tests.simulations.test_data_commands import fedkge


def test_the_command_prints_the_public_key_and_loses_none(tmp_path: Path) -> None:
    made = [CliRunner().invoke(app, ["keys", "new", str(tmp_path / name)]) for name in ("a", "b", "c")]
    assert [done.exit_code for done in made] == [0, 0, 0]
    roster = "".join(done.stdout for done in made)  # one line each, as the README puts them together
    (tmp_path / "b" / "roster.txt").write_text(roster)
    assert Keyring.load(tmp_path / "b", 1).identity.public.hex() == made[1].stdout.strip()
    secret = (tmp_path / "b" / "identity.key").read_bytes()
    again = fedkge("keys", "new", tmp_path / "b")
    assert (again.returncode, again.stdout) == (2, "")
    assert f"its public key is {made[1].stdout.strip()}" in again.stderr
    assert (tmp_path / "b" / "identity.key").read_bytes() == secret
    with pytest.raises(DataError, match="line 1 is not this client's public key"):
        Keyring.load(tmp_path / "b", 0)


def test_a_policy_is_written_beside_the_key_and_runs_are_allowed(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["keys", "new", str(tmp_path)]).exit_code == 0
    assert Policy.load(tmp_path) == Policy()
    assert (tmp_path / "policy.toml").exists()
    for run in ("first", "second", "first"):
        assert CliRunner().invoke(app, ["keys", "allow", str(tmp_path), run]).exit_code == 0
    assert allowed_runs(tmp_path) == ("first", "second")
    nowhere = fedkge("keys", "allow", tmp_path / "nowhere", "first")
    assert nowhere.returncode == 2
    assert "no identity there" in nowhere.stderr


@pytest.mark.parametrize("mistake", [["keys", "new"], ["keys", "new", "one", "two"], ["keys", "make"]])
def test_mistakes_are_told_in_a_line(mistake: list[str], tmp_path: Path) -> None:
    done = fedkge(*mistake, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("fedkge: ")
    assert list(tmp_path.iterdir()) == []


def test_names_of_this_process_and_of_plug_ins_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedkge.client.models import MODELS

    class Mine(MODELS["TransE"]):  # type: ignore[misc]
        """A model of mine."""

    monkeypatch.setitem(MODELS, "Mine", Mine)
    done = CliRunner().invoke(app, ["list", "models", "--json"])
    assert json.loads(done.stdout)["Mine"] == "A model of mine."
