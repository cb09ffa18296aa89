"""The bound on ε from guessed canaries, on mechanisms whose ε is known."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedkge.attacks.canaries.canary_bound import lower_bound, p_value
from fedkge.errors import SettingError

DELTA = 1e-5


def coins(rng, canaries):
    return rng.random(canaries) < 0.5


def gaussian_epsilon(sigma: float) -> float:
    def excess(eps: float) -> float:
        return norm.cdf(0.5 / sigma - eps * sigma) - exp(eps) * norm.cdf(-0.5 / sigma - eps * sigma) - DELTA

    return brentq(excess, 0, 200)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_a_gaussian_release_is_never_refuted_below_its_epsilon(sigma):
    """Each canary adds a unit vector of its own to a sum that is released with noise."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        included = coins(rng, 1000)
        released = included + sigma * rng.standard_normal(1000)
        assert lower_bound(released, included, DELTA, rng).epsilon <= gaussian_epsilon(sigma)


def test_much_of_a_gaussian_epsilon_is_found():
    rng = np.random.default_rng(0)
    included = coins(rng, 4000)
    found = lower_bound(included + 0.5 * rng.standard_normal(4000), included, DELTA, rng)
    assert found.epsilon > 0.3 * gaussian_epsilon(0.5)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_randomised_response_is_refuted_up_to_its_epsilon_and_rarely_beyond(epsilon):
    """Its guesses are as good as ε-DP allows, so the bound is tight; it errs in at most 5 % of the runs."""
    beyond, found = 0, []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        included = coins(rng, 2000)
        kept = rng.random(2000) < 1 / (1 + exp(-epsilon))
        bound = lower_bound((included == kept).astype(float), included, 0.0, rng)
        beyond += bound.epsilon > epsilon
        found.append(bound.epsilon)
    assert beyond <= 4  # P[Binomial(30, 0.05) > 4] is 2 %
    assert np.mean(found) > 0.8 * epsilon


def test_a_release_without_noise_is_refuted_for_any_small_epsilon():
    rng = np.random.default_rng(0)
    included = coins(rng, 1000)
    bound = lower_bound(included.astype(float), included, DELTA, rng)
    assert bound.correct == bound.guesses
    assert bound.epsilon > 4


def test_a_release_of_nothing_refutes_nothing():
    rng = np.random.default_rng(0)
    included = coins(rng, 1000)
    assert lower_bound(np.zeros(1000), included, DELTA, rng).epsilon == 0


def test_all_correct_guesses_prove_what_the_exact_formula_says():
    """With δ = 0 and all r guesses right the p-value is (e^ε / (1 + e^ε))^r."""
    assert p_value(50, 50, 100, 1.0, 0.0) == pytest.approx((exp(1) / (1 + exp(1))) ** 50)
    assert p_value(0, 50, 100, 1.0, 0.0) == 1
    assert p_value(40, 50, 100, 2.0, 1e-3) > p_value(40, 50, 100, 2.0, 0.0)


def test_the_failure_term_follows_its_definition():
    """α = max over i of P[v > Binomial(r, q) ≥ v − i] / i, summed slowly."""
    v, r, m, epsilon, delta = 9, 12, 20, 0.7, 1e-2
    q = 1 / (1 + exp(-epsilon))
    mass = [_choose(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    alpha = max(sum(mass[v - i : v]) / i for i in range(1, v + 1))
    assert p_value(v, r, m, epsilon, delta) == pytest.approx(sum(mass[v:]) + 2 * m * delta * alpha)


def test_the_same_seed_gives_the_same_bound():
    included = coins(np.random.default_rng(1), 200)
    scores = np.round(included + np.random.default_rng(2).standard_normal(200))
    first, second = (lower_bound(scores, included, DELTA, np.random.default_rng(3)) for _ in range(2))
    assert first == second


def test_too_few_canaries_are_refused():
    with pytest.raises(SettingError, match="at least 2"):
        lower_bound(np.zeros(1), np.zeros(1, dtype=bool), DELTA, np.random.default_rng(0))


def _choose(n: int, k: int) -> float:
    return 1.0 if k == 0 else _choose(n, k - 1) * (n - k + 1) / k
