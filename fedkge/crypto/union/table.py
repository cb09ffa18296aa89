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
from fedkge.crypto.kernels import P, fill_cells, peel_cells
from fedkge.crypto.union.pseudonyms import Pseudonyms
from fedkge.errors import DropoutError, SettingError

__all__ = ["MAX_CELLS", "SALT_SIZE", "TableShape", "TableTooSmallError", "fill_table", "list_table"]

SALT_SIZE = 16
SMALL = 4096  # below this many items four positions peel more surely, above it three are smaller
MIN_CELLS = 64
MAX_CELLS = 1 << 22  # 100 MB: a server cannot make a client fill its memory


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
    blinds = np.frombuffer(_entropy(8 * len(items)), dtype="<u8") & P  # (n,) in [0, p]
    table = np.zeros(shape.num_words, dtype=np.uint64)
    key0, key1 = shape.salt_words
    fill_cells(table.reshape(3, -1), key0, key1, shape.num_positions, items.high, items.low, blinds)
    return table


def list_table(shape: TableShape, total: NDArray[np.uint64]) -> Pseudonyms:
    """The union, in ascending order, from the summed table; the table is left as it was."""
    cells = total.reshape(3, -1).copy()
    key0, key1 = shape.salt_words
    high = np.empty(shape.num_cells, dtype=np.uint64)
    low = np.empty(shape.num_cells, dtype=np.uint64)
    count = peel_cells(cells, key0, key1, shape.num_positions, high, low)
    if count < 0 or cells.any():
        raise TableTooSmallError(
            f"the table of {shape.num_cells} cells does not peel: the union is larger than expected, "
            "or a client's table is false; try again with twice the size"
        )
    return Pseudonyms(high[:count], low[:count]).distinct()
