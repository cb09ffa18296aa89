"""Leakage over ε: of the server with its colluder, the client who loses most is the one shown."""

from __future__ import annotations

import pytest

from fedkge.attacks import Finding
from fedkge.server.privacy import check_privacy
from fedkge.simulations.studies.leakage import SIGMAS, private_experiment, worst_of
from fedkge.strategy import STRATEGIES


def finding(
    metric: str,
    value: float | None,
    target: int,
    view: str = "uploads",
    adversary: str = "server + client 0",
) -> Finding:
    return Finding(
        "reconstruction",
        "paper",
        view,
        adversary,
        "",
        1.0,
        target,
        "",
        metric,
        value,
        baseline=0.1,
    )


def test_the_client_who_loses_most_is_shown() -> None:
    findings = [
        finding("TRR", 0.2, 1),
        finding("TRR", 0.5, 2),
        finding("ERR", 0.9, 1),
        finding("MRR", 1.0, 1),
    ]
    assert [(row["metric"], row["measured"], row["chance"]) for row in worst_of(findings)] == [
        ("ERR", 0.9, 0.1),
        ("TRR", 0.5, 0.1),
    ]


def test_other_adversaries_and_what_is_not_possible_do_not_count() -> None:
    others = [
        finding("TRR", 0.9, 1, "granted entity rows"),
        finding("TRR", 0.9, 1, "broadcasts", "client 0"),
        finding("TRR", 0.9, 1, adversary="server"),
        finding("ERR", None, 2),
    ]
    assert worst_of(others) == []


def test_other_metrics_and_views_count_where_they_are_asked_for() -> None:
    findings = [finding("accuracy", 0.7, 1), finding("accuracy", 0.8, 2, "granted entity rows")]
    assert [row["measured"] for row in worst_of(findings, ["accuracy"])] == [0.7]
    views = ("uploads", "granted entity rows")
    assert [row["measured"] for row in worst_of(findings, ["accuracy"], views)] == [0.8]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_runs_differ_in_noise_alone(sigma: float | None) -> None:
    experiment = private_experiment(sigma, "quick", 0)
    check_privacy(experiment, STRATEGIES["FedE"].shared)
    assert (experiment.privacy.dp.mode, experiment.data.confidential) == (
        "off" if sigma is None else "sound",
        1.0,
    )
    plain = private_experiment(None, "quick", 0)
    assert experiment.model_copy(update={"privacy": plain.privacy}) == plain
