"""Intervals over seeds."""

from __future__ import annotations

from math import inf

import pytest

from fedkge.simulations.runs.rows import interval_over_seeds


def test_an_interval_over_seeds_is_student_s() -> None:
    """Two values one apart: t(1, .975) = 12.706, times √½ / √2."""
    assert interval_over_seeds([1.0, 2.0]) == pytest.approx((1.5 - 6.353, 1.5 + 6.353), abs=1e-3)


@pytest.mark.parametrize("value", [0.25, inf])
def test_what_every_seed_has_alike_has_no_width(value: float) -> None:
    assert interval_over_seeds([value] * 3) == (value, value)
