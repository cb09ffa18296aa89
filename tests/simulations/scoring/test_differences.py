"""Differences between settings, and kinds of relations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import stats

from fedkge.datasets.graph import KnowledgeGraph, LabelledTriples
from fedkge.experiment import Experiment
from fedkge.simulations.runs.comparison import compare
from fedkge.simulations.runs.run_folder import RunFolder
from fedkge.simulations.scoring.differences import client_difference, difference
from fedkge.simulations.scoring.kinds import relation_kinds

Make = Callable[..., Experiment]


def mean_reciprocal(folder: Path, filter: str) -> np.ndarray:
    ranks = load_file(folder / "ranks.safetensors")
    return np.concatenate([(1 / ranks[f"client-{client}/{filter}"]).mean(axis=1) for client in range(3)])


def _of_client(folder: Path, client: int) -> np.ndarray:
    return (1 / load_file(folder / "ranks.safetensors")[f"client-{client}/own"]).mean(axis=1)


@pytest.mark.parametrize("filter", ["own", "all"])
def test_one_seed_is_paired_over_triples(filter: str, smallest: Experiment, tmp_path: Path) -> None:
    found = compare(smallest, ["Local", "FedE", "Central"], tmp_path / "c")
    local, fede, central = found.rows
    gaps = mean_reciprocal(tmp_path / "c/FedE-seed0", filter) - mean_reciprocal(
        tmp_path / "c/Local-seed0", filter
    )
    low, high = stats.norm.interval(0.95, gaps.mean(), gaps.std() / len(gaps) ** 0.5)
    gain = found.gain(fede, filter)
    assert gain is not None
    assert (gain.value, *gain.interval) == pytest.approx((gaps.mean(), low, high), abs=1e-6)
    assert gain.basis == "paired triples"
    record = found.frame.set_index("strategy").loc["FedE"]
    assert record[f"gain_{filter}"] == gain.value
    assert record[f"mrr_{filter}"] == fede.filters[filter].mrr
    assert found.gain(local, filter) is None
    other = found.gain(central, filter)  # one party's test triples are not those of three
    assert other is not None
    assert other.basis == "unpaired triples"
    halves = [(row.filters[filter].interval[1] - row.filters[filter].mrr) for row in (local, central)]
    assert (other.interval[1] - other.value) ** 2 == pytest.approx(sum(half**2 for half in halves))
    page = (tmp_path / "c/report.html").read_text(encoding="utf-8")
    assert "MRR, filter all" in page
    for client in range(3):
        alone, together = (
            RunFolder(tmp_path / f"c/{name}-seed0").summary.number(
                "utility", "per_client", str(client), "test", "mrr", "value"
            )
            for name in ("Local", "FedE")
        )
        own = client_difference(
            *(RunFolder(tmp_path / f"c/{name}-seed0") for name in ("Local", "FedE")), client
        )
        assert own is not None
        assert alone is not None
        assert together is not None
        assert own.value == pytest.approx(together - alone, abs=1e-6)
        mine = _of_client(tmp_path / "c/FedE-seed0", client) - _of_client(tmp_path / "c/Local-seed0", client)
        half = stats.norm.ppf(0.975) * mine.std() / len(mine) ** 0.5
        assert f"({own.value:+.3f} ± {half:.3f})" in page
    assert str(gain) in page


def test_several_seeds_are_paired_by_seed(smallest: Experiment, tmp_path: Path) -> None:
    found = compare(smallest, ["Local", "FedE"], tmp_path / "c", seeds=2)
    runs = {name: [RunFolder(result.folder) for result in results] for name, results in found.runs.items()}
    gain = difference(runs["Local"], runs["FedE"][::-1], "all")
    assert gain is not None
    tests = {name: [result.test("mrr", "all") for result in results] for name, results in found.runs.items()}
    gaps = np.subtract(tests["FedE"], tests["Local"])
    low, high = stats.t.interval(0.95, 1, gaps.mean(), stats.sem(gaps))
    assert (gain.value, *gain.interval) == pytest.approx((gaps.mean(), low, high))
    assert gain.basis == "2 seeds"


def test_kinds_are_by_mean_answers_in_training() -> None:
    train = [("a", "one", "b"), ("c", "one", "d")]
    train += [("a", "tails", tail) for tail in "bcd"] + [("e", "tails", "f")]  # two tails a head
    train += [(head, "heads", "a") for head in "bc"] + [("d", "heads", "e")]  # 1.5 heads a tail
    train += [(head, "many", tail) for head in "ab" for tail in "cd"]
    splits = {
        "train": LabelledTriples(*zip(*train, strict=True)),
        "test": LabelledTriples(["a"], ["new"], ["b"]),
    }
    graph = KnowledgeGraph.from_labels("g", splits)
    kinds = dict(zip(graph.relation_labels, relation_kinds(graph), strict=True))
    assert kinds == {"one": "1-1", "tails": "1-N", "heads": "N-1", "many": "N-N", "new": "unseen"}
