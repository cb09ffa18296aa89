"""Every guarantee has a test that fails without it: attacks run with the code that mends them taken away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adversary.defences import DEFENCES, ROOT

CASES = [(name, test) for name, defence in DEFENCES.items() for test in defence.tests]
FINDINGS = set(range(1, 15)) - {
    7
}  # counts are claimed: open, and test_covers.py has the attack that succeeds


def outcomes_without(name: str, test: str, folder: Path) -> list[dict[str, str]]:
    """How the test fails in a process of its own that lacks the defence."""
    written = folder / "outcomes.json"
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FEDKGE_WITHOUT": name,
        "FEDKGE_OUTCOMES": str(written),
    }
    plugin = ["-p", "tests.adversary.defences", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", *plugin, test, "--basetemp", str(folder / "tmp")]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert written.exists(), done.stdout + done.stderr
    assert "no tests ran" not in done.stdout, done.stdout
    outcomes: list[dict[str, str]] = json.loads(written.read_text())
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "test"), CASES, ids=[f"{name}-{test.split('::')[1]}" for name, test in CASES]
)
def test_an_attack_succeeds_without_its_defence(name: str, test: str, tmp_path: Path) -> None:
    outcomes = outcomes_without(name, test, tmp_path)
    assert len(outcomes) == 1, "the test passes without the code that it guards"
    (outcome,) = outcomes
    own_assertion = outcome["raised"] in ("AssertionError", "Failed") and outcome["where"].startswith(
        str(ROOT / "tests")
    )
    assert outcome["when"] == "call", outcome
    assert own_assertion or set(outcome["inherits"]) & set(DEFENCES[name].ends), outcome


def test_every_finding_has_a_defence_that_can_be_taken_away() -> None:
    assert {int(number) for defence in DEFENCES.values() for number in defence.finding.split(",")} >= FINDINGS
