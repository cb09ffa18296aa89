"""The same app under Flower's own runtime: a SuperLink and SuperNodes on loopback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from tests.simulations.superlink import run_on_loopback


def test_superlink_and_supernodes_give_the_same_bits(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    everything = "federation.strategy=FedER"  # rows that are not shared start from secrets, which differ
    experiment = tiny(everything, "data.clients=2", "federation.rounds=1", "federation.evaluate_every=1")
    inline = runs.run(experiment, tmp_path / "inline")
    data = [tmp_path / "inline" / "data" / f"client-{number}" for number in range(2)]
    flower = run_on_loopback(experiment, data, tmp_path)
    assert flower["result_hash"] == inline.summary["result_hash"]
    assert flower["communication"]["bytes_up"] == inline.summary["communication"]["bytes_up"]
