"""A table of leaks is a file that the program wrote whole, and a document shows rows of such a file."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

from fedkge.simulations.studies.origin import Origin

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "docs" / "results" / "leaks").glob("*.md"))
SHOWN = re.compile(r"<!-- measured by: (python benchmarks/measure_leaks\.py .*) -->\n\n((?:\|.*\n)+)")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "measure_leaks.py"))


def parts_of(text: str) -> tuple[dict[str, Any], str]:
    """What a file keeps of where it comes from, and the lines of its table."""
    head, _, rows = text.partition(" -->\n\n")
    kept: dict[str, Any] = json.loads(head.partition("<!-- ")[2])
    return kept, rows


def rewritten(text: str, script: dict[str, Any]) -> str:
    """The file as the program writes it; None of its words are taken from the text but rows and origin."""
    kept, rows = parts_of(text)
    page: str = script["page"](kept["kind"], Origin.from_json(kept["origin"]), rows)
    return page


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_table_of_leaks_is_as_the_program_wrote_it(path: Path, script: dict[str, Any]) -> None:
    text = path.read_text(encoding="utf-8")
    assert rewritten(text, script) == text, "measure it again by the command in it"
    origin = Origin.from_json(parts_of(text)[0]["origin"])
    assert origin.commit
    assert origin.date
    words = shlex.split(origin.command or "")
    assert script["command_of"](words[2:]) == origin.command
    assert origin.packages is None or words[words.index("--out") + 1] == path.relative_to(ROOT).as_posix()


def test_a_digit_of_a_table_of_leaks_edited_by_hand_is_found(script: dict[str, Any]) -> None:
    text = FILES[0].read_text(encoding="utf-8")
    for place in (match.start() for match in re.finditer(r"\d", text)):
        if "<!--" in text[:place] and "-->" in text[place:]:
            continue  # within the origin, from which the words follow
        edited = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        assert rewritten(edited, script) != edited, text[place - 20 : place + 20]


def test_documents_show_rows_of_the_tables_of_leaks() -> None:
    shown = SHOWN.findall((ROOT / "docs" / "attacks.md").read_text(encoding="utf-8"))
    assert {command.split()[2] for command, _ in shown} == {"active", "holdings", "membership"}
    measured = {
        kept["origin"]["command"]: rows
        for kept, rows in (parts_of(path.read_text(encoding="utf-8")) for path in FILES)
    }
    for command, table in shown:
        rows = measured[command]
        lines = table.splitlines()
        assert lines[:2] == rows.splitlines()[:2]
        assert [line for line in lines if line not in rows.splitlines()] == []
