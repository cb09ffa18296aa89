"""Masks cancel exactly, cover every word, and change everywhere with any bit of their seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.crypto.masks import CHUNK_BYTES, add_masks
from fedkge.crypto.rings import FIELD61, WORD32, Ring
from fedkge.errors import MessageError
from tests.crypto.parties import RINGS

BORDERS = [0, 1, 3, CHUNK_BYTES // 8 - 1, CHUNK_BYTES // 8, CHUNK_BYTES // 4, CHUNK_BYTES // 4 + 1]


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: type(ring).__name__)
@pytest.mark.parametrize("length", BORDERS)
def test_adding_and_subtracting_a_mask_gives_the_vector_back(ring: Ring, length: int) -> None:
    before = np.random.default_rng(length).integers(0, ring.modulus, length, dtype=ring.dtype)
    vector = before.copy()
    add_masks(vector, ring, [(b"a" * 32, 1), (b"b" * 32, -1)])
    assert length < 3 or not np.array_equal(vector, before)
    add_masks(vector, ring, [(b"b" * 32, 1)])
    add_masks(vector, ring, [(b"a" * 32, -1)])
    assert np.array_equal(vector, before)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.tuples(st.binary(min_size=32, max_size=32), st.sampled_from([1, -1])), max_size=5))
def test_field_masks_are_whole_numbers_mod_p(keys: list[tuple[bytes, int]]) -> None:
    vector = np.full(7, FIELD61.modulus - 1, dtype="<u8")
    expected = [FIELD61.modulus - 1] * 7
    for key, sign in keys:
        words = np.zeros(14, dtype="<u4")
        add_masks(words, WORD32, [(key, 1)])
        elements = [int(word) & FIELD61.modulus for word in words.view("<u8")]
        expected = [(e + sign * w) % FIELD61.modulus for e, w in zip(expected, elements, strict=True)]
    add_masks(vector, FIELD61, keys)
    assert vector.tolist() == expected


def test_what_is_shown_is_always_reduced() -> None:
    vector = np.array([FIELD61.modulus - 1, 5, 0], dtype="<u8")
    FIELD61.add(vector, np.array([1, FIELD61.modulus - 5, 0], dtype="<u8"))
    FIELD61.settle(vector)
    assert vector.tolist() == [0, 0, 0]
    with pytest.raises(MessageError, match="unreduced"):
        FIELD61.check(np.array([FIELD61.modulus], dtype="<u8"), "vector")


def test_any_flipped_seed_bit_changes_nearly_all_words() -> None:
    seed = bytes(range(32))
    reference = np.zeros(4096, dtype="<u4")
    add_masks(reference, WORD32, [(seed, 1)])
    for bit in range(256):
        flipped = bytearray(seed)
        flipped[bit // 8] ^= 1 << bit % 8
        words = np.zeros(4096, dtype="<u4")
        add_masks(words, WORD32, [(bytes(flipped), 1)])
        assert np.mean(words != reference) >= 0.999
