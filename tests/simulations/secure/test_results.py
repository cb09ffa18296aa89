"""Runs under private set union and secure aggregation: the same result everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedkge.errors import FederationError
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.worker import Worker
from tests.simulations.mishaps import Crash, crash_in, failures, run_with_dying_workers
from tests.simulations.secure.settings import Make


def test_threads_and_kinds_of_union_do_not_change_the_result(secret: Make, tmp_path: Path) -> None:
    variants = (
        ["engine.workers=1"],
        ["engine.workers=2"],
        ["privacy.consistency=true"],
        ["privacy.union=oprf"],
        ["privacy.union=hashed"],
        ["privacy.union=plain"],
        ["privacy.rows_from_seed=true"],
    )
    hashes = [
        runs.run(secret(*changes, "privacy.query_budget=64"), tmp_path / str(place)).summary["result_hash"]
        for place, changes in enumerate(variants)
    ]
    assert len(set(hashes[:5])) == 1  # keys and row numbers differ from run to run, sums do not
    assert hashes[5] == hashes[6]  # rows start from the seed where the server reads labels anyway
    assert hashes[4] != hashes[5]


def test_ray_gives_the_same_bits_and_survives_a_dead_worker(
    secret: Make, tmp_path: Path, ray_running: Any
) -> None:
    inline = runs.run(secret(), tmp_path / "inline").summary
    experiment = secret("engine.name=ray", "engine.workers=2")
    killed = run_with_dying_workers(experiment, tmp_path / "killed", ray_running, {1, 3})
    assert killed.summary["result_hash"] == inline["result_hash"]
    assert killed.summary["communication"] == inline["communication"]
    assert failures(tmp_path / "killed") == []


@pytest.mark.parametrize(("strategy", "when"), [("FedR", 1), ("FedR", 3), ("FedE", 3)])
def test_a_resumed_run_ends_in_the_same_bits(strategy: str, when: int, secret: Make, tmp_path: Path) -> None:
    experiment = secret(f"federation.strategy={strategy}")
    whole = runs.run(experiment, tmp_path / "whole")
    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut", crash_in(when))
    resumed = runs.resume(tmp_path / "cut", experiment=experiment)
    assert resumed.summary["result_hash"] == whole.summary["result_hash"]
    pd.testing.assert_frame_equal(resumed.metrics, whole.metrics)


def test_a_name_too_many_for_the_query_budget_stops_the_union(secret: Make, out: Path) -> None:
    with pytest.raises(FederationError, match=r"0 of 3 clients (answered|joined)"):
        runs.run(secret("privacy.union=oprf", "privacy.query_budget=10"), out)
    assert "raise privacy.query_budget" in str(failures(out))


def test_a_lost_answer_is_given_again_word_for_word(
    secret: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runs.run(secret(), tmp_path / "whole")
    handle, lost = Worker.handle, set()

    def forgetful(self: Worker, node: int, kind: str, *rest: Any) -> Any:
        answer = handle(self, node, kind, *rest)
        if node == 2 and kind not in lost:
            lost.add(kind)
            return None, "lost on the way"
        return answer

    monkeypatch.setattr(Worker, "handle", forgetful)
    again = runs.run(secret("federation.on_failure=repeat"), tmp_path / "again")
    assert again.summary["result_hash"] == whole.summary["result_hash"]
    assert len(lost) == len(failures(tmp_path / "again")) == 9  # every kind of message


@pytest.mark.parametrize("strategy", ["Local", "Central"])
def test_strategies_that_share_nothing_are_as_without_protection(
    strategy: str, secret: Make, tiny: Make, tmp_path: Path
) -> None:
    change = f"federation.strategy={strategy}"
    protected = runs.run(secret(change, "privacy.query_budget=64"), tmp_path / "a").summary
    assert protected["result_hash"] == runs.run(tiny(change), tmp_path / "b").summary["result_hash"]
    assert protected["privacy"]["union"] == "none"
