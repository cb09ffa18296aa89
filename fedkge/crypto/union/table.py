"""A counted table whose sum over clients lists the union and hides how many hold each item.

Item x = (x1, x2) goes, times a fresh r uniform in F_p, into k cells: a += r, b += r·x1, c += r·x2. In the
sum, a cell with one item has x1 = b/a, x2 = c/a and a = Σ r, uniform whatever the number of holders. Such
cells are peeled until the table is empty (an invertible Bloom lookup table: Goodrich and Mitzenmacher 2011).
The lower 30 bits of x2 are a checksum of the rest; positions and checksum come from SipHash-2-4 under the
public salt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.entropy import OPERATING_SYSTEM, Entropy
from fedkge.crypto.kernels import compiled
from fedkge.crypto.rings import FIELD61
from fedkge.crypto.union.pseudonyms import LOW_BITS, Pseudonyms
from fedkge.errors import DropoutError, SettingError

__all__ = ["SALT_SIZE", "TableShape", "TableTooSmallError", "fill_table", "list_table"]

SALT_SIZE = 16
SMALL = 4096  # below this many items four positions peel more surely, above it three are smaller
MIN_CELLS = 64
MAX_CELLS = 1 << 24  # 400 MB: a server cannot make a client fill its memory

_P = np.uint64(FIELD61.modulus)
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


class TableTooSmallError(DropoutError):
    """The table does not peel: it holds more items than expected, or somebody spoilt it."""


@dataclass(frozen=True)
class TableShape:
    """What the server announces: a salt, the number of cells and of positions per item."""

    salt: bytes
    num_cells: int
    num_positions: int

    def __post_init__(self) -> None:
        if len(self.salt) != SALT_SIZE or self.num_positions not in (3, 4):
            raise SettingError(f"a table has a salt of {SALT_SIZE} bytes and 3 or 4 positions per item")
        if not MIN_CELLS <= self.num_cells <= MAX_CELLS or self.num_cells % self.num_positions:
            raise SettingError(
                f"{self.num_cells} cells: a table has {MIN_CELLS} to {MAX_CELLS}, as many for each position"
            )

    @classmethod
    def expecting(cls, num_items: int, salt: bytes) -> TableShape:
        """Large enough for `num_items` with a failure rate that a retry can bear."""
        positions, factor = (4, 1.7) if num_items < SMALL else (3, 1.35)
        cells = max(int(np.ceil(factor * num_items)), MIN_CELLS)
        return cls(salt, -(-cells // positions) * positions, positions)

    @property
    def num_words(self) -> int:
        return 3 * self.num_cells

    @property
    def salt_words(self) -> tuple[Any, Any]:
        first, second = np.frombuffer(self.salt, dtype="<u8")
        return first, second


def fill_table(
    shape: TableShape, items: Pseudonyms, *, _entropy: Entropy = OPERATING_SYSTEM
) -> NDArray[np.uint64]:
    """One client's table, as the vector (a | b | c) of 3 · num_cells field elements."""
    blinds = np.frombuffer(_entropy(8 * len(items)), dtype="<u8") & _P  # (n,) in [0, p]
    table = np.zeros(shape.num_words, dtype=np.uint64)
    key0, key1 = shape.salt_words
    _fill(table.reshape(3, -1), key0, key1, shape.num_positions, items.high, items.low, blinds)
    return table


def list_table(shape: TableShape, total: NDArray[np.uint64]) -> Pseudonyms:
    """The union, in ascending order, from the summed table; the table is left as it was."""
    cells = total.reshape(3, -1).copy()
    key0, key1 = shape.salt_words
    high = np.empty(shape.num_cells, dtype=np.uint64)
    low = np.empty(shape.num_cells, dtype=np.uint64)
    count = _peel(cells, key0, key1, shape.num_positions, high, low)
    if count < 0 or cells.any():
        raise TableTooSmallError(
            f"the table of {shape.num_cells} cells does not peel: the union is larger than expected, "
            "or a client's table is false; try again with twice the size"
        )
    return Pseudonyms(high[:count], low[:count]).distinct()


@compiled
def _rotate(value: Any, bits: Any) -> Any:
    return (value << bits) | (value >> (np.uint64(64) - bits))


@compiled
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


@compiled
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


@compiled
def _position(key0: Any, key1: Any, high: Any, low: Any, place: int, width: Any) -> Any:
    """The cell of an item in part `place` of the table, which has `width` cells."""
    spread = siphash(key0, key1, high, low | (np.uint64(place) << _U32))
    return np.uint64(place) * width + (((spread >> _U32) * width) >> _U32)


@compiled
def _with_checksum(key0: Any, key1: Any, high: Any, low: Any) -> Any:
    """x2: the low part of the pseudonym and 30 bits of checksum."""
    return (low << _LOW_SHIFT) | (siphash(key0, key1, high, low | _CHECKSUM) & _LOW)


@compiled
def multiply(left: Any, right: Any) -> Any:
    """left · right mod p for operands up to p, without 128-bit integers."""
    left_high, left_low = left >> _U31, left & _MASK31
    right_high, right_low = right >> _U31, right & _MASK31
    middle = left_low * right_high + left_high * right_low
    value = (
        _U2 * left_high * right_high + (middle >> _U30) + ((middle & _MASK30) << _U31) + left_low * right_low
    )
    value = (value & _P) + (value >> _U61)
    return value - _P if value >= _P else value


@compiled
def _add(left: Any, right: Any) -> Any:
    value = left + right
    return value - _P if value >= _P else value


@compiled
def _invert(value: Any) -> Any:
    """value^(p − 2); zero stays zero."""
    result, power = _U1, value
    exponent = _P - _U2
    while exponent > _U0:
        if exponent & _U1:
            result = multiply(result, power)
        power = multiply(power, power)
        exponent = exponent >> _U1
    return result


@compiled
def _fill(cells: Any, key0: Any, key1: Any, positions: int, high: Any, low: Any, blinds: Any) -> None:
    width = np.uint64(cells.shape[1] // positions)
    for i in range(len(high)):
        blind = multiply(blinds[i], _U1)
        first = multiply(blind, high[i])
        second = multiply(blind, _with_checksum(key0, key1, high[i], low[i]))
        for place in range(positions):
            cell = _position(key0, key1, high[i], low[i], place, width)
            cells[0, cell] = _add(cells[0, cell], blind)
            cells[1, cell] = _add(cells[1, cell], first)
            cells[2, cell] = _add(cells[2, cell], second)


@compiled
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


@compiled
def _peel(cells: Any, key0: Any, key1: Any, positions: int, high: Any, low: Any) -> int:
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
            for place in range(positions):
                other = _position(key0, key1, x1, item, place, width)
                cells[0, other] = _add(cells[0, other], _P - weight)
                cells[1, other] = _add(cells[1, other], _P - multiply(weight, x1))
                cells[2, other] = _add(cells[2, other], _P - multiply(weight, x2))
                if not queued[other] and cells[0, other] != _U0:
                    queued[other] = True
                    following[later] = other
                    later += 1
        wave, following, waiting = following, wave, later
    return count
