"""Mechanisms at edge level: what they draw is what their proofs need, and their rows are what they say."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedkge.client.networks.factors import factors_of, given_contexts
from fedkge.client.networks.walk_matrix import adjacency_of, walk_matrix
from fedkge.client.privacy.networks.dpne import (
    DPNE,
    AbsoluteDPNE,
    NoisyWalks,
    minimiser,
    noise_rows,
    unit_contexts,
)
from fedkge.client.privacy.networks.edge_mechanism import laplace
from fedkge.client.privacy.networks.private_descent import PrivateDescent
from fedkge.client.privacy.networks.private_edges import (
    GaussianEdges,
    RandomisedResponse,
    TopEdges,
    pair_of,
    pairs_of,
    spectral_rows,
)
from fedkge.client.privacy.normals import Keystream
from fedkge.errors import SettingError

ADJACENCY = adjacency_of(np.random.default_rng(0).integers(0, 40, (80, 2)).astype(np.int32), 40)
MECHANISMS = (DPNE, AbsoluteDPNE, NoisyWalks, RandomisedResponse, TopEdges, GaussianEdges, PrivateDescent)


def stream(number: int = 0) -> Keystream:
    return Keystream(bytes([number % 256, number // 256]) + bytes(30))


@given(st.integers(2, 60))
def test_places_of_the_upper_triangle_are_its_pairs(vertices: int) -> None:
    head, tail = np.triu_indices(vertices, 1)
    places = np.arange(len(head))
    np.testing.assert_array_equal(pairs_of(places, vertices), np.stack([head, tail], axis=1))
    np.testing.assert_array_equal(pair_of(head, tail, vertices), places)


@pytest.mark.parametrize("kind", MECHANISMS)
def test_rows_follow_from_the_stream_and_epsilon_alone(kind: type) -> None:
    rows = [kind(3.0).rows(ADJACENCY, 6, stream(number)) for number in (1, 1, 2)]
    assert rows[0].shape == (40, 6)
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.allclose(rows[0], rows[2])


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_a_budget_is_above_zero(epsilon: float) -> None:
    with pytest.raises(SettingError, match="randomised response: epsilon"):
        RandomisedResponse(epsilon)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6])
def test_answers_that_tell_next_to_nothing_are_embedded_all_the_same(epsilon: float) -> None:
    assert np.isfinite(RandomisedResponse(epsilon).rows(ADJACENCY, 4, stream())).all()


@pytest.mark.parametrize("epsilon", [1e-10, 1e-17, 1e-300])
def test_answers_that_are_coins_are_refused(epsilon: float) -> None:
    with pytest.raises(SettingError, match="tell nothing; set it to 1e-09 or more"):
        RandomisedResponse(epsilon)


def test_a_chance_of_failure_that_gives_an_edge_away_is_refused_by_its_own_name() -> None:
    edges = int(ADJACENCY.nnz / 2)
    with pytest.raises(
        SettingError, match=rf"failure = 0.1 is not below 1 / {edges} edges.*set failure = 0\.0"
    ):
        PrivateDescent(1.0, failure=0.1).rows(ADJACENCY, 4, stream())
    PrivateDescent(1.0, failure=edges**-1.1, epochs=1).rows(ADJACENCY, 4, stream())


def test_what_is_claimed_says_why_and_what_is_guaranteed_what_it_assumes() -> None:
    for kind in MECHANISMS:
        assert kind.assumed
        assert bool(kind.doubts) != kind.guaranteed
        assert kind(1.0).standing == ("guaranteed" if kind.guaranteed else "claimed")


def test_every_pair_lies_alike() -> None:
    """Of 300 networks: edges and pairs that are none lie as often as ε says, not more, not less."""
    mechanism, truth = RandomisedResponse(1.5), ADJACENCY.toarray()
    told = sum(mechanism.answers(ADJACENCY, stream(number)).toarray() for number in range(300))
    upper = np.triu(np.ones_like(truth), 1) > 0
    for kind in (0, 1):
        pairs = upper & (truth == kind)
        lies = int(told[pairs].sum() if kind == 0 else 300 * pairs.sum() - told[pairs].sum())
        share = stats.binomtest(lies, int(300 * pairs.sum()), 1 / (1 + exp(1.5)))
        assert share.pvalue > 1e-3


def test_lies_are_taken_out_on_the_mean() -> None:
    mechanism, vector = RandomisedResponse(1.5), np.random.default_rng(0).normal(size=40)
    draws = [
        mechanism.unbiased(mechanism.answers(ADJACENCY, stream(number))).matvec(vector)
        for number in range(400)
    ]
    error = np.std(draws, axis=0) / sqrt(len(draws))
    assert (np.abs(np.mean(draws, axis=0) - ADJACENCY @ vector) < 5 * error).all()


def test_the_filter_draws_as_noise_on_every_entry_would() -> None:
    """Against Laplace noise on all entries and the same threshold, edge by edge and for all others."""
    mechanism, truth = TopEdges(4.0), ADJACENCY.toarray()
    size, total = 40, 780
    edges = int(truth.sum() / 2)
    kept = sum(mechanism.edges(ADJACENCY, stream(number)).toarray() for number in range(300))
    rng = np.random.default_rng(0)
    expected = np.zeros(2)
    for _ in range(300):
        wanted = int(np.clip(round(edges + rng.laplace(scale=1 / 0.4)), 1, total))
        threshold = mechanism._threshold(3.6, wanted, total)
        entries = truth[np.triu_indices(size, 1)]
        passed = entries + rng.laplace(scale=1 / 3.6, size=total) > threshold
        expected += [passed[entries == 1].mean(), passed[entries == 0].mean()]
    upper = np.triu_indices(size, 1)
    for kind, mean in zip((1, 0), expected / 300, strict=True):
        assert kept[upper][truth[upper] == kind].mean() / 300 == pytest.approx(mean, abs=0.02)


def test_noise_is_of_the_distributions_that_proofs_name() -> None:
    assert stats.kstest(laplace(stream(), 4000, 0.7), stats.laplace(scale=0.7).cdf).pvalue > 1e-3
    noise = noise_rows(stream(), 3000, 4, 0.5)
    lengths = np.linalg.norm(noise, axis=1)
    assert stats.kstest(lengths, stats.gamma(4, scale=2 * sqrt(2) / 0.5).cdf).pvalue > 1e-3
    directions = noise / lengths[:, None]
    assert stats.kstest((directions[:, 0] + 1) / 2, stats.beta(1.5, 1.5).cdf).pvalue > 1e-3


@pytest.mark.parametrize("size", [40, 300])
@pytest.mark.parametrize("edges", ["drawn", "pairs", "one"])
def test_the_spectrum_is_that_of_the_matrix(size: int, edges: str) -> None:
    """By all eigenvalues and by iteration, of which copies of one and few edges make nothing else."""
    drawn = {
        "drawn": np.random.default_rng(0).integers(0, size, (2 * size, 2)),
        "pairs": np.arange(size).reshape(-1, 2),
        "one": np.array([[0, 1]]),
    }
    dense = adjacency_of(drawn[edges].astype(np.int32), size).toarray()
    rows = spectral_rows(dense, 5, size)
    values = np.linalg.eigvalsh(dense)
    largest = np.sort(np.abs(values))[::-1][:5]
    np.testing.assert_allclose(np.square(rows).sum(0), largest, atol=1e-8)


def objective_of(term: str, w: torch.Tensor, h: np.ndarray, noise: np.ndarray) -> torch.Tensor:
    missed = torch.tensor(walk_matrix(ADJACENCY).toarray()) - w @ torch.tensor(h).T
    linear = (w * torch.tensor(noise)).sum()
    return missed.square().sum() + 1e-3 * w.square().sum() + (linear if term == "linear" else linear.abs())


@pytest.mark.parametrize("term", ["linear", "absolute"])
@pytest.mark.parametrize("epsilon", [0.1, 10.0, 1e4])
def test_rows_of_dpne_minimise_equation_11(term: str, epsilon: float) -> None:
    """No step, small or large, along any direction makes the objective smaller."""
    walks, rng = walk_matrix(ADJACENCY), np.random.default_rng(0)
    contexts = unit_contexts(walks, 5).contexts
    assert np.linalg.norm(contexts, axis=1).max() <= 1 + 1e-12
    noise = noise_rows(stream(), 40, 5, epsilon)
    best = minimiser(walks, contexts, noise, term)  # type: ignore[arg-type]
    least = float(objective_of(term, torch.tensor(best), contexts, noise))
    for size in (1e-4, 1e-2, 1.0):
        for direction in (
            rng.normal(size=best.shape),
            noise / np.linalg.norm(noise),
            -noise / np.linalg.norm(noise),
        ):
            other = torch.tensor(best + size * direction)
            assert float(objective_of(term, other, contexts, noise)) >= least - 1e-9 * abs(least)


def test_the_absolute_term_leaves_rows_where_they_were() -> None:
    """At ε = 0.01 as at 1: what moves is one number of two hundred."""
    walks = walk_matrix(ADJACENCY)
    plain = given_contexts(walks, unit_contexts(walks, 5).contexts, 1e-3)
    for epsilon in (0.01, 1.0):
        moved = AbsoluteDPNE(epsilon).rows(ADJACENCY, 5, stream()) - plain
        assert np.linalg.norm(moved) < 0.3 * np.linalg.norm(plain)
        printed = DPNE(epsilon).rows(ADJACENCY, 5, stream()) - plain
        assert np.linalg.norm(printed) > 3 * np.linalg.norm(plain)


def test_without_noise_every_mechanism_is_what_it_embeds() -> None:
    """At a budget beyond all: the spectrum of the adjacency over degrees, or the factors of M."""
    degrees = ADJACENCY.toarray().sum(1)
    damped = np.sqrt(np.maximum(degrees, 1) + degrees.mean())
    spectrum = spectral_rows(ADJACENCY.toarray() / np.outer(damped, damped), 4, 40)
    np.testing.assert_allclose(RandomisedResponse(60.0).rows(ADJACENCY, 4, stream()), spectrum, atol=1e-6)
    factors = factors_of(walk_matrix(ADJACENCY), 4).vertices
    np.testing.assert_allclose(TopEdges(500.0).rows(ADJACENCY, 4, stream()), factors, atol=1e-8)
    np.testing.assert_allclose(NoisyWalks(1e12).rows(ADJACENCY, 4, stream()), factors, atol=1e-6)
    assert log(RandomisedResponse(1.0).flip / (1 - RandomisedResponse(1.0).flip)) == pytest.approx(-1.0)
