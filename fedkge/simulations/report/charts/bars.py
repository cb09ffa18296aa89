"""Bar charts: one value for each of a few, with its interval and what guessing reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from markupsafe import Markup

from fedkge.simulations.report.charts.drawing import WIDTH, Drawing
from fedkge.simulations.report.charts.lines import NUM_COLOURS
from fedkge.simulations.report.charts.ticks import nice_ticks

__all__ = ["Bar", "BarChart"]

_ROW, _DETAIL, _THICK = 36.0, 15.0, 11.0
_ROOM = 55  # characters that fit a row


@dataclass(frozen=True)
class Bar:
    """A value from zero on; the label stands above it, so that it may be long."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    colour: int = 0
    detail: str = ""  # further lines of the label

    @property
    def details(self) -> list[str]:
        return wrap(self.detail, _ROOM)

    @property
    def height(self) -> float:
        return _ROW + _DETAIL * len(self.details)


@dataclass(frozen=True)
class BarChart:
    """Bars of one scale, from zero to the given end or to what the values need."""

    title: str
    bars: Sequence[Bar]
    show: Callable[[float], str] = "{:.3f}".format
    end: float | None = None

    def svg(self) -> Markup:
        height = sum(bar.height for bar in self.bars)
        drawing = Drawing(self.title, "; ".join(map(self._described, self.bars)), height)
        top = 0.0
        for bar in self.bars:
            self._draw(drawing, bar, top)
            top += bar.height
        return drawing.render()

    @property
    def _end(self) -> float:
        reached = [x for bar in self.bars for x in (bar.value, bar.high, bar.baseline) if x is not None]
        return self.end or nice_ticks(0.0, max(reached, default=1.0))[-1]

    def _draw(self, drawing: Drawing, bar: Bar, top: float) -> None:
        label, value = bar.label, self._figures(bar)
        drawing.words((0, top + 13), label, "label", max(_ROOM - len(value), 12))
        drawing.words((WIDTH, top + 13), value, "small end")
        for number, line in enumerate(bar.details, start=1):
            drawing.words((0, top + 13 + number * _DETAIL), line, "small")
        edge = top + bar.height - 17
        drawing.bar((0, edge), WIDTH, _THICK, "track")
        drawing.bar((0, edge), self._position(bar.value), _THICK, f"bar c{bar.colour % NUM_COLOURS}")
        if bar.low is not None and bar.high is not None:
            middle = edge + _THICK / 2
            drawing.line((self._position(bar.low), middle), (self._position(bar.high), middle), "whisker")
        if bar.baseline is not None:
            at = self._position(bar.baseline)
            drawing.line((at, edge - 1), (at, edge + _THICK + 3), "baseline")

    def _position(self, value: float) -> float:
        return min(max(value / self._end, 0.0), 1.0) * WIDTH

    def _figures(self, bar: Bar) -> str:
        if bar.low is None or bar.high is None:
            return self.show(bar.value)
        return f"{self.show(bar.value)} ({self.show(bar.low)}–{self.show(bar.high)})"

    def _described(self, bar: Bar) -> str:
        guess = "" if bar.baseline is None else f", guessing {self.show(bar.baseline)}"
        name = f"{bar.label}, {bar.detail}" if bar.detail else bar.label
        return f"{name}: {self._figures(bar)}{guess}"
