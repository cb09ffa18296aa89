"""Shamir's t-of-n sharing of 32-byte secrets over the prime field of 2^256 + 297 elements (Shamir 1979).

Party i holds f(i + 1). All secrets are dealt at once: their coefficients sit side by side in one long
integer, which Horner's rule multiplies by the small evaluation point without any reduction; each lane is
reduced once at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedkge.crypto.entropy import OPERATING_SYSTEM, Entropy
from fedkge.errors import SettingError, TamperError

__all__ = [
    "PRIME",
    "SECRET_SIZE",
    "SHARE_SIZE",
    "combine_shares",
    "deal_shares",
    "lagrange_weights",
    "share_of",
]

PRIME = (1 << 256) + 297
SECRET_SIZE = 32
SHARE_SIZE = 33
DRAW_SIZE = 48  # 384 bits mod a 257-bit prime: 2^-127 from uniform


def deal_shares(
    secrets: Sequence[bytes], threshold: int, num_parties: int, *, _entropy: Entropy = OPERATING_SYSTEM
) -> list[list[int]]:
    """Shares of every secret, as `shares[party][secret]`; `threshold` rebuild it, fewer tell nothing."""
    if not 1 <= threshold <= num_parties:
        raise SettingError(
            f"threshold {threshold} must lie between 1 and the number of parties, {num_parties}"
        )
    if any(len(secret) != SECRET_SIZE for secret in secrets):
        raise SettingError(f"only secrets of {SECRET_SIZE} bytes can be shared")
    lane = 8 * -(-_lane_bits(threshold, num_parties) // 8)
    rows = _coefficients(secrets, threshold, _entropy)  # (threshold, secrets), constant term last
    packed = [
        int.from_bytes(b"".join(c.to_bytes(lane // 8, "little") for c in row), "little") for row in rows
    ]
    return [_evaluate(packed, point, lane // 8, len(secrets)) for point in range(1, num_parties + 1)]


def _lane_bits(threshold: int, num_parties: int) -> int:
    """An unreduced value of the polynomial is below 2^257 · Σ n^j ≤ 2^257 · t · n^(t − 1)."""
    return 257 + threshold.bit_length() + num_parties.bit_length() * (threshold - 1)


def _coefficients(secrets: Sequence[bytes], threshold: int, entropy: Entropy) -> list[list[int]]:
    drawn = entropy(DRAW_SIZE * len(secrets) * (threshold - 1))
    flat = [
        int.from_bytes(drawn[i : i + DRAW_SIZE], "little") % PRIME for i in range(0, len(drawn), DRAW_SIZE)
    ]
    rows = [flat[i * len(secrets) : (i + 1) * len(secrets)] for i in range(threshold - 1)]
    return [*rows, [int.from_bytes(secret, "little") for secret in secrets]]


def _evaluate(packed: list[int], point: int, lane: int, count: int) -> list[int]:
    value = 0
    for coefficient in packed:
        value = value * point + coefficient
    lanes = value.to_bytes(lane * count, "little")
    return [int.from_bytes(lanes[i * lane : (i + 1) * lane], "little") % PRIME for i in range(count)]


def lagrange_weights(parties: Sequence[int], at: int = 0) -> list[int]:
    """Weights that give f(at) from f at the points of these parties; the same for every secret they hold."""
    points = [party + 1 for party in parties]
    weights = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above = above * (other - at) % PRIME
                below = below * (other - point) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def share_of(party: int, shares: Mapping[int, int]) -> int:
    """The share that a party has if those of these others are true."""
    weights = lagrange_weights(list(shares), party + 1)
    return sum(weight * share for weight, share in zip(weights, shares.values(), strict=True)) % PRIME


def combine_shares(shares: Mapping[int, int], weights: Sequence[int] | None = None) -> bytes:
    """The secret that the shares of these parties lie on; shares off any 32-byte secret raise."""
    chosen = lagrange_weights(list(shares)) if weights is None else weights
    value = sum(weight * share for weight, share in zip(chosen, shares.values(), strict=True)) % PRIME
    if value >> (8 * SECRET_SIZE):
        raise TamperError("the shares do not meet in a 32-byte secret: at least one is wrong")
    return value.to_bytes(SECRET_SIZE, "little")
