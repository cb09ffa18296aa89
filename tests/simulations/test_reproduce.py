"""`fedkge reproduce`: kept cells, interruptions, what is written, and clear errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence

import pandas as pd
import pytest

from fedkge.errors import DataError, SettingError, UnknownNameError
from fedkge.simulations.cli import main as cli
from fedkge.simulations.studies import RECIPES, Scale
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.measuring import Order
from fedkge.simulations.studies.study import Recipe, study

PUBLISHED = {"a": 0.25, "b": 0.5, "c": None}


class Bench:
    """A recipe of three cells and two seeds that counts its work, and stops where it is told to."""

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.stop_at = ""
        self.stop_with: BaseException = KeyboardInterrupt()

    @property
    def recipe(self) -> Recipe:
        @study(within=("metric",), seeds={"quick": 2, "full": 3}, notes=("A note | with a bar.",))
        def small(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
            """A small table.

            Quick: two seeds.
            """
            for letter in PUBLISHED:
                for seed in seeds:
                    yield TableCell({"letter": letter, "seed": seed}, self.measure(letter, seed), scale)

        return small

    def measure(self, letter: str, seed: int):  # type: ignore[no-untyped-def]
        def rows(cache: StudyCache) -> list[Row]:
            if f"{letter}{seed}" == self.stop_at:
                raise self.stop_with
            self.measured.append(f"{letter}{seed}")
            value = 0.3 + seed / 10
            found = {"metric": "mrr", "published": PUBLISHED[letter], "measured": value}
            return [{**found, "low": value - 0.05, "high": value + 0.05}]

        return rows


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setitem(RECIPES, "small", made.recipe)
    return made


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """The command line in this process, where the small recipe is registered."""
    before, sys.argv = sys.argv, ["fedkge", "reproduce", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        sys.argv = before
    written = capsys.readouterr()
    return int(ended.value.code or 0), written.out, written.err


def test_every_line_is_printed_written_and_drawn(bench, tmp_path, capsys):
    code, shown, _ = call(capsys, "small", "--out", tmp_path)
    assert code == 0
    for words in (
        "published",
        "measured",
        "95 % interval",
        "difference",
        "0.2500",
        "0.3500",
        "+0.1000",
        "-0.1500",
    ):
        assert words in shown, words
    assert "Partial" not in shown
    place = tmp_path / "small-quick"
    cells = pd.read_csv(place / "cells.csv")
    assert cells.groupby("letter")["measured"].mean().to_dict() == pytest.approx(dict.fromkeys("abc", 0.35))
    markdown = (place / "table.md").read_text(encoding="utf-8")
    assert "fedkge reproduce small --scale quick" in markdown
    assert "| a | mrr | 0.2500 | 0.3500 |" in markdown
    assert "| c | mrr | – | 0.3500 |" in markdown  # nothing published is no reason to hide it
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "median difference" in page
    assert "6 <span>of 6 cells" in page


def test_lines_may_lack_a_key_that_others_have(monkeypatch, tmp_path, capsys):
    """As methods without noise lack a σ, and the page is drawn all the same."""

    def measure(value: float):  # type: ignore[no-untyped-def]
        return lambda cache: [
            {"metric": "mrr", "published": None, "measured": value, "low": None, "high": None}
        ]

    @study(within=("metric",), seeds=None)
    def uneven(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
        """An uneven table."""
        for method, sigma in (("NDP", None), ("DPKGE", 0.7), ("DPKGE", 1.0)):
            yield TableCell({"method": method, "mode": "sound", "sigma": sigma}, measure(sigma or 0.5), scale)

    monkeypatch.setitem(RECIPES, "uneven", uneven)
    code, shown, _ = call(capsys, "uneven", "--out", tmp_path)
    assert code == 0
    assert "nan" not in shown
    page = (tmp_path / "uneven-quick" / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert ">nan" not in page


def test_an_interruption_keeps_finished_cells_and_says_how_to_go_on(bench, tmp_path, capsys):
    bench.stop_at = "b1"
    code, shown, said = call(capsys, "small", "--out", tmp_path, "--seeds", 2)
    assert code == 130
    assert not shown
    assert "3 of 6 cells are finished" in said
    assert f"go on with: fedkge reproduce small --scale quick --seeds 2 --out {tmp_path}" in said
    assert len(pd.read_csv(tmp_path / "small-quick" / "cells.csv")) == 3
    assert "Partial: 3 of 6 cells" in (tmp_path / "small-quick" / "table.md").read_text(encoding="utf-8")
    bench.stop_at = ""
    assert call(capsys, "small", "--out", tmp_path, "--seeds", 2)[0] == 0
    assert bench.measured == ["a0", "a1", "b0", "b1", "c0", "c1"]  # none twice


def test_a_cell_that_fails_leaves_the_others_in_the_table(bench, tmp_path, capsys):
    bench.stop_at, bench.stop_with = "a1", DataError("the archive is cut; fetch it again")
    code, _, said = call(capsys, "small", "--out", tmp_path)
    assert (code, said.strip().splitlines()[-1]) == (2, "fedkge: the archive is cut; fetch it again")
    assert len(pd.read_csv(tmp_path / "small-quick" / "cells.csv")) == 1


def test_chosen_cells_make_a_partial_table_that_grows(bench, tmp_path, capsys):
    code, shown, _ = call(capsys, "small", "--only", "letter=b,seed=0", "--out", tmp_path)
    assert code == 0
    assert bench.measured == ["b0"]
    assert "Partial: 1 of 6 cells" in shown
    assert "All lines: letter b." in shown
    assert "0.2500 to 0.3500" in shown  # one seed keeps its own interval
    _, shown, _ = call(capsys, "small", "--only", "letter=a", "--out", tmp_path)
    assert "Partial: 3 of 6 cells" in shown


def test_json_has_the_lines_and_what_is_missing(bench, tmp_path, capsys):
    _, shown, _ = call(capsys, "small", "--only", "letter=c", "--out", tmp_path, "--json", "--quiet")
    found = json.loads(shown)
    assert (found["finished"], found["total"], found["lines"][0]["published"]) == (2, 6, None)
    assert found["lines"][0]["measured"] == pytest.approx(0.35)


def test_other_settings_are_other_cells(bench, tmp_path):
    quick, full = (bench.recipe.cells(scale, [0])[0] for scale in ("quick", "full"))
    assert quick.file != full.file
    quick.rows(StudyCache(tmp_path), tmp_path)
    assert quick.kept(tmp_path) is not None
    assert full.kept(tmp_path) is None
    (tmp_path / quick.file).write_text("[{", encoding="utf-8")
    with pytest.raises(DataError, match="delete it to measure it again"):
        quick.kept(tmp_path)


def test_a_recipe_called_from_python_takes_scale_seed_and_folder(bench, tmp_path):
    frame = bench.recipe("quick", 5, tmp_path)
    assert sorted(frame["seed"].unique()) == [5, 6]
    assert frame.attrs["notes"] == ("A note | with a bar.",)
    bench.measured.clear()
    assert bench.recipe("quick", 5, tmp_path).equals(frame)
    assert not bench.measured
    with pytest.raises(UnknownNameError, match="unknown scale 'tiny'"):
        bench.recipe("tiny", 0, tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", ["quick", "full"])
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_says_what_it_is_and_has_cells_of_its_own(name, scale, tmp_path):
    recipe = RECIPES[name]
    assert recipe.about.endswith(".")
    assert "Quick:" in recipe.details_of("quick")
    assert "Quick:" not in recipe.details_of("full")
    cells = recipe.cells(scale)
    assert cells
    assert len({cell.file for cell in cells}) == len(cells)
    assert len({tuple(cell.keys) for cell in cells}) == 1  # --only finds every key in every cell
    assert ("seed" in cells[0].keys) == (recipe.seeds is not None)


def test_nothing_random_refuses_several_seeds(tmp_path):
    with pytest.raises(SettingError, match="draws nothing at random"):
        Order("dpkge-epsilon", tmp_path, seeds=3)


def test_mistakes_are_one_line(bench, tmp_path, capsys):
    for words, said in (
        (("fedr-table-3",), "Did you mean 'fedr-table-2'?"),
        (("small", "--scale", "huge"), "unknown scale 'huge'"),
        (("small", "--only", "letter=z"), "known: a, b, c."),
        ((), "see: fedkge reproduce --list"),
    ):
        code, _, error = call(capsys, *words, "--out", tmp_path)
        assert code == 2
        assert len(error.strip().splitlines()) == 1
        assert said in error
    assert not list(tmp_path.iterdir())


def test_epsilon_of_the_dpkge_paper_from_the_command_line(tmp_path, capsys):
    wish = "dataset=FB15k-237,sigma=0.7"
    code, shown, _ = call(capsys, "dpkge-epsilon", "--only", wish, "--out", tmp_path, "--quiet")
    assert code == 0
    assert "10.08" in shown
    assert "Partial: 1 of 14 cells" in shown
    assert (tmp_path / "dpkge-epsilon-quick" / "report.html").exists()
    code, shown, _ = call(capsys, "--list")
    assert code == 0
    assert all(f"{name} " in shown for name in RECIPES)
    assert set(json.loads(call(capsys, "--list", "--json")[1])) == set(RECIPES)


def test_cells_of_older_code_are_marked_and_measured_again_if_asked_for(bench, tmp_path, capsys):
    assert "†" not in call(capsys, "small", "--out", tmp_path)[1]
    (path,) = (tmp_path / "cells").glob("*/a-0-*.json")
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["origin"]["command"] == "fedkge reproduce small --scale quick"
    assert kept["origin"]["settings"] == "quick"
    assert set(kept["origin"]["machine"]) == {"processor", "cores", "architecture"}  # no name of a host
    kept["origin"] |= {"code": "0" * 16, "commit": "abcdef0123", "dirty": False}
    path.write_text(json.dumps(kept), encoding="utf-8")
    shown = call(capsys, "small", "--out", tmp_path)[1]
    assert "† Of older code: 1 of 6 cells, by abcdef0." in shown
    assert shown.count("0.3500 †") == 1
    bench.measured.clear()
    assert "†" not in call(capsys, "small", "--out", tmp_path, "--refresh")[1]
    assert bench.measured == ["a0"]


def test_a_cell_stays_until_its_successor_is_finished(bench, tmp_path, capsys):
    call(capsys, "small", "--out", tmp_path)
    (path,) = (tmp_path / "cells").glob("*/a-0-*.json")
    bare = json.dumps(json.loads(path.read_text(encoding="utf-8"))["rows"])  # from before there were origins
    path.write_text(bare, encoding="utf-8")
    bench.stop_at = "a0"
    assert call(capsys, "small", "--out", tmp_path, "--refresh")[0] == 130
    assert path.read_text(encoding="utf-8") == bare
