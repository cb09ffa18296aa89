"""The report in a browser: as wide as its window, asking nobody for anything, readable, light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--allow-file-access-from-files",  # so that the frame below may look at what it holds
)
# A window has a least width that is more than a phone's; a frame has none.
FRAME = """<!doctype html>
<iframe width="{width}" height="800" frameborder="0" src="{page}" onload="look(contentWindow)"></iframe>
<script>
function look(shown) {{
  const page = shown.document, words = [...page.querySelectorAll("figure > svg text")]
  for (const folded of page.querySelectorAll("details")) folded.open = true
  const found = {{
    width: page.documentElement.scrollWidth,
    asked: shown.performance.getEntriesByType("resource").map(each => each.name),
    sizes: words.map(each => parseFloat(shown.getComputedStyle(each).fontSize) * each.getScreenCTM().a),
    outside: words.filter(each => each.getBoundingClientRect().right > {width}).map(each => each.textContent),
  }}
  document.body.textContent = JSON.stringify(found)
}}
</script>
"""
PHONE, DESK = 390, 1280


@dataclass(frozen=True)
class Browser:
    """A browser that starts, does one thing and ends."""

    program: str
    folder: Path

    def look(self, page: Path, width: int) -> dict[str, Any]:
        """What a page is like in a frame of a width, with all its folded tables open."""
        frame = self.folder / "frame.html"
        frame.write_text(FRAME.format(width=width, page=page.as_uri()))
        body = re.search("<body>(.*)</body>", self._start("--dump-dom", frame), re.DOTALL)
        assert body is not None
        return dict(json.loads(html.unescape(body[1])))

    def picture(self, page: Path, scheme: str) -> Image.Image:
        shot = self.folder / f"{scheme}.png"
        preferred = f"--blink-settings=preferredColorScheme={('dark', 'light').index(scheme)}"
        self._start(f"--window-size={DESK},2400", preferred, f"--screenshot={shot}", page)
        return Image.open(shot).convert("RGB")

    def _start(self, *arguments: object) -> str:
        *options, page = arguments
        profile = f"--user-data-dir={self.folder / 'profile'}"
        command = [self.program, *OPTIONS, profile, *map(str, options), Path(str(page)).as_uri()]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on the PATH: install the package 'chromium' to see the report in it")
    return Browser(program, tmp_path)


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_page_fits_its_window_and_asks_nobody(width: int, browser: Browser, finished: Path) -> None:
    found = browser.look(finished / "report.html", width)
    assert found["width"] == width
    assert found["asked"] == []
    assert found["outside"] == []
    assert min(found["sizes"]) >= 10
    assert max(found["sizes"]) <= 16


def test_a_page_that_is_wide_and_asks_others_would_be_noticed(browser: Browser) -> None:
    bad = browser.folder / "bad.html"
    bad.write_text('<!doctype html><body><p style="width: 900px"><img src="http://127.0.0.1:9/outside.png">')
    found = browser.look(bad, PHONE)
    assert found["width"] >= 900
    assert found["asked"] == ["http://127.0.0.1:9/outside.png"]


def test_light_and_dark_are_drawn(browser: Browser, finished: Path) -> None:
    for scheme, paper in {"light": (251, 250, 247), "dark": (20, 23, 27)}.items():
        image = browser.picture(finished / "report.html", scheme)
        assert image.width == DESK
        assert image.getpixel((5, 5)) == paper
        colours = image.getcolors(maxcolors=2**24)
        assert colours is not None
        assert len(colours) > 50  # lines, words and bars, not an empty page
