"""Strategies of a user's own: run as they are, or refused where secure aggregation would pass them over."""

from __future__ import annotations

import pytest

from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.server.app import check_strategy
from fedkge.strategy import STRATEGIES, FedE, Federation

OPEN = ["privacy.secure_aggregation=false", "privacy.union=plain"]


class Sharer(FedE):
    """Nothing of its own but a helper."""

    def helper(self) -> None: ...


class Chooser(FedE):
    def _participants(self, *arguments: object) -> None: ...


class Starter(Chooser):
    def __init__(self, *arguments: object) -> None: ...


@pytest.mark.parametrize(
    ("strategy", "own"), [(Chooser, "_participants"), (Starter, "__init__, _participants")]
)
def test_what_acts_in_its_own_way_does_not_run_over_sums(
    strategy: type[Federation], own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STRATEGIES, "Mine", strategy)
    experiment = Experiment().override(["federation.strategy=Mine"])
    with pytest.raises(SettingError, match=f"Mine has its own {own}, which cannot act on sums"):
        check_strategy(experiment)
    assert check_strategy(experiment.override(OPEN)) is strategy


def test_what_only_says_what_it_shares_runs_over_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "Mine", Sharer)
    assert check_strategy(Experiment().override(["federation.strategy=Mine"])) is Sharer
