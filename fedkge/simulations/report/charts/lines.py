"""Line charts: something over rounds, or over bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log10

from markupsafe import Markup

from fedkge.simulations.report.charts.drawing import WIDTH, Drawing
from fedkge.simulations.report.charts.ticks import decades, nice_ticks

__all__ = ["NUM_COLOURS", "LineChart", "Series"]

NUM_COLOURS = 6  # the style has so many
FAINT = "faint"

_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 250.0, 54.0, 14.0, 26.0, 38.0
_MOST_DOTS = 40
_MOST_POINTS = 200


@dataclass(frozen=True)
class Series:
    """One line; without a colour it stays in the background."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: int | None = None

    @property
    def kind(self) -> str:
        return FAINT if self.colour is None else f"c{self.colour % NUM_COLOURS}"

    @property
    def drawable(self) -> list[tuple[float, float]]:
        """Finite points, few enough to draw; the first and the last are always among them."""
        points = [(x, y) for x, y in self.points if isfinite(x) and isfinite(y)]
        step = -(-len(points) // _MOST_POINTS) or 1
        return points if step == 1 else [*points[:-1:step], points[-1]]


@dataclass(frozen=True)
class _Axis:
    """From values to places; log where the values span decades."""

    ticks: Sequence[float]
    start: float
    end: float
    log: bool = False

    def position(self, value: float) -> float:
        low, high, here = (log10(x) if self.log else x for x in (self.ticks[0], self.ticks[-1], value))
        return self.start + (here - low) / (high - low) * (self.end - self.start)


@dataclass(frozen=True)
class LineChart:
    """Lines over one x axis; a bound is a level that lines may reach, such as a target."""

    title: str
    x_name: str
    y_name: str
    series: Sequence[Series]
    bound: tuple[str, float] | None = None
    show_x: Callable[[float], str] = "{:g}".format
    show_y: Callable[[float], str] = "{:g}".format
    x_log: bool = False
    y_from_zero: bool = False

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Colour and label; lines in the background share one entry."""
        named = [(series.kind, series.label) for series in self.series if series.colour is not None]
        faint = sum(series.colour is None for series in self.series)
        return [*named, *([(FAINT, f"{faint} single clients")] if faint else [])]

    @property
    def is_empty(self) -> bool:
        return not any(self._lines)

    def svg(self) -> Markup:
        drawing = Drawing(self.title, self._described(), _HEIGHT)
        across, upward = self._axes()
        self._draw_axes(drawing, across, upward)
        if self.bound is not None:
            level = upward.position(self.bound[1])
            drawing.line((_LEFT, level), (WIDTH - _RIGHT, level), "bound")
            drawing.words((WIDTH - _RIGHT, level - 4), self.bound[0], "small end")
        coloured_last = sorted(self.series, key=lambda line: line.colour is not None)  # above the faint
        for series in coloured_last:
            self._draw(drawing, series, across, upward)
        return drawing.render()

    @property
    def _lines(self) -> list[list[tuple[float, float]]]:
        """The points of every line; a log axis has no place for zero."""
        return [
            [point for point in series.drawable if not self.x_log or point[0] > 0] for series in self.series
        ]

    def _axes(self) -> tuple[_Axis, _Axis]:
        points = [point for line in self._lines for point in line]
        xs = [x for x, _ in points]
        ys = [y for _, y in points] + ([self.bound[1]] if self.bound else [])
        low = min(0.0, *ys, 0.0) if self.y_from_zero else min(ys)
        rungs = decades(min(xs), max(xs)) if self.x_log else nice_ticks(min(xs), max(xs), whole=True)
        across = _Axis(rungs, _LEFT, WIDTH - _RIGHT, self.x_log)
        return across, _Axis(nice_ticks(low, max(ys)), _HEIGHT - _BOTTOM, _TOP)

    def _draw_axes(self, drawing: Drawing, across: _Axis, upward: _Axis) -> None:
        drawing.words((0, 12), self.y_name, "small strong")
        for tick in upward.ticks:
            level = upward.position(tick)
            drawing.line((_LEFT, level), (WIDTH - _RIGHT, level), "grid")
            drawing.words((_LEFT - 6, level + 4), self.show_y(tick), "small end")
        for tick in across.ticks:
            drawing.words((across.position(tick), _HEIGHT - _BOTTOM + 15), self.show_x(tick), "small middle")
        scale = f"{self.x_name}, log scale" if self.x_log else self.x_name
        drawing.words((WIDTH - _RIGHT, _HEIGHT - 4), scale, "small strong end")

    def _draw(self, drawing: Drawing, series: Series, across: _Axis, upward: _Axis) -> None:
        line = [point for point in series.drawable if not self.x_log or point[0] > 0]
        positions = [(across.position(x), upward.position(y)) for x, y in line]
        if len(positions) > 1:
            drawing.path(positions, f"line {series.kind}", series.label)
        if series.colour is None or len(positions) > _MOST_DOTS:
            return
        for position, (x, y) in zip(positions, line, strict=True):
            hint = f"{series.label}: {self.show_y(y)} at {self.x_name} {self.show_x(x)}"
            drawing.dot(position, f"dot {series.kind}", hint)

    def _described(self) -> str:
        """The ends of every coloured line in words."""
        parts = []
        for series in self.series:
            if series.colour is not None and series.drawable:
                (first, begin), (last, end) = series.drawable[0], series.drawable[-1]
                parts.append(
                    f"{series.label}: {self.show_y(begin)} at {self.x_name} {self.show_x(first)}, "
                    f"{self.show_y(end)} at {self.x_name} {self.show_x(last)}"
                )
        return "; ".join(parts)
