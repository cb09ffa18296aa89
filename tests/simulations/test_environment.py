"""What a run says of the machine that made it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fedkge.simulations.runs.environment import describe

CHECKOUT = Path(__file__).parents[2]


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (CHECKOUT / ".git").exists():
        pytest.skip("not a checkout: there is no commit to compare with")
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert describe()["commit"] == head.stdout.strip()


def test_a_machine_without_git_has_no_commit_and_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = describe()
    monkeypatch.setenv("PATH", str(tmp_path))
    bare = describe()
    assert bare["commit"] is None
    assert bare["packages"] == whole["packages"]
