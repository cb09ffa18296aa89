"""The digest of a study's code: other arithmetic changes it, other words do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedkge.simulations.studies import RECIPES
from fedkge.simulations.studies.source_digest import reached_modules, source_digest

STUDY = """
from fedkge.kernel import twice
from fedkge.simulations.cli import show

LAZY = "fedkge.lazy:Thing"

@study(notes=("A note.",))
def cells(x: int) -> int:
    \"\"\"A table.\"\"\"
    if x < 0:
        raise ValueError("negative")
    return twice(x)  # two times
"""
SOURCES = {
    "__init__": "",
    "a_study": STUDY,
    "kernel": "def twice(x):\n    return 2 * x\n",
    "lazy": "FACTOR = 2\n",
    "simulations/cli": "WIDTH = 80\n",
}


def digest(folder: Path, **changes: str) -> str | None:
    for name, text in (SOURCES | changes).items():
        path = folder / "fedkge" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return source_digest("fedkge.a_study", folder)


@pytest.mark.parametrize(
    ("name", "old", "new", "is_same"),
    [
        ("kernel", "2 * x", "3 * x", False),
        ("lazy", "2", "3", False),
        ("a_study", "x < 0", "x < 1", False),
        ("a_study", "A table.", "Another table.", True),
        ("a_study", "# two times", "# doubled", True),
        ("a_study", "negative", "below zero", True),
        ("a_study", "A note.", "Another note.", True),
        ("a_study", "x: int", "x: float", True),
        ("kernel", "2 * x", "(2  *  x)", True),
        ("simulations/cli", "80", "100", True),
    ],
)
def test_arithmetic_counts_and_words_do_not(
    name: str, old: str, new: str, is_same: bool, tmp_path: Path
) -> None:
    assert old in SOURCES[name]
    before = digest(tmp_path / "before")
    after = digest(tmp_path / "after", **{name: SOURCES[name].replace(old, new)})
    assert before is not None
    assert (before == after) is is_same


def test_a_module_without_source_has_no_digest(tmp_path: Path) -> None:
    assert source_digest("fedkge.nothing", tmp_path) is None


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_reaches_what_makes_its_numbers_and_no_page(name: str) -> None:
    reached = reached_modules(RECIPES[name].cells_of.__module__)
    assert not any(
        module.startswith(("fedkge.simulations.cli", "fedkge.simulations.report")) for module in reached
    )
    if name in ("fedr-table-2", "privacy-federated", "leakage-over-epsilon"):
        assert {"fedkge.client.participant", "fedkge.server.strategies.averaging"} <= set(reached)
        assert {"fedkge.client.kernels.losses", "fedkge.attacks.reconstruction.variants"} <= set(reached)
    if name in ("dpkge-link-prediction", "privacy-utility"):
        assert {"fedkge.client.privacy.sound", "fedkge.client.training.loop"} <= set(reached)
