"""A real tiny run to report on, and a page as a browser would take it apart."""

from __future__ import annotations

import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from tests.simulations.conftest import PLAIN, TINY

VOID = {"meta", "img", "br", "input", "link"}


class Seen(HTMLParser):
    """Tags, attributes and text of a page; it must be well nested."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended; not to be changed."""
    folder = tmp_path_factory.mktemp("report") / "ended"
    settings = [*TINY, *PLAIN, "federation.strategy=FedE", "federation.target_mrr=0.9"]
    return runs.run(Experiment().override(settings), folder).folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))
