"""What the documents say: commands and Python in blocks, commands within sentences, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = [
    "CHANGELOG",
    "CONTRIBUTING",
    "DOCUMENTS",
    "EXTENDING",
    "README",
    "ROOT",
    "Block",
    "anchors_of",
    "blocks_of",
    "links_of",
    "sections_of",
    "spans_of",
]

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
CHANGELOG = ROOT / "CHANGELOG.md"
EXTENDING = ROOT / "docs" / "extending.md"
DOCUMENTS = [README, CONTRIBUTING, ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`((?:fedkge|make|python) [^`]+)`")
_HEREDOC = re.compile(r"<<'(\w+)'$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    document: Path
    language: str
    text: str

    @cached_property
    def commands(self) -> list[str]:
        """Of a shell block, each command whole: with its continued lines and its here-document."""
        lines = iter(self.text.splitlines())
        if self.language == "console":  # what follows no prompt is output
            return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return list(_commands(lines)) if self.language == "sh" else []


def _commands(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        command = line
        while command.endswith("\\"):
            command += "\n" + next(lines)
        if heredoc := _HEREDOC.search(command):
            for inner in lines:
                command += "\n" + inner
                if inner == heredoc[1]:
                    break
        if command.strip():
            yield command


def blocks_of(document: Path, text: str | None = None) -> list[Block]:
    """The blocks of a document, or of a part of its text."""
    text = document.read_text(encoding="utf-8") if text is None else text
    return [Block(document, language, code) for language, code in _FENCE.findall(text)]


def sections_of(document: Path) -> dict[str, str]:
    """The text below each heading of the second level."""
    _, *parts = _SECTION.split(document.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def spans_of(document: Path) -> list[str]:
    """Commands within sentences."""
    return [" ".join(span.split()) for span in _SPAN.findall(_prose(document))]


def links_of(document: Path) -> list[tuple[str, str]]:
    """Files that it links to, relative to it, with the anchor or ""; an empty file is itself."""
    targets = [target for target in _LINK.findall(_prose(document)) if ":" not in target]
    return [(file, anchor) for file, _, anchor in (target.partition("#") for target in targets)]


def anchors_of(document: Path) -> set[str]:
    """The anchors of its headings, as GitHub and the site make them."""
    headings = (heading.lower() for heading in _HEADING.findall(_prose(document)))
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in headings}


def _prose(document: Path) -> str:
    return _FENCE.sub("", document.read_text(encoding="utf-8"))
