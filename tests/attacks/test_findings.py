"""Findings: quick to import, the same from disk as they were written, and ranked by what is sure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedkge.attacks.findings import COLUMNS, Finding, leakage_of, summarised, worst, write_findings
from fedkge.simulations.runs.run_folder import read_rows

MEASURED = Finding(
    "membership",
    "rigorous",
    "uploads",
    "server",
    "",
    0.5,
    0,
    "score, all",
    "auc",
    0.7,
    0.6,
    0.8,
    0.5,
    12,
    "a",
)
IMPOSSIBLE = Finding(
    "reconstruction", "paper", "none", "server", "LEE", 0.0, None, "", "ERR", None, note="why"
)


@pytest.mark.parametrize("module", ["fedkge.attacks.findings", "fedkge.attacks", "fedkge.attacks.behaviours"])
def test_findings_and_registries_import_nothing_slow(module: str) -> None:
    slow = {"torch", "scipy", "sklearn", "numba", "flwr", "numpy"}
    code = f"import sys, {module}; print(*{slow} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_findings_read_back_equal_with_their_types(tmp_path: Path) -> None:
    path = tmp_path / "findings.csv"
    write_findings(path, [MEASURED, IMPOSSIBLE])
    assert [Finding(**row) for row in read_rows(path, COLUMNS)] == [MEASURED, IMPOSSIBLE]
    assert list(summarised(leakage_of([MEASURED, IMPOSSIBLE]))) == [MEASURED, IMPOSSIBLE]


def test_a_summary_of_another_version_gives_what_it_has() -> None:
    (finding,) = summarised(
        {"membership": {"paper": [{"metric": "f1", "value": 0.5}, "no entry"]}, "x": None}
    )
    assert (finding.attack, finding.protocol, finding.metric, finding.value) == (
        "membership",
        "paper",
        "f1",
        0.5,
    )
    assert (finding.target, finding.count, finding.leak_ratio, finding.note) == (None, None, 0.0, "")


def test_the_worst_finding_is_the_surest_excess_over_guessing() -> None:
    def finding(protocol: str, metric: str, value: float, low: float, baseline: float) -> Finding:
        return Finding("a", protocol, "v", "server", "", 1.0, 1, "", metric, value, low, 1.0, baseline)

    wide = finding("rigorous", "recall", 0.9, 0.2, 0.1)
    sure = finding("rigorous", "recall", 0.5, 0.45, 0.1)
    assert worst([wide, sure, finding("paper", "ERR", 1.0, 1.0, 0.0), IMPOSSIBLE]) is sure
    assert (
        worst([finding("rigorous", "precision", 1.0, 1.0, 0.0)]) is None
    )  # says how sure claims are, not how many
    control = Finding(
        "a", "rigorous", "v", "s", "", 1.0, 1, "control: degrees, all", "auc", 0.9, 0.8, 1.0, 0.5
    )
    assert worst([sure, control]) is sure  # what degrees tell was not found out by the attack
    assert not sure.is_at_chance
    assert finding("rigorous", "recall", 0.2, 0.1, 0.1).is_at_chance
    below = Finding("a", "paper", "v", "server", "", 1.0, 1, "", "auc", 0.2, 0.1, 0.3, 0.5)
    assert below.is_at_chance  # guessing does better …
    assert not below.includes_guessing  # … which itself tells something
