"""Operators, beyond what the contract of models shows: phases far from where they began."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedkge.client.kernels.operators import Operator, query


@given(st.lists(st.floats(-2000, 2000, width=32), min_size=1, max_size=20))
def test_rotations_by_any_phase_are_cosine_and_sine(phases):
    r = np.array([phases, phases], dtype=np.float32)
    h = np.concatenate([np.ones_like(r), np.zeros_like(r)], axis=1)  # the number 1
    queries, _ = query(Operator.ROTATE, 0.75, h, r, 1)
    angle = r[0].astype(np.float64) * 0.75
    for row, side in zip(queries, (1, -1), strict=True):
        np.testing.assert_allclose(row, [*np.cos(angle), *np.sin(side * angle)], atol=3e-7)
