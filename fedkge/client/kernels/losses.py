"""What a triple and its negatives cost, and the slope of that cost at every score.

Column 0 of the scores is the true triple, the rest are its negatives. Distances enter as γ − distance,
so that every loss sees "higher is truer" around zero. A candidate of −inf is absent.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.comparisons import Comparison
from fedkge.client.kernels.compiled import compiled
from fedkge.errors import UnknownNameError

__all__ = ["LOSSES", "Loss", "answer_slopes", "find_loss", "loss_per_triple", "slopes"]


class Loss(IntEnum):
    """The losses that kernels and torch both know."""

    SELF_ADVERSARIAL = 0
    MARGIN_RANKING = 1
    LOGISTIC = 2
    BINARY_CROSS_ENTROPY = 3


LOSSES = {
    "self-adversarial": Loss.SELF_ADVERSARIAL,
    "margin-ranking": Loss.MARGIN_RANKING,
    "logistic": Loss.LOGISTIC,
    "binary-cross-entropy": Loss.BINARY_CROSS_ENTROPY,
}

_SELF_ADVERSARIAL, _MARGIN_RANKING, _LOGISTIC, _BINARY_CROSS_ENTROPY = (int(loss) for loss in Loss)
_DOT, _L2 = int(Comparison.DOT), int(Comparison.L2)
_NEAREST = np.float32(1e-15)  # below, the squares of a distance leave float32, and dividing by it is no slope
_APART = 256  # floats; more than a loop takes at once


def find_loss(name: str) -> Loss:
    """The loss of that name, or an error with the nearest one."""
    if name not in LOSSES:
        raise UnknownNameError("loss", name, LOSSES)
    return LOSSES[name]


def loss_per_triple(loss: Loss, scores: Tensor, margin: float, temperature: float) -> Tensor:
    """The loss in torch: scores (b, 1 + n) to losses (b,)."""
    positive, negative = scores[:, 0], scores[:, 1:]
    present = torch.isfinite(negative)
    count = present.sum(1).to(scores.dtype)
    share = 1 / count.clamp(min=1)
    if loss is Loss.MARGIN_RANKING:
        return relu(margin + negative - positive[:, None]).sum(1) * share
    if loss is Loss.SELF_ADVERSARIAL:
        # The weights say which negatives are hard; they are not themselves trained.
        hardness = (temperature * negative.detach()).masked_fill(~present, -torch.inf)
        weights = torch.softmax(hardness, dim=1).nan_to_num()
        return softplus(-positive) + (weights * softplus(negative)).sum(1)
    if loss is Loss.LOGISTIC:
        return (softplus(-positive) + softplus(negative).sum(1) * share) / 2
    return (softplus(-positive) + softplus(negative).sum(1)) / (1 + count)


@compiled
def slopes(
    kind: int,
    loss: int,
    margin: np.float32,
    temperature: np.float32,
    compared: Floats,
    scale: Floats,
    out: Floats,
    losses: Floats,
) -> None:
    """From comparisons (b, 1 + n) to losses (b,) and ∂loss / ∂comparison (b, 1 + n)."""
    sign = np.float32(1) if kind == _DOT else np.float32(-1)
    shift = np.float32(0) if kind == _DOT else margin
    # One buffer, so that the two are always as far apart: a compiled loop that reads one, writes the other
    # and adds up looks whether they are near, and adds in another order where they are.
    buffer = np.empty((2, compared.shape[1] + _APART), dtype=np.float32)
    scores, weights = buffer[0, : compared.shape[1]], buffer[1, : compared.shape[1]]
    for b in range(compared.shape[0]):
        slope = sign * scale[b]
        for j in range(scores.shape[0]):
            # An absent candidate is NaN-free infinity of either sign: it must come out as -inf.
            absent = abs(compared[b, j]) == np.inf
            scores[j] = -np.inf if absent else shift + slope * compared[b, j]
        losses[b] = _loss_and_slopes(loss, scores, margin, temperature, weights)
        for j in range(scores.shape[0]):
            out[b, j] = weights[j] * slope
        if kind == _L2:  # ∂|x| = x / |x|: the gradient kernels multiply by x
            for j in range(scores.shape[0]):
                near = not compared[b, j] > _NEAREST
                out[b, j] = np.float32(0) if near else out[b, j] / compared[b, j]


@compiled
def answer_slopes(
    true: np.float32, spread: np.float32, share: np.float32, columns: Ids, owners: Ids, scores: Floats
) -> float:
    """Binary cross-entropy of all scores (b, n) in place of them its slopes; returned is its sum.

    Targets are `spread`, and `true` more where scores[owners[i], columns[i]] is an answer; all is times
    `share`. As no dense target is made: Σ softplus(z) − true · Σ z over answers − spread · Σ z.
    """
    total = 0.0
    for i in range(columns.shape[0]):
        total -= float(true * scores[owners[i], columns[i]])
    for b in range(scores.shape[0]):
        z = scores[b]
        cost = np.float32(0)
        for j in range(z.shape[0]):
            x = z[j]
            small = _exp(-abs(x))
            cost += max(x, np.float32(0)) + _log1p(small) - spread * x
            z[j] = share * ((np.float32(1) if x >= 0 else small) / (np.float32(1) + small) - spread)
        total += float(cost)
    for i in range(columns.shape[0]):
        scores[owners[i], columns[i]] -= share * true
    return total * float(share)


@compiled
def _loss_and_slopes(
    loss: int, s: Floats, margin: np.float32, temperature: np.float32, slopes: Floats
) -> np.float32:
    """The loss of one triple with scores s (1 + n,), and its slope at each of them.

    A triple with a score that is no number asks for nothing.
    """
    n = s.shape[0] - 1
    count = 0
    broken = int(not s[0] < np.inf)
    for j in range(1, n + 1):
        count += s[j] > -np.inf
        broken += not s[j] < np.inf
    if broken:
        slopes[:] = 0  # else they are whatever stood in that memory before
        return np.float32(np.nan)
    share = np.float32(1) / np.float32(max(count, 1))
    if loss == _MARGIN_RANKING:
        return _margin_ranking(s, margin, share, slopes)
    if loss == _SELF_ADVERSARIAL:
        own = np.float32(1)
        _softmax(s, temperature, slopes)
    else:
        own = np.float32(0.5) if loss == _LOGISTIC else np.float32(1) / np.float32(count + 1)
        slopes[1:] = own * share if loss == _LOGISTIC else own
    total = np.float32(0)
    for j in range(1, n + 1):  # each weight becomes weight · σ(s)
        small = _exp(-abs(s[j]))
        total += slopes[j] * (max(s[j], np.float32(0)) + _log1p(small))
        slopes[j] *= (np.float32(1) if s[j] >= 0 else small) / (np.float32(1) + small)
    small = _exp(-abs(s[0]))
    total += own * (max(-s[0], np.float32(0)) + _log1p(small))
    slopes[0] = -own * (small if s[0] >= 0 else np.float32(1)) / (np.float32(1) + small)
    if count < n:
        _silence_absent(s, slopes)
    return np.float32(total)


@compiled
def _margin_ranking(s: Floats, margin: np.float32, share: np.float32, slopes: Floats) -> np.float32:
    total = np.float32(0)
    active = np.float32(0)
    for j in range(1, s.shape[0]):
        excess = margin + s[j] - s[0]
        slopes[j] = share if excess > 0 else np.float32(0)
        total += excess if excess > 0 else np.float32(0)
        active += slopes[j]
    slopes[0] = -active
    return total * share


@compiled
def _softmax(s: Floats, temperature: np.float32, weights: Floats) -> None:
    """weights[1:] = softmax(temperature · s[1:])."""
    top = np.float32(-np.inf)
    for j in range(1, s.shape[0]):
        top = max(top, s[j])
    total = np.float32(0)
    for j in range(1, s.shape[0]):
        weights[j] = _exp(temperature * (s[j] - top)) if s[j] > -np.inf else np.float32(0)
        total += weights[j]
    share = np.float32(1) / max(total, np.float32(1e-30))
    for j in range(1, s.shape[0]):
        weights[j] *= share


@compiled
def _silence_absent(s: Floats, slopes: Floats) -> None:
    for j in range(1, s.shape[0]):
        if s[j] == -np.inf:
            slopes[j] = 0


@compiled
def _exp(x: np.float32) -> np.float32:
    """e^x for x ≤ 0 to 1e-7, in vector registers, which the library's is not (Cody and Waite, 1980)."""
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    f = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * f + np.float32(1.3981999507e-3)
    p = p * f + np.float32(8.3334519073e-3)
    p = p * f + np.float32(4.1665795894e-2)
    p = p * f + np.float32(1.6666665459e-1)
    p = p * f + np.float32(5.0000001201e-1)
    p = p * f * f + f + np.float32(1)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))  # the bits of 2^n
    return np.float32(p * power.view(np.float32))


@compiled
def _log1p(u: np.float32) -> np.float32:
    """log(1 + u) for 0 ≤ u ≤ 1 as 2·artanh(u / (2 + u)), to 2e-7."""
    z = u / (np.float32(2) + u)
    y = z * z
    p = np.float32(1 / 11)
    p = p * y + np.float32(1 / 9)
    p = p * y + np.float32(1 / 7)
    p = p * y + np.float32(1 / 5)
    p = p * y + np.float32(1 / 3)
    return np.float32(2) * (z + z * y * p)
