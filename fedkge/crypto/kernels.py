"""The compiled loops of cryptography: masks, fixed points, and the table that lists a union.

They work on plain arrays of words. Nothing else in this package imports the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from fedkge.compilation import compile_kept

__all__ = [
    "LOW_BITS",
    "P",
    "absorb_elements",
    "absorb_words",
    "encode_words",
    "fill_cells",
    "multiply",
    "peel_cells",
    "siphash",
]

F = TypeVar("F", bound=Callable[..., Any])

LOW_BITS = 30  # of a pseudonym's second word, and of the checksum beside it
P = np.uint64((1 << 61) - 1)  # the modulus of the field
_U0, _U1, _U2 = np.uint64(0), np.uint64(1), np.uint64(2)
_U30, _U31, _U32, _U61 = np.uint64(30), np.uint64(31), np.uint64(32), np.uint64(61)
_MASK30, _MASK31 = np.uint64((1 << 30) - 1), np.uint64((1 << 31) - 1)
_LOW = np.uint64((1 << LOW_BITS) - 1)
_LOW_SHIFT = np.uint64(LOW_BITS)
_TOP = np.uint64(1 << 60)  # x1 and x2 lie below it
_CHECKSUM = np.uint64(255 << 32)
_LENGTH = np.uint64(16 << 56)
_MARK = np.uint64(0xFF)
_IV0, _IV1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_IV2, _IV3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)


def _compiled(function: F) -> F:
    """Compile on first use, keep the machine code on disk, and release the GIL while it runs."""
    return cast(F, compile_kept(function, Path(__file__).parent))


# Sums: masks and fixed points.


@_compiled
def absorb_words(total: Any, streams: Any, flips: Any) -> None:
    """Four rows in one pass, which reads and writes the total once; (w ^ −1) − (−1) is −w."""
    whole = len(flips) - len(flips) % 4
    for row in range(0, whole, 4):
        f0, f1, f2, f3 = flips[row], flips[row + 1], flips[row + 2], flips[row + 3]
        s0, s1, s2, s3 = streams[row], streams[row + 1], streams[row + 2], streams[row + 3]
        for i in range(len(total)):
            first = (s0[i] ^ f0) - f0 + (s1[i] ^ f1) - f1
            total[i] += first + (s2[i] ^ f2) - f2 + (s3[i] ^ f3) - f3
    for row in range(whole, len(flips)):
        flip, stream = flips[row], streams[row]
        for i in range(len(total)):
            total[i] += (stream[i] ^ flip) - flip


@_compiled
def absorb_elements(total: Any, streams: Any, flips: Any) -> None:
    """61 bits of each word, p minus them where negative; six terms up to p fit into 64 bits."""
    for i in range(len(total)):
        value = total[i]
        for row in range(len(flips)):
            value += (streams[row, i] & P) ^ flips[row]
        value = (value & P) + (value >> _U61)
        total[i] = (value & P) + (value >> _U61)


@_compiled
def encode_words(values: Any, clip: float, scale: float, words: Any) -> tuple[int, int]:
    """One pass: clip, scale, round half to even; how many were clipped, and how many are no numbers."""
    clipped = bad = 0
    for i in range(len(values)):
        value = np.float64(values[i])
        size = abs(value)
        clipped += int(size > clip)
        bad += int(not size < np.inf)
        words[i] = np.int32(np.rint(min(max(value, -clip), clip) * scale))
    return clipped, bad


# The counted table: SipHash, arithmetic mod p, filling and peeling.


@_compiled
def _rotate(value: Any, bits: Any) -> Any:
    return (value << bits) | (value >> (np.uint64(64) - bits))


@_compiled
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 = v0 + v1
    v1 = _rotate(v1, np.uint64(13)) ^ v0
    v0 = _rotate(v0, np.uint64(32))
    v2 = v2 + v3
    v3 = _rotate(v3, np.uint64(16)) ^ v2
    v0 = v0 + v3
    v3 = _rotate(v3, np.uint64(21)) ^ v0
    v2 = v2 + v1
    v1 = _rotate(v1, np.uint64(17)) ^ v2
    v2 = _rotate(v2, np.uint64(32))
    return v0, v1, v2, v3


@_compiled
def siphash(key0: Any, key1: Any, word0: Any, word1: Any) -> Any:
    """SipHash-2-4 of a 16-byte message (Aumasson and Bernstein 2012)."""
    v0, v1, v2, v3 = key0 ^ _IV0, key1 ^ _IV1, key0 ^ _IV2, key1 ^ _IV3
    for word in (word0, word1, _LENGTH):
        v3 = v3 ^ word
        for _ in range(2):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 = v0 ^ word
    v2 = v2 ^ _MARK
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@_compiled
def _position(key0: Any, key1: Any, high: Any, low: Any, part: int, width: Any) -> Any:
    """The cell of an item in one part of the table, which has `width` cells."""
    spread = siphash(key0, key1, high, low | (np.uint64(part) << _U32))
    return np.uint64(part) * width + (((spread >> _U32) * width) >> _U32)


@_compiled
def _with_checksum(key0: Any, key1: Any, high: Any, low: Any) -> Any:
    """x2: the low part of the pseudonym and 30 bits of checksum."""
    return (low << _LOW_SHIFT) | (siphash(key0, key1, high, low | _CHECKSUM) & _LOW)


@_compiled
def multiply(left: Any, right: Any) -> Any:
    """left · right mod p for operands up to p, without 128-bit integers."""
    left_high, left_low = left >> _U31, left & _MASK31
    right_high, right_low = right >> _U31, right & _MASK31
    middle = left_low * right_high + left_high * right_low
    value = (
        _U2 * left_high * right_high + (middle >> _U30) + ((middle & _MASK30) << _U31) + left_low * right_low
    )
    value = (value & P) + (value >> _U61)
    return value - P if value >= P else value


@_compiled
def _add(left: Any, right: Any) -> Any:
    value = left + right
    return value - P if value >= P else value


@_compiled
def _invert(value: Any) -> Any:
    """value^(p − 2); zero stays zero."""
    result, power = _U1, value
    exponent = P - _U2
    while exponent > _U0:
        if exponent & _U1:
            result = multiply(result, power)
        power = multiply(power, power)
        exponent = exponent >> _U1
    return result


@_compiled
def fill_cells(cells: Any, key0: Any, key1: Any, positions: int, high: Any, low: Any, blinds: Any) -> None:
    width = np.uint64(cells.shape[1] // positions)
    for i in range(len(high)):
        blind = multiply(blinds[i], _U1)
        first = multiply(blind, high[i])
        second = multiply(blind, _with_checksum(key0, key1, high[i], low[i]))
        for part in range(positions):
            cell = _position(key0, key1, high[i], low[i], part, width)
            cells[0, cell] = _add(cells[0, cell], blind)
            cells[1, cell] = _add(cells[1, cell], first)
            cells[2, cell] = _add(cells[2, cell], second)


@_compiled
def _invert_all(cells: Any, chosen: Any, count: int, inverses: Any) -> None:
    """Inverses of the first row at the chosen cells: one inversion, three products each (Montgomery)."""
    product = _U1
    for i in range(count):
        inverses[i] = product
        value = cells[0, chosen[i]]
        if value != _U0:
            product = multiply(product, value)
    rest = _invert(product)
    for i in range(count - 1, -1, -1):
        value = cells[0, chosen[i]]
        if value != _U0:
            inverses[i] = multiply(rest, inverses[i])
            rest = multiply(rest, value)


@_compiled
def peel_cells(cells: Any, key0: Any, key1: Any, positions: int, high: Any, low: Any) -> int:
    """Take out the items of pure cells, wave by wave; how many were found, −1 if more than cells."""
    size = cells.shape[1]
    width = np.uint64(size // positions)
    wave, following = np.arange(size), np.empty(size, dtype=np.int64)
    queued = np.zeros(size, dtype=np.bool_)
    inverses, seen = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint64)
    count, waiting = 0, size
    while waiting > 0:
        _invert_all(cells, wave, waiting, inverses)
        for i in range(waiting):
            seen[i] = cells[0, wave[i]]
            queued[wave[i]] = False
        later = 0
        for i in range(waiting):
            cell = np.uint64(wave[i])
            weight = cells[0, cell]
            # a cell that another item of this wave was taken from is queued again with its new value
            if weight == _U0 or weight != seen[i]:
                continue
            x1 = multiply(cells[1, cell], inverses[i])
            x2 = multiply(cells[2, cell], inverses[i])
            if x1 >= _TOP or x2 >= _TOP or _with_checksum(key0, key1, x1, x2 >> _LOW_SHIFT) != x2:
                continue
            item = x2 >> _LOW_SHIFT
            if _position(key0, key1, x1, item, int(cell // width), width) != cell:
                continue
            if count == size:
                return -1
            high[count], low[count] = x1, item
            count += 1
            for part in range(positions):
                other = _position(key0, key1, x1, item, part, width)
                cells[0, other] = _add(cells[0, other], P - weight)
                cells[1, other] = _add(cells[1, other], P - multiply(weight, x1))
                cells[2, other] = _add(cells[2, other], P - multiply(weight, x2))
                if not queued[other] and cells[0, other] != _U0:
                    queued[other] = True
                    following[later] = other
                    later += 1
        wave, following, waiting = following, wave, later
    return count
