"""Worlds with equal sums look alike to the server; where nothing is masked the same test tells them apart."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, chisquare

from fedkge.crypto import FIELD61, WORD32, FixedPoint
from fedkge.crypto.rings import Ring
from fedkge.crypto.union.pseudonyms import Pseudonyms
from fedkge.crypto.union.table import TableShape, fill_table
from fedkge.crypto.wire import HEADER_SIZE
from tests.crypto.parties import R2, R3, Round, make_session, stream

LENGTH = 400
REPEATS = 25


def world(who: int, ring: Ring) -> list[NDArray[np.uint32]]:
    """One client holds small whole numbers and the others hold nothing; the sum does not depend on `who`."""
    vectors = [np.zeros(LENGTH, dtype=ring.dtype) for _ in range(5)]
    vectors[who] = np.arange(LENGTH, dtype=ring.dtype)
    return vectors


def transcript_bytes(who: int, ring: Ring) -> dict[int, NDArray[np.int64]]:
    """How often each byte occurs in each kind of message, one of five clients dropping out before the end."""
    counts: dict[int, NDArray[np.int64]] = {}
    for repeat in range(REPEATS):
        seed = (who, repeat, ring.code)
        round_ = Round(make_session(5, LENGTH, ring=ring), world(who, ring), [R3, R3, R3, R3, R2], seed=seed)
        assert round_.run().tolist() == list(range(LENGTH))
        for message in round_.transcript:
            body = np.frombuffer(message[HEADER_SIZE:], dtype=np.uint8)
            counts[message[5]] = counts.get(message[5], 0) + np.bincount(body, minlength=256)
    return counts


def p_value(left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    both = np.array([left, right])
    return float(chi2_contingency(both[:, both.sum(axis=0) > 0]).pvalue)


@pytest.mark.parametrize("ring", [WORD32, FIELD61], ids=["words", "field"])
def test_transcripts_of_two_worlds_with_equal_sums_are_alike(ring: Ring) -> None:
    here, there = transcript_bytes(0, ring), transcript_bytes(3, ring)
    assert set(here) == set(there)
    for kind in here:
        assert p_value(here[kind], there[kind]) > 1e-3


def test_each_client_s_masked_vector_is_uniform() -> None:
    for client in range(5):
        counts = np.zeros(256, dtype=np.int64)
        for repeat in range(REPEATS):
            round_ = Round(make_session(5, LENGTH), world(0, WORD32), seed=(client, repeat))
            deliveries = round_.deliveries()
            message = round_.clients[client].mask(deliveries[client], round_.vectors[client])
            counts += np.bincount(np.frombuffer(message[HEADER_SIZE + 104 :], dtype=np.uint8), minlength=256)
        assert chisquare(counts).pvalue > 1e-3


def test_without_masks_the_same_test_tells_the_worlds_apart() -> None:
    counts = []
    for who in (0, 3):
        body = np.frombuffer(world(who, WORD32)[0].tobytes(), dtype=np.uint8)
        counts.append(np.bincount(body, minlength=256))
    assert p_value(counts[0], counts[1]) < 1e-12


def cell_weights(holders: int, blinded: bool) -> NDArray[np.int64]:
    """The leading bits of a = Σ r over all cells with an item that so many clients hold."""
    items = Pseudonyms.of_digests(stream("items")(32 * 2000))
    shape = TableShape.expecting(2000, stream("salt")(16))
    total = np.zeros(shape.num_words, dtype=np.uint64)
    for holder in range(holders):
        entropy = (
            stream("blinds", holders, holder) if blinded else (lambda size: b"\1\0\0\0\0\0\0\0" * (size // 8))
        )
        FIELD61.add(total, fill_table(shape, items, _entropy=entropy))
    FIELD61.settle(total)
    weights = total[: shape.num_cells]
    leading = (weights[weights > 0] >> np.uint64(57)).astype(np.int64)  # 16 classes
    return np.bincount(leading, minlength=16)


def test_the_summed_table_hides_how_many_hold_an_item() -> None:
    for holders in (1, 2, 5):
        assert chisquare(cell_weights(holders, blinded=True)).pvalue > 1e-3
    assert chisquare(cell_weights(5, blinded=False)).pvalue < 1e-12


def windows(rows: NDArray[np.float32]) -> set[bytes]:
    """Every pair of neighbouring values, as float32, as float64 and as fixed-point words."""
    words = FixedPoint(8, 5).encode(rows).words
    forms = (rows.astype("<f4"), rows.astype("<f8"), words, words.byteswap())
    return {form[i : i + 2].tobytes() for form in forms for i in range(len(rows) - 1)}


def test_no_raw_row_of_any_client_is_on_the_wire() -> None:
    rng = np.random.default_rng(9)
    rows = [rng.normal(0, 1, 64).astype(np.float32) for _ in range(5)]
    words = [FixedPoint(8, 5).encode(row).words for row in rows]
    round_ = Round(make_session(5, 64), words, [R3, R3, R3, R3, R2])
    round_.run()
    wire = b"".join(round_.transcript)
    unmasked = b"".join(word.tobytes() for word in words)
    for row in rows:
        assert any(window in unmasked for window in windows(row))  # the search finds what is there
        assert not any(window in wire for window in windows(row))
