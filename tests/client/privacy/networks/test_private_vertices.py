"""All edges of a vertex, taken out: no network moves further than the bound says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.client.networks.walk_matrix import adjacency_of
from fedkge.client.privacy.accountant import epsilon
from fedkge.client.privacy.networks.private_edges import GRID
from fedkge.client.privacy.networks.private_vertices import GaussianVertices
from fedkge.client.privacy.normals import Keystream


def distance(pairs: np.ndarray, size: int, vertex: int, mechanism: GaussianVertices) -> float:
    """Between the entries before noise, on the grid, each pair counted once."""
    rest = pairs[(pairs != vertex).all(axis=1)]
    whole, less = (
        mechanism.weighed(adjacency_of(edges.astype(np.int32), size)).toarray() for edges in (pairs, rest)
    )
    moved = (np.rint(whole / GRID) - np.rint(less / GRID)) * GRID
    return float(np.linalg.norm(moved[np.triu_indices(size, 1)]))


@given(
    size=st.integers(2, 40),
    share=st.floats(0.02, 1.0),
    degree=st.one_of(st.none(), st.integers(1, 12)),
    seed=st.integers(0, 2**31),
)
def test_no_neighbour_is_further_away_than_noise_is_made_for(
    size: int, share: float, degree: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pairs = np.argwhere(np.triu(rng.random((size, size)) < share, 1))
    mechanism = GaussianVertices(1.0, degree=degree)
    for vertex in {0, size - 1, int(rng.integers(size))}:
        assert distance(pairs, size, vertex, mechanism) <= mechanism.sensitivity(size)


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_hubs_that_share_their_neighbours_move_each_other(degree: int) -> None:
    """A vertex joined to all others, each of which has D edges already: their weights all change with it."""
    size = 61
    ring = [(i, 1 + (i - 1 + step) % 60) for i in range(1, 61) for step in range(1, degree)]
    pairs = np.array([*((0, i) for i in range(1, 61)), *ring])
    mechanism = GaussianVertices(1.0, degree=degree)
    far = distance(pairs, size, 0, mechanism)
    assert np.sqrt(degree) * 0.7 < far <= mechanism.sensitivity(size)


def test_an_entry_is_weighed_by_both_degrees_and_noised_by_the_sensitivity() -> None:
    star = np.array([(0, i) for i in range(1, 9)])
    adjacency = adjacency_of(star.astype(np.int32), 9)
    mechanism = GaussianVertices(1.0, degree=2)
    assert mechanism.weighed(adjacency)[0, 1] == pytest.approx(np.sqrt(2 / 8))
    drawn = [
        mechanism.noised(adjacency, Keystream(bytes([number, *bytes(31)])))[0, 1] for number in range(256)
    ]
    expected = mechanism.deviation * mechanism.sensitivity(9)
    assert np.std(drawn) == pytest.approx(expected, rel=0.15)
    assert np.mean(drawn) == pytest.approx(np.sqrt(2 / 8), abs=4 * expected / 16)


def test_it_costs_what_was_asked_for() -> None:
    mechanism = GaussianVertices(3.0, failure=1e-6)
    assert 2.99 < epsilon([mechanism.cost], mechanism.delta) <= 3.0
