"""A report as one HTML file that needs nothing else: answers first, then sections of figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup

import fedkge
from fedkge.simulations.report.charts.bars import BarChart
from fedkge.simulations.report.charts.lines import LineChart

__all__ = ["Card", "Figure", "Page", "PageAnswer", "PageTable", "Section"]

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class PageAnswer:
    """One of the three questions, answered in a glance; rows set several side by side, by their names."""

    question: str
    value: str
    unit: str
    lines: Sequence[str] = ()
    rows: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Figure:
    """A chart with its caption and legend."""

    title: str
    svg: Markup
    legend: Sequence[tuple[str, str]] = ()
    caption: str = ""

    @classmethod
    def of(cls, chart: LineChart | BarChart, caption: str = "") -> Figure:
        legend = chart.legend if isinstance(chart, LineChart) else ()
        return cls(chart.title, chart.svg(), legend, caption)


@dataclass(frozen=True)
class PageTable:
    """Cells as text; `align` has a letter l or r for each column, and a long table starts folded."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Card:
    """A list under a name, to stand beside others."""

    title: str
    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """Items are pairs of a term and what is said of it; a term may be empty."""

    title: str
    text: str = ""
    items: Sequence[tuple[str, str]] = ()
    cards: Sequence[Card] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[PageTable] = ()

    @property
    def is_empty(self) -> bool:
        shown = (self.text, self.items, self.cards, self.figures, [t for t in self.tables if t.rows])
        return not any(shown)


@dataclass(frozen=True)
class Page:
    title: str
    question: Sequence[str]
    notices: Sequence[str]
    answers: Sequence[PageAnswer]
    sections: Sequence[Section]

    def html(self) -> str:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        style = Markup((_HERE / "style.css").read_text(encoding="utf-8"))  # our own file, nobody's data
        template = environment.get_template("page.html")
        return template.render(page=self, style=style, version=fedkge.__version__)
