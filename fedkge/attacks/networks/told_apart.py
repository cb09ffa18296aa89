"""Statistics of the game: likelihood ratios where noise can be solved for, entries, products of two rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.networks.edge_game import Statistic
from fedkge.attacks.networks.neighbours import Neighbours
from fedkge.client.networks.blas_threads import same_bits
from fedkge.client.networks.factors import DPNE_RIDGE, given_contexts
from fedkge.client.networks.walk_matrix import walk_matrix
from fedkge.client.privacy.networks.dpne import SENSITIVITY, minimiser, noise_rows, unit_contexts
from fedkge.client.privacy.networks.edge_mechanism import EdgeMechanism, laplace
from fedkge.client.privacy.normals import Keystream

__all__ = ["absolute_term", "linear_term", "noisy_walks", "released_entry", "released_rows"]

Rows = NDArray[np.float64]


def absolute_term(pair: Neighbours, dim: int, epsilon: float, window: int = 2) -> Statistic:
    """DPNE with the absolute term, H the same for both networks as the proof has it.

    What is released is compared with what either network gives without noise.
    """
    walks = {joined: walk_matrix(_network(pair, joined), window) for joined in (True, False)}
    contexts = unit_contexts(walks[False], dim).contexts
    plain = {joined: given_contexts(walks[joined], contexts, DPNE_RIDGE.vertices) for joined in walks}
    apart = plain[True] - plain[False]
    middle = (plain[True] + plain[False]) / 2

    def statistic(joined: bool, stream: Keystream) -> float:
        noise = noise_rows(stream, len(contexts), dim, epsilon)
        released = minimiser(walks[joined], contexts, noise, "absolute")
        return float(((released - middle) * apart).sum() / np.square(apart).sum())

    return statistic


def linear_term(
    pair: Neighbours, dim: int, epsilon: float, hidden: bool = False, window: int = 2
) -> Statistic:
    """DPNE with the linear term: the logarithm of the likelihood ratio of the released rows.

    Args:
        pair: the two networks, which the adversary of the definition knows.
        dim: the width of a row.
        epsilon: as claimed.
        hidden: whether H is that of the network which released, as in the algorithm, and not one for both.
        window: t.
    """
    walks = {joined: walk_matrix(_network(pair, joined), window) for joined in (True, False)}
    own = {joined: unit_contexts(walks[joined], dim).contexts for joined in walks}
    contexts = own if hidden else dict.fromkeys(walks, own[False])
    grams = {joined: _gram(contexts[joined]) for joined in walks}
    targets = {joined: walks[joined] @ contexts[joined] for joined in walks}
    volumes = {joined: len(own[False]) * float(np.linalg.slogdet(grams[joined])[1]) for joined in walks}

    def likelihood(released: Rows, joined: bool) -> float:
        with same_bits():
            noise = 2 * (targets[joined] - released @ grams[joined])
        lengths = float(np.linalg.norm(noise, axis=1).sum())
        return volumes[joined] - epsilon * lengths / (2 * SENSITIVITY)

    def statistic(joined: bool, stream: Keystream) -> float:
        noise = noise_rows(stream, len(own[False]), dim, epsilon)
        released = minimiser(walks[joined], contexts[joined], noise, "linear")
        return likelihood(released, True) - likelihood(released, False)

    return statistic


def noisy_walks(pair: Neighbours, epsilon: float, window: int = 2) -> Statistic:
    """dpM: the logarithm of the likelihood ratio of the noised entries of M that the edge moves."""
    walks = {joined: walk_matrix(_network(pair, joined), window).toarray() for joined in (True, False)}
    moved = walks[True] != walks[False]
    entries = {joined: values[moved] for joined, values in walks.items()}
    scale = SENSITIVITY / epsilon

    def statistic(joined: bool, stream: Keystream) -> float:
        told = entries[joined] + laplace(stream, len(entries[joined]), scale)
        ratio = np.abs(told - entries[False]) - np.abs(told - entries[True])
        return float(ratio.sum() / scale)

    return statistic


def released_entry(pair: Neighbours, drawn: Callable[[Any, Keystream], Any]) -> Statistic:
    """The number that was drawn for the two vertices, which all else is made of; others tell nothing of it.

    Args:
        pair: the two networks.
        drawn: what a mechanism makes of an adjacency (n, n) before anything is embedded, (n, n).
    """

    def statistic(joined: bool, stream: Keystream) -> float:
        return float(drawn(_network(pair, joined), stream)[pair.edge])

    return statistic


def released_rows(pair: Neighbours, mechanism: EdgeMechanism, dim: int) -> Statistic:
    """Any mechanism: the product of the two rows, as a link predictor sees it."""
    first, second = pair.edge

    def statistic(joined: bool, stream: Keystream) -> float:
        rows = mechanism.rows(_network(pair, joined), dim, stream)
        return float(rows[first] @ rows[second])

    return statistic


def _network(pair: Neighbours, joined: bool) -> Any:
    return pair.joined if joined else pair.without


def _gram(contexts: Rows) -> Rows:
    with same_bits():
        gram: Rows = contexts.T @ contexts + DPNE_RIDGE.vertices * np.eye(contexts.shape[1])
    return gram
