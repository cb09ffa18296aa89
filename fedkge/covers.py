"""How many honest clients stand behind each row of a sum, and what keeps dropouts from thinning them out.

The cover of a row is its holders less the clients that are assumed to collude. A row that tolerated dropouts
could leave with too few is thin. Every client adds a mask of its own, a veil, to the thin rows of its vector,
and gives the key away only together with its shares, and only if so many clients took part that every thin
row keeps its cover. Else they stay hidden in this round's sum, and their steps are kept for the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto import Identity, SharedTable
from fedkge.crypto.keys import KEY_SIZE, derive_key
from fedkge.crypto.masks import add_masks
from fedkge.crypto.rings import WORD32
from fedkge.errors import RefusedError
from fedkge.experiment import PrivacySettings

__all__ = ["KEY_SIZE", "check_claimed", "thin_rows", "thin_words", "veil", "veil_key"]


def thin_rows(holders: NDArray[np.int32], privacy: PrivacySettings, clients: int) -> NDArray[np.bool_]:
    """(n,) which rows the dropouts that a sum tolerates could leave with too few holders."""
    tolerated = clients - privacy.quorum(clients)
    return holders - tolerated < privacy.kept_holders


def thin_words(
    tables: Mapping[str, SharedTable], privacy: PrivacySettings, clients: int
) -> NDArray[np.int64]:
    """(k,) where the numbers of thin rows stand in the vector of all steps."""
    start, places = 0, [np.zeros(0, dtype=np.int64)]
    for table in tables.values():
        assert table.holders is not None
        rows = np.flatnonzero(thin_rows(table.holders, privacy, clients))
        places.append(start + (rows[:, None] * table.width + np.arange(table.width)).ravel())
        start += table.num_words
    return np.concatenate(places)


def veil_key(identity: Identity, session: bytes) -> bytes:
    """The key of a client's veil in a session, which nobody else can derive."""
    return derive_key(identity.export_secret(), b"fedkge veil" + session)


def veil(
    words: NDArray[np.uint32], places: NDArray[np.int64], signed_keys: Iterable[tuple[bytes, int]]
) -> None:
    """Put veils over words at these places, or take them off: +1 or −1 beside each key."""
    thin = words[places]
    add_masks(thin, WORD32, signed_keys)
    words[places] = thin


def check_claimed(
    name: str,
    table: SharedTable,
    ids: NDArray[np.int32],
    holders: NDArray[np.int32] | None,
    privacy: PrivacySettings,
    clients: int,
) -> None:
    """Refuse to share rows that are said to have too few holders, or are no rows of the table."""
    if holders is None or (np.diff(ids) <= 0).any() or ids.max(initial=-1) >= table.num_rows:
        raise RefusedError(
            f"the server names {name} rows without their holders, out of order, or that are none"
        )
    if holders.min(initial=clients) < privacy.holders or holders.max(initial=0) > clients:
        raise RefusedError(
            f"the server shares {name} rows with {holders.min()} to {holders.max()} holders; this client "
            f"shares those that {privacy.holders} to {clients} hold"
        )
