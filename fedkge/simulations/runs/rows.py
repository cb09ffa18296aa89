"""One line of a comparison: a strategy's gain and cost over all its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

__all__ = ["FilterScore", "Row", "interval_over_seeds", "row_of", "saved"]


@dataclass(frozen=True)
class FilterScore:
    """The test MRR under one filter, over all seeds."""

    mrr: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One strategy over all seeds."""

    strategy: str
    mrr: float
    interval: tuple[float, float]
    hits: dict[str, float]
    rounds: float
    rounds_to_target: float | None
    bytes_to_target: float | None
    bytes_total: float
    seconds: float
    filters: Mapping[str, FilterScore]  # of simulations


def row_of(strategy: str, summaries: Sequence[Mapping[str, Any]]) -> Row:
    """The means over the summaries of finished runs that differ in their seed only."""
    costs = [summary["communication"] for summary in summaries]
    tests = [summary["utility"]["test"] for summary in summaries]
    return Row(
        strategy=strategy,
        mrr=mean(test["mrr"]["value"] for test in tests),
        interval=_interval([test["mrr"] for test in tests]),
        hits={name: mean(test[name]["value"] for test in tests) for name in ("hits@1", "hits@3", "hits@10")},
        rounds=mean(cost["rounds"] for cost in costs),
        rounds_to_target=_mean_or_none([cost["rounds_to_target"] for cost in costs]),
        bytes_to_target=_mean_or_none([cost["bytes_to_target"] for cost in costs]),
        bytes_total=mean(cost["bytes_up"] + cost["bytes_down"] for cost in costs),
        seconds=mean(summary["speed"]["seconds_total"] for summary in summaries),
        filters=_filters([summary["utility"].get("filters", {}) for summary in summaries]),
    )


def _filters(blocks: Sequence[Mapping[str, Any]]) -> dict[str, FilterScore]:
    """Of the filters under which every run was scored."""
    scores = {
        name: [block[name]["test"]["mrr"] for block in blocks]
        for name in blocks[0]
        if all(name in block and "mrr" in block[name]["test"] for block in blocks)
    }
    return {
        name: FilterScore(mean(score["value"] for score in of_seeds), _interval(of_seeds))
        for name, of_seeds in scores.items()
    }


def saved(rows: Sequence[Row], row: Row, column: str) -> float | None:
    """The share of FedE's bytes that a strategy saves."""
    reference = next((other for other in rows if other.strategy == "FedE"), None)
    mine = getattr(row, column)
    theirs = getattr(reference, column) if reference else None
    return None if not theirs or mine is None else 1 - mine / theirs


def interval_over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """95 % by Student's t, from two seeds on."""
    from scipy.special import stdtrit  # takes a while to import

    if len(set(values)) == 1:  # ε = ∞ of every seed among them
        return values[0], values[0]
    half = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


def _interval(scores: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Over seeds; of a single run, over its test triples."""
    if len(scores) == 1:
        low, high = scores[0]["interval"]
        return float(low), float(high)
    return interval_over_seeds([score["value"] for score in scores])


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    """Unless every seed reached the target there is no honest mean."""
    reached = [value for value in values if value is not None]
    return mean(reached) if len(reached) == len(values) else None
