"""Which claims are refuted and which stand: each mechanism fails its game if its noise is taken away."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.attacks.networks.edge_game import ceiling, play, verdict
from fedkge.attacks.networks.neighbours import Neighbours, distances, joined_stars, path_of_four, quiet_pair
from fedkge.attacks.networks.told_apart import (
    absolute_term,
    linear_term,
    noisy_walks,
    released_entry,
    released_rows,
)
from fedkge.client.networks.walk_matrix import adjacency_of
from fedkge.client.privacy.networks import private_edges
from fedkge.client.privacy.networks.edge_mechanism import EdgeMechanism
from fedkge.client.privacy.networks.private_descent import PrivateDescent
from fedkge.client.privacy.networks.private_edges import GaussianEdges, RandomisedResponse, TopEdges
from fedkge.client.privacy.networks.private_vertices import GaussianVertices
from fedkge.client.privacy.normals import Keystream
from fedkge.errors import SettingError
from fedkge.simulations.studies.dpne.dpne_audit import draws_of, edge_audit

SMALL = quiet_pair(np.random.default_rng(0).integers(0, 60, (90, 2)).astype(np.int32), 60)
TINY = Neighbours.of(np.array([[0, 1], [2, 3], [3, 4], [4, 5], [1, 2]], dtype=np.int32), 6, (0, 5))


def test_lemma_1_fails_for_two_steps_and_for_sums_of_rows() -> None:
    path, stars = distances(path_of_four()), distances(joined_stars(5))
    assert path.frobenius == pytest.approx(0.75)
    assert path.rows == pytest.approx(1.4977, abs=1e-4)
    assert path.rows > sqrt(2)
    assert path.entries == pytest.approx(2.5)
    assert stars.power == pytest.approx(0.616, abs=1e-3)
    assert stars.power > stars.step == pytest.approx(0.2582, abs=1e-4)
    once = distances(path_of_four(), window=1)
    assert once.frobenius <= sqrt(2)  # for one step it holds


def test_neighbours_differ_in_one_edge() -> None:
    for pair in (SMALL, TINY, path_of_four(), joined_stars(3)):
        head, tail = (pair.joined - pair.without).nonzero()
        assert sorted(zip(head.tolist(), tail.tolist(), strict=True)) == sorted([pair.edge, pair.edge[::-1]])


@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_the_claim_of_the_absolute_term_is_refuted(epsilon: float) -> None:
    result = play(absolute_term(SMALL, 16, epsilon), epsilon, 150, seed=0)
    assert result.refuted
    assert result.at_least > 3


def test_the_linear_term_is_refuted_by_its_contexts_alone() -> None:
    """With one H for both networks the claim stands; with each network's own H it does not."""
    assert not play(linear_term(SMALL, 16, 1.0), 1.0, 150, seed=0).refuted
    assert play(linear_term(SMALL, 16, 0.01, hidden=True), 0.01, 300, seed=0).refuted


def test_the_noise_of_dpm_is_too_small() -> None:
    """2.5 / √2 times too small: the bound comes between the claim and that."""
    result = play(noisy_walks(path_of_four(), 3.0), 3.0, 8000, seed=0)
    assert result.refuted
    assert result.at_least < 3 * 2.5 / sqrt(2)


@pytest.mark.parametrize(
    "mechanism", [RandomisedResponse(1.0), TopEdges(1.0), GaussianEdges(1.0)], ids=lambda each: each.name
)
def test_what_is_guaranteed_stands(mechanism: EdgeMechanism) -> None:
    result = play(released_rows(TINY, mechanism, 4), mechanism.epsilon, 400, 0, mechanism.delta)
    assert not result.refuted


DRAWN = {
    "randomised response": (lambda epsilon: (RandomisedResponse(epsilon).answers, 0.0), 1500, 0.8),
    "top edges": (lambda epsilon: (TopEdges(epsilon).edges, 0.0), 3000, 0.5),
    "Gaussian": (lambda epsilon: (GaussianEdges(epsilon, 0.01).noised, 0.01), 4000, 0.4),
}


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_the_number_of_the_edge_tells_about_as_much_as_epsilon_allows(name: str) -> None:
    """What is guaranteed stands, and comes close enough that half the noise would not."""
    make, draws, share = DRAWN[name]
    drawn, delta = make(1.0)
    right = play(released_entry(SMALL, drawn), 1.0, draws, 0, delta)
    assert not right.refuted
    assert right.at_least > share
    drawn, delta = make(2.0)
    wrong = play(released_entry(SMALL, drawn), 1.0, draws, 0, delta)
    assert wrong.refuted
    assert wrong.at_least < 2.0


def test_half_the_noise_of_a_normal_number_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    deviation = GaussianEdges(1.0, 0.01).deviation
    monkeypatch.setattr(GaussianEdges, "deviation", deviation / 2)
    assert play(released_entry(TINY, GaussianEdges(1.0, 0.01).noised), 1.0, 3000, 0, 0.01).refuted


def test_no_game_of_the_audit_is_bound_to_stand() -> None:
    """So many draws could prove more than is claimed, whatever the mechanism."""
    assert ceiling(40) < 3 < ceiling(100)
    assert f"no ε above {ceiling(200) + 0.005:.2f}, 500 none above {ceiling(500):.2f}" in edge_audit.notes[1]
    for scale in ("quick", "full"):
        for cell in edge_audit.cells(scale):
            assert ceiling(draws_of(str(cell.keys["mechanism"]), scale)) > float(str(cell.keys["epsilon"]))
            assert cell.settings == f"{draws_of(str(cell.keys['mechanism']), scale)} draws"


@given(st.integers(2, 400), st.integers(0, 400), st.integers(0, 400))
def test_no_draws_prove_more_than_their_ceiling(draws: int, hits: int, alarms: int) -> None:
    scores = [(np.arange(draws) < min(count, draws)).astype(float) for count in (hits, alarms)]
    found = verdict(*scores, (0.5, True), 0.0).at_least
    assert found <= ceiling(draws)
    assert (found == ceiling(draws)) == (hits >= draws > alarms == 0) or found == 0


def test_randomised_response_without_lies_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomisedResponse, "flip", 1e-9)
    assert play(released_rows(TINY, RandomisedResponse(1.0), 4), 1.0, 100, seed=0).refuted


def test_top_edges_without_noise_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(stream: Keystream, count: int, scale: float) -> np.ndarray:
        return np.zeros(count)

    monkeypatch.setattr(private_edges, "laplace", silent)
    monkeypatch.setattr(private_edges, "poisson_sample", lambda *_: np.empty(0, dtype=np.int64))
    assert play(released_rows(TINY, TopEdges(1.0), 4), 1.0, 100, seed=0).refuted


def test_gaussian_edges_without_noise_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_edges, "gaussian_sigma", lambda *_: 1e-3)
    assert play(released_rows(TINY, GaussianEdges(1.0), 4), 1.0, 100, 0, 1e-5).refuted


def test_descent_stands_and_with_a_tenth_of_its_noise_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In so many epochs hardly any run passes by the edge, or even no noise would prove little."""
    mechanism = PrivateDescent(3.0, epochs=10)
    game = released_rows(SMALL, mechanism, 8)
    assert not play(game, 3.0, 100, 0, mechanism.delta).refuted
    settings = PrivateDescent.settings
    monkeypatch.setattr(PrivateDescent, "settings", lambda self, sigma: settings(self, sigma / 10))
    assert play(game, 3.0, 100, 0, mechanism.delta).refuted


def test_a_coin_that_lies_as_often_as_epsilon_says_is_not_refuted() -> None:
    """The game itself is right: randomised response of one bit is as bad as ε allows, and no worse."""
    for epsilon in (0.5, 1.0, 2.0):
        rng = np.random.default_rng(0)
        joined = (rng.random(20000) < 1 / (1 + exp(-epsilon))).astype(float)
        without = (rng.random(20000) > 1 / (1 + exp(-epsilon))).astype(float)
        found = verdict(joined, without, (0.5, True), epsilon)
        assert not found.refuted
        assert found.at_least > 0.9 * epsilon
        assert found.at_least <= log((joined.mean()) / without.mean())


def test_a_game_needs_draws() -> None:
    with pytest.raises(SettingError, match="1 draws"):
        play(lambda *_: 0.0, 1.0, 1, seed=0)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_all_edges_of_a_vertex_are_hidden_and_would_not_be_with_the_noise_of_one(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The likelihood ratio of all entries, for a vertex that is joined to everybody."""
    mechanism = GaussianVertices(epsilon, degree=4)
    others = np.array([(i, 1 + i % 19) for i in range(1, 20)], dtype=np.int32)
    star = np.array([(0, i) for i in range(1, 20)], dtype=np.int32)
    networks = {True: adjacency_of(np.concatenate([star, others]), 20), False: adjacency_of(others, 20)}
    moved = (mechanism.weighed(networks[True]) - mechanism.weighed(networks[False])).toarray()

    def statistic(joined: bool, stream: Keystream) -> float:
        return float((mechanism.noised(networks[joined], stream) * moved).sum())

    assert not play(statistic, epsilon, 1500, seed=0, delta=mechanism.delta).refuted
    monkeypatch.setattr(GaussianVertices, "sensitivity", lambda *_: 0.5)
    assert play(statistic, epsilon, 1500, seed=0, delta=mechanism.delta).refuted
