"""A drawing in SVG: shapes, words, and what it shows for those who cannot see it."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as Tree

from markupsafe import Markup

__all__ = ["WIDTH", "Drawing"]

WIDTH = 380.0  # a phone shows it a tenth smaller, a wide page a fifth larger: words stay readable on both

Point = tuple[float, float]


class Drawing:
    """Shapes by class name: the page's style gives colours, so that they follow light and dark."""

    def __init__(self, title: str, description: str, height: float) -> None:
        self._root = Tree.Element(
            "svg", {"viewBox": f"0 0 {WIDTH:g} {height:g}", "role": "img", "aria-label": title}
        )
        Tree.SubElement(self._root, "title").text = title
        Tree.SubElement(self._root, "desc").text = description

    def line(self, start: Point, end: Point, kind: str) -> None:
        self._add("line", kind, x1=start[0], y1=start[1], x2=end[0], y2=end[1])

    def bar(self, corner: Point, width: float, height: float, kind: str) -> None:
        self._add("rect", kind, x=corner[0], y=corner[1], width=max(width, 0.0), height=height, rx=2.0)

    def path(self, points: Iterable[Point], kind: str, hint: str) -> None:
        """A line through points; the hint shows where the pointer rests."""
        path = self._add("polyline", kind)
        path.set("points", " ".join(f"{_short(x)},{_short(y)}" for x, y in points))
        Tree.SubElement(path, "title").text = hint

    def dot(self, at: Point, kind: str, hint: str) -> None:
        Tree.SubElement(self._add("circle", kind, cx=at[0], cy=at[1], r=2.6), "title").text = hint

    def words(self, at: Point, text: str, kind: str, room: int | None = None) -> None:
        """Text, shortened to the number of characters there is room for."""
        shown = text if room is None or len(text) <= room else text[: room - 1] + "…"
        element = self._add("text", kind, x=at[0], y=at[1])
        element.text = shown
        if shown != text:
            Tree.SubElement(element, "title").text = text

    def render(self) -> Markup:
        return Markup(Tree.tostring(self._root, encoding="unicode"))  # ElementTree escapes every text

    def _add(self, tag: str, kind: str, **values: float) -> Tree.Element:
        return Tree.SubElement(
            self._root, tag, {"class": kind, **{name: _short(value) for name, value in values.items()}}
        )


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
