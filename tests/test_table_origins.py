"""Every number of a measured table comes from a kept cell: tables are what the program writes of them."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedkge.simulations.studies import RECIPES
from fedkge.simulations.studies.cells import KeptCell

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
TABLES = sorted(RESULTS.glob("*/table.md"))
DOCUMENTS = ["README.md", "docs/attacks.md", "docs/networks.md", "docs/privacy.md", "docs/reproducing.md"]
MARKED = re.compile(r"<!-- table: \S+ -->\n.*?<!-- end of table -->", re.DOTALL)
BY_COMMAND = re.compile(r"<!-- measured by: \S.* -->\n\n(\|.*\n)+")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
NUMBER = re.compile(
    r"[*+−-]*(\d[\d,]*(\.\d+)?|\.\d+)(?![\w⁰-⁹¹²³⁻])"
)  # a cell begins with it; powers are formulas


@pytest.fixture(scope="module")
def writer() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "write_tables.py"))


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # tables name their folder as commands do


def has_numbers(table: str) -> bool:
    rows = table.splitlines()[2:]
    return any(NUMBER.match(cell.strip()) for row in rows for cell in row.strip("|").split("|"))


def tables_without_origin(text: str) -> list[str]:
    rest = BY_COMMAND.sub("", MARKED.sub("", text))
    return [table for table in TABLE.findall(rest) if has_numbers(table)]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.parent.name)
def test_a_kept_table_is_what_the_program_writes_of_its_cells(path: Path, writer: dict[str, Any]) -> None:
    text = path.read_text(encoding="utf-8")
    reproduction = writer["order_of"](text, is_today=False).reproduction()
    assert f"{reproduction.name}-{reproduction.scale}" == path.parent.name
    for name, written in reproduction.files.items():
        if name != "plot.svg":  # another matplotlib draws otherwise
            assert path.with_name(name).read_text(encoding="utf-8") == written, f"{name}: run make tables"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_tables_of_a_document_are_what_the_cells_say(name: str, writer: dict[str, Any]) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert writer["with_tables"](text) == text, "run make tables"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_table_of_a_document_has_numbers_of_no_origin(name: str) -> None:
    assert tables_without_origin((ROOT / name).read_text(encoding="utf-8")) == []


def test_a_number_edited_by_hand_is_found(writer: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8")
    place = text.index("| TransE | .")
    edited = text[: place + 12] + ("1" if text[place + 12] != "1" else "2") + text[place + 13 :]
    assert edited != text
    assert writer["with_tables"](edited) == text
    assert tables_without_origin("\n| model | MRR |\n|---|---|\n| TransE | .450 |\n")
    assert not tables_without_origin("\n| promise | test |\n|---|---|\n| counts for 1 at most | (2018) |\n")


def test_every_kept_cell_is_one_of_a_recipe_and_says_where_it_comes_from() -> None:
    known = {
        recipe.cells_folder(RESULTS, scale) / cell.file
        for recipe in RECIPES.values()
        for scale in ("quick", "full")
        for cell in recipe.cells(scale, None if recipe.seeds is None else range(10))
    }
    for path in RESULTS.glob("cells/*/*.json"):
        assert path in known, f"{path}: no recipe of today has this cell; measure it again"
        origin = KeptCell.from_json(path.read_text(encoding="utf-8")).origin
        assert origin.commit, path
        assert origin.date, path


def test_the_commit_of_a_cell_is_in_the_history_or_named_where_it_went() -> None:
    """A reader can find the code: by `git show COMMIT`, or on the page that says where it is now."""
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the whole history is not at hand")
    history = git("rev-list", "HEAD").split()
    told = (RESULTS / "README.md").read_text(encoding="utf-8")
    commits = {
        KeptCell.from_json(path.read_text(encoding="utf-8")).origin.commit or ""
        for path in RESULTS.glob("cells/*/*.json")
    }
    known = [commit for commit in commits if any(entry.startswith(commit) for entry in history)]
    assert [commit for commit in commits if commit not in known and commit[:7] not in told] == []


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
