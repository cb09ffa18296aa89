"""What an adversary proves about ε of private networks, and where Lemma 1 of DPNE fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import sqrt

import numpy as np

from fedkge.attacks.networks.edge_game import Statistic, play
from fedkge.attacks.networks.neighbours import Neighbours, distances, joined_stars, path_of_four, quiet_pair
from fedkge.attacks.networks.told_apart import (
    absolute_term,
    linear_term,
    noisy_walks,
    released_entry,
    released_rows,
)
from fedkge.client.privacy.networks.private_descent import PrivateDescent
from fedkge.client.privacy.networks.private_edges import GaussianEdges, RandomisedResponse, TopEdges
from fedkge.datasets import load_graph
from fedkge.datasets.networks.network import edges_of
from fedkge.seeding import draw
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["draws_of", "edge_audit", "lemma_1"]

_GAMES: Mapping[str, Callable[[Neighbours, float, int], Statistic]] = {
    "DPNE, |term|, one H": lambda pair, epsilon, dim: absolute_term(pair, dim, epsilon),
    "DPNE, linear, one H": lambda pair, epsilon, dim: linear_term(pair, dim, epsilon),
    "DPNE, linear, own H": lambda pair, epsilon, dim: linear_term(pair, dim, epsilon, hidden=True),
}
# A tight game of normal noise needs draws as rare as δ: at 0.01 they are not, and σ follows from it as ever.
_FAILURE = 0.01

_EPOCHS = 10  # in which hardly any run passes by the edge


def _randomised(pair: Neighbours, epsilon: float) -> tuple[Statistic, float]:
    return released_entry(pair, RandomisedResponse(epsilon).answers), 0.0


def _top(pair: Neighbours, epsilon: float) -> tuple[Statistic, float]:
    return released_entry(pair, TopEdges(epsilon).edges), 0.0


def _gaussian(pair: Neighbours, epsilon: float) -> tuple[Statistic, float]:
    mechanism = GaussianEdges(epsilon, _FAILURE)
    return released_entry(pair, mechanism.noised), mechanism.delta


def _descent(pair: Neighbours, epsilon: float) -> tuple[Statistic, float]:
    mechanism = PrivateDescent(epsilon, epochs=_EPOCHS)
    return released_rows(pair, mechanism, 8), mechanism.delta


_OURS: Mapping[str, Callable[[Neighbours, float], tuple[Statistic, float]]] = {
    "randomised response": _randomised,
    "top edges": _top,
    "Gaussian (δ = 0.01)": _gaussian,
    "DP-SGD": _descent,
}
_DRAWS = {"quick": 200, "full": 500}
_TIMES: Mapping[str, int] = {  # as many draws: of what is drawn in a millisecond
    "dpM": 100,
    "randomised response": 20,
    "top edges": 20,
    "Gaussian (δ = 0.01)": 20,
}
_DIMS = {"small": 16, "Cora": 100}


@study(
    [Quantity("claimed", "ε claimed or guaranteed"), Quantity("at_least", "ε at least")],
    seeds={"quick": 1, "full": 1},
    notes=(
        "One H: that of the network without the edge, for both networks, as the proof has it. Own H: that of "
        "the network which released, as in the algorithm. Games on 'small' are on 60 vertices.",
        "Randomised response, top edges and Gaussian are played on the number that was drawn for the edge, "
        "DP-SGD on the product of two rows. 200 draws prove no ε above 3.99, 500 none above 4.91.",
    ),
)
def edge_audit(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Lower bounds on ε (95 %, Clopper and Pearson) from a game over two networks that differ in one edge.

    Full: 60 vertices and Cora, 500 draws from either network (20 times as many of single numbers, 100 times
    of dpM), and as many to choose the threshold. Quick: 60 vertices, 200 draws.
    """
    for seed in seeds:
        for dataset in ("small", "Cora") if scale == "full" else ("small",):
            for name in _GAMES:
                for epsilon in (0.01, 1.0):
                    yield _game(dataset, name, epsilon, draws_of(name, scale), seed)
        for epsilon in (1.0, 3.0):
            yield _game("path", "dpM", epsilon, draws_of("dpM", scale), seed)
        for name in _OURS:
            for epsilon in (1.0, 3.0):
                yield _game("small", name, epsilon, draws_of(name, scale), seed)


def draws_of(mechanism: str, scale: Scale) -> int:
    """How many releases of either network its game tests."""
    return _DRAWS[scale] * _TIMES.get(mechanism, 1)


def _game(dataset: str, name: str, epsilon: float, draws: int, seed: int) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        del cache
        statistic, delta = _statistic(dataset, name, epsilon)
        result = play(statistic, epsilon, draws, seed, delta)
        return [
            {
                "claimed": epsilon,
                "at_least": result.at_least,
                "hits": result.hits,
                "alarms": result.alarms,
                "verdict": "refuted" if result.refuted else "stands",
            }
        ]

    keys: dict[str, Key] = {"network": dataset, "mechanism": name, "epsilon": epsilon, "seed": seed}
    return TableCell(keys, measure, f"{draws} draws")


def _statistic(dataset: str, name: str, epsilon: float) -> tuple[Statistic, float]:
    """The best test known of a mechanism, and its δ."""
    pair = _pair(dataset)
    if name in _GAMES:
        return _GAMES[name](pair, epsilon, _DIMS[dataset]), 0.0
    if name == "dpM":
        return noisy_walks(pair, epsilon), 0.0
    return _OURS[name](pair, epsilon)


def _pair(dataset: str) -> Neighbours:
    if dataset == "path":
        return path_of_four()
    if dataset == "small":
        return quiet_pair(draw(0, 60).integers(0, 60, (90, 2)).astype(np.int32), 60)
    graph = load_graph(dataset)
    return quiet_pair(edges_of(graph), graph.num_entities)


@study([Quantity("measured", "measured"), Quantity("claimed", "at most, by Lemma 1")], within=("norm",))
def lemma_1(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Lemma 1 of DPNE on networks of a few vertices: norms of M' − M for two steps, and of powers of P.

    Nothing is drawn. Quick: the same.
    """
    del scale, seeds
    pairs = {
        "path of 4": path_of_four(),
        "two stars of 5": joined_stars(5),
        "two stars of 1": joined_stars(1),
    }
    for name, pair in pairs.items():
        yield TableCell({"network": name}, _distances(pair))


def _distances(pair: Neighbours) -> Callable[[StudyCache], Iterable[Row]]:
    def measure(cache: StudyCache) -> Iterator[Row]:
        del cache
        found = distances(pair)
        for norm, value, bound in (
            ("|M' − M|, Frobenius", found.frobenius, sqrt(2)),
            ("|M' − M|, sum of rows", found.rows, sqrt(2)),
            ("|M' − M|, sum of entries", found.entries, sqrt(2)),
            ("|P'² − P²|, against |P' − P|", found.power, found.step),
        ):
            verdict = "holds" if value <= bound + 1e-12 else "fails"
            yield {"norm": norm, "measured": value, "claimed": bound, "verdict": verdict}

    return measure
