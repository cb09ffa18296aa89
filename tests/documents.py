"""What the README and docs/ tell people to type: commands and Python in blocks, and commands in passing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["DOCUMENTS", "README", "ROOT", "Block", "blocks_of", "spans_of"]

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`((?:fedkge|make|python) [^`]+)`")
_HEREDOC = re.compile(r"<<'(\w+)'$")


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
        if found := _HEREDOC.search(command):
            for inner in lines:
                command += "\n" + inner
                if inner == found[1]:
                    break
        if command.strip():
            yield command


def blocks_of(document: Path) -> list[Block]:
    return [
        Block(document, language, text)
        for language, text in _FENCE.findall(document.read_text(encoding="utf-8"))
    ]


def spans_of(document: Path) -> list[str]:
    """Commands within sentences."""
    prose = _FENCE.sub("", document.read_text(encoding="utf-8"))
    return [" ".join(span.split()) for span in _SPAN.findall(prose)]
