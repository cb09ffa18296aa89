"""A process that ends in the middle of an evaluation: some clients have taken the mean, others have not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedkge.client.participant import Participant
from fedkge.exchange import Download, Upload
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from tests.simulations.mishaps import Crash
from tests.simulations.test_sync import NOGE

Make = Callable[..., Experiment]
STAGES = ("model.name=KBGAT", "model.options.decoder_epochs=2", "model.options.filters=4")


@pytest.mark.parametrize("sync", ["at-evaluation", "never"])
@pytest.mark.parametrize("model", [NOGE, (NOGE[0], *STAGES)], ids=["NoGE", "KBGAT"])
def test_a_run_that_was_cut_in_an_evaluation_ends_in_the_same_bits(
    sync: str, model: tuple[str, ...], tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny(*model, "federation.strategy=FedR", f"federation.sync={sync}", "engine.workers=1")
    whole = runs.run(experiment, tmp_path / "whole")
    evaluate, taken = Participant.evaluate, []

    def cut(self: Participant, download: Download) -> Upload:
        if download.round == 4 and self.client == 1:
            raise Crash
        taken.append((self.client, download.round))
        return evaluate(self, download)

    monkeypatch.setattr(Participant, "evaluate", cut)
    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut")
    assert (0, 4) in taken  # who has the mean in its state, and must forget it
    monkeypatch.setattr(Participant, "evaluate", evaluate)
    resumed = runs.resume(tmp_path / "cut")
    assert resumed.summary["result_hash"] == whole.summary["result_hash"]
