"""Charts: round ticks, places that follow values, words for those who cannot see them."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as Tree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedkge.simulations.report.charts.bars import Bar, BarChart
from fedkge.simulations.report.charts.drawing import WIDTH
from fedkge.simulations.report.charts.lines import LineChart, Series
from fedkge.simulations.report.charts.ticks import decades, nice_ticks

SIZES = st.floats(-1e9, 1e9)
POINTS = st.lists(st.tuples(st.integers(0, 500), st.floats(-1e6, 1e6)), min_size=1, max_size=300)


@example(0.0, 5e-324, False)
@example(1e20, 1e20, True)
@given(SIZES, SIZES, st.booleans())
def test_ticks_are_few_round_even_and_enclose(one: float, other: float, whole: bool) -> None:
    low, high = sorted((one, other))
    if high - low < 1e-6 * max(abs(low), abs(high)):  # narrower than the digits of a tick
        high = low
    ticks = nice_ticks(low, high, whole=whole)
    assert 2 <= len(ticks) <= 6
    slack = 1e-9 * max(map(abs, ticks))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    gaps = [after - before for before, after in pairwise(ticks)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-3)
    if whole and high > low:
        assert all(tick == int(tick) for tick in ticks)
    if high > low:
        assert re.match(r"(1|2|2\.5|5)0*e", f"{gaps[0]:.1e}".replace(".0", "")) or whole


def test_ticks_people_would_choose() -> None:
    assert nice_ticks(0.31, 0.47) == [0.3, 0.35, 0.4, 0.45, 0.5]
    assert nice_ticks(0, 30, whole=True) == [0, 10, 20, 30]
    assert nice_ticks(1, 2, whole=True) == [1, 2]
    assert nice_ticks(0, 0) == nice_ticks(0, 1)
    assert decades(8e3, 2.3e7) == [1e3, 1e4, 1e5, 1e6, 1e7, 1e8]


@given(POINTS)
def test_lines_stay_inside_and_follow_their_values(points: list[tuple[int, float]]) -> None:
    line = sorted(dict(points).items())
    svg = Tree.fromstring(LineChart("t", "round", "MRR", [Series("a", line, 0)]).svg())
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    drawn = svg.find("polyline")
    places = (
        [] if drawn is None else [tuple(map(float, p.split(","))) for p in drawn.attrib["points"].split()]
    )
    dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in svg.iter("circle")]
    assert places or dots
    for x, y in [*places, *dots]:
        assert 0 <= x <= width
        assert 0 <= y <= height
    if len(line) == len(places):  # higher values are higher up
        by_value = sorted(range(len(line)), key=lambda number: line[number][1])
        heights = [places[number][1] for number in by_value]
        assert all(after <= before + 0.11 for before, after in pairwise(heights))


def test_a_line_of_many_points_keeps_its_ends() -> None:
    drawn = Series("long", [(float(x), float(x)) for x in range(1001)], 0).drawable
    assert len(drawn) <= 202
    assert (drawn[0], drawn[-1]) == ((0.0, 0.0), (1000.0, 1000.0))


def test_infinite_and_missing_values_are_left_out() -> None:
    chart = LineChart("ε", "round", "ε", [Series("a", [(1, float("inf")), (2, float("nan"))], 0)])
    assert chart.is_empty
    assert Series("a", [(1, float("inf")), (2, 3.0)], 0).drawable == [(2, 3.0)]


def test_bars_are_as_long_as_their_values() -> None:
    bars = [Bar("a", 0.5, 0.4, 0.6, 0.25), Bar("b", 1.0, detail="who")]
    svg = Tree.fromstring(BarChart("t", bars, end=1.0).svg())
    lengths = [float(r.attrib["width"]) for r in svg.iter("rect") if r.attrib["class"].startswith("bar")]
    assert lengths == [WIDTH / 2, WIDTH]
    whisker, guess = svg.findall("line")
    assert (float(whisker.attrib["x1"]), float(whisker.attrib["x2"])) == (WIDTH * 0.4, WIDTH * 0.6)
    assert float(guess.attrib["x1"]) == WIDTH / 4
    assert svg.findtext("desc") == "a: 0.500 (0.400–0.600), guessing 0.250; b, who: 1.000"


@pytest.mark.parametrize("label", ["<script>alert(1)</script>", 'a" onload="alert(1)', "a & b", "x" * 200])
def test_labels_are_text_whatever_they_say(label: str) -> None:
    line = LineChart(label, "round", label, [Series(label, [(1, 1), (2, 2)], 0)]).svg()
    bar = BarChart(label, [Bar(label, 1.0, detail=label)]).svg()
    for svg in (line, bar):
        tree = Tree.fromstring(svg)
        assert tree.findtext("title") == tree.attrib["aria-label"] == label
        assert "<script" not in svg
        assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on")]
