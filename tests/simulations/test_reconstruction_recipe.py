"""Tables 1 and 4 of FedR: the published figure stands beside the right one of ours."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedkge.attacks.reconstruction.variants import Reconstruction
from fedkge.server.privacy import check_privacy
from fedkge.simulations.studies.fedr.reconstruction_study import DATASETS, beside_published, experiment_of
from fedkge.strategy import STRATEGIES
from tests.attacks import planted


def test_published_figures_stand_beside_ours() -> None:
    tables = planted.planted_tables("TransE", np.random.default_rng(0))
    found = []
    for ratio in (0.3, 1.0):
        view, truth = planted.global_view(tables, leak_ratio=ratio)
        found += Reconstruction().assess(view, truth, "paper", np.random.default_rng(0))
    frame = pd.DataFrame(beside_published("FB15k-237", "FedE", found)).set_index(
        ["leak_ratio", "client", "metric"]
    )
    assert frame.loc[(0.3, "C2", "ERR"), "published"] == 0.2904
    assert frame.loc[(1.0, "C3", "TRR"), "published"] == 0.7390
    assert frame.loc[(1.0, "C3", "TRR"), "measured"] == 1
    others = beside_published("WN18RR", "FedE", found)
    assert {row["published"] for row in others} == {None}  # Table 1 has one dataset
    view, truth = planted.granted_view(tables, tables["entity"])
    found = Reconstruction().assess(view, truth, "paper", np.random.default_rng(0))
    frame = pd.DataFrame(beside_published("DDB14", "FedR", found)).set_index(["client", "metric"])
    assert frame.loc[("C3", "ERR"), "published"] == pytest.approx(8.87e-4)


@pytest.mark.parametrize("strategy", ["FedE", "FedR"])
@pytest.mark.parametrize("dataset", DATASETS)
def test_the_experiments_are_the_papers(dataset: str, strategy: str) -> None:
    full = experiment_of(dataset, strategy, "full", seed=3)
    check_privacy(full, STRATEGIES[strategy].shared)
    assert (full.model.name, full.model.dim, full.data.clients) == ("TransE", 128, 3)
    assert (full.federation.rounds, full.training.negatives, full.seed) == (300, 256, 3)
    assert full.federation.own_entities == (strategy == "FedR")
    assert full.adversary.record == "last"
    assert experiment_of(dataset, strategy, "quick", seed=0).federation.rounds < 300
