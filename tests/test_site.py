"""The documentation site: built strictly, and read without network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT

ASSET = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        assert not ASSET.search(page.read_text(encoding="utf-8")), page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), (
            sheet.name
        )


def test_the_pattern_finds_an_asset_from_elsewhere() -> None:
    assert ASSET.search('<script async src="https://unpkg.com/mermaid"></script>')
    assert ASSET.search("<link rel=stylesheet href=//fonts.example/css>")
    assert not ASSET.search('<a href="https://flower.ai">Flower</a>')


def test_the_readme_is_the_home_page_and_its_tour_a_page(site: Path) -> None:
    home, tour = ((site / name).read_text(encoding="utf-8") for name in ("index.html", "tour.html"))
    assert "what does each party <em>gain</em>" in home
    command = "fedkge run tour.toml --out runs/first"
    assert command not in re.sub(r"<[^>]+>", "", home)
    assert command in re.sub(r"<[^>]+>", "", tour)
    assert 'src="architecture.svg"' in home


def test_the_reference_names_what_the_package_exports(site: Path) -> None:
    import fedkge

    reference = (site / "reference.html").read_text(encoding="utf-8")
    for name in fedkge.__all__:
        # Registries by name; a function that shares its name with a package is documented where it stands.
        documented = f"<code>{name}</code>" if name.isupper() else rf'id="fedkge\.(?:[\w.]+\.)?{name}"'
        assert re.search(documented, reference), name
    for name in ("strategy.Strategy.update", "client.models.model.Model.query_tail", "plugins.Registry"):
        assert f'id="fedkge.{name}"' in reference, name
