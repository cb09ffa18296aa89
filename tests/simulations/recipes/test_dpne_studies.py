"""The studies of DPNE: published numbers stand where they belong, lemma and audit come out as they must."""

from __future__ import annotations

from collections import Counter

import pytest

from fedkge.simulations.studies import RECIPES
from fedkge.simulations.studies.dpne.dpne_cells import (
    MECHANISMS_OF_EDGES,
    NUMBERS,
    Embedding,
    class_rows,
    link_rows,
)

TABLES = ("1", "2", "3", "4")


def test_every_number_of_the_paper_is_there_and_is_asked_for_by_a_cell() -> None:
    counts = Counter(row["table"] for row in NUMBERS.rows)
    assert counts == {"1": 39, "2": 49, "3": 39, "4": 49}
    for table in TABLES:
        cells = RECIPES[f"dpne-table-{table}"].cells("full")
        embeddings = [Embedding(**cell.keys, runs=10) for cell in cells]  # type: ignore[arg-type]
        shown = [value for each in embeddings if (value := each.published(table)) is not None]
        assert len(shown) == counts[table]


def test_some_numbers_are_those_of_the_paper() -> None:
    assert Embedding("Cora", "DPNE, |term|", 100, 1.0, 10).published("1") == 0.662
    assert Embedding("Cora", "DPNE, linear", 100, 1.0, 10).published("1") is None
    assert Embedding("Citeseer", "dpM", 100, 100.0, 10).published("3") == 0.751
    assert Embedding("Wiki", "DPNE, |term|", 1000, 10.0, 10).published("4") == 0.784
    assert Embedding("Wiki", "non-private", 50, None, 10).published("2") == 0.537


def test_lemma_1_is_checked_norm_by_norm() -> None:
    frame = RECIPES["dpne-lemma-1"]("quick")
    verdicts = frame.set_index(["network", "norm"])["verdict"]
    assert verdicts["path of 4", "|M' − M|, Frobenius"] == "holds"
    assert verdicts["path of 4", "|M' − M|, sum of rows"] == "fails"
    assert verdicts["two stars of 5", "|P'² − P²|, against |P' − P|"] == "fails"


def test_the_audit_refutes_what_is_claimed_and_nothing_else() -> None:
    """One cell of each kind, with fewer draws than a study has."""
    cells = {
        (cell.keys["mechanism"], cell.keys["epsilon"]): cell for cell in RECIPES["dpne-audit"].cells("quick")
    }
    assert {name for name, _ in cells} >= {"dpM", "randomised response", "top edges", "DP-SGD"}
    assert any(name.startswith("Gaussian") for name, _ in cells)
    (refuted,) = cells["DPNE, |term|, one H", 0.01].measure(None)  # type: ignore[arg-type]
    (standing,) = cells["randomised response", 1.0].measure(None)  # type: ignore[arg-type]
    assert (refuted["verdict"], standing["verdict"]) == ("refuted", "stands")


@pytest.mark.parametrize("rows", [class_rows, link_rows])
def test_a_cell_has_a_line_for_every_way_to_score(rows: object, data_folder: object) -> None:
    """The absolute term is as good at ε = 0.01 as no noise at all; the linear one is at chance."""
    found = {}
    for name, epsilon in (("non-private", None), ("DPNE, |term|", 0.01), ("DPNE, linear", 0.01)):
        lines = list(rows(Embedding("Cora", name, 32, epsilon, 1), "1"))  # type: ignore[operator]
        assert all(line["low"] <= line["measured"] <= line["high"] for line in lines)
        found[name] = next(line["measured"] for line in lines if line["metric"] == "accuracy")
    assert found["DPNE, |term|"] == pytest.approx(found["non-private"], abs=0.05)
    assert found["DPNE, linear"] < found["non-private"] - 0.3


def test_every_mechanism_says_what_its_budget_is_worth() -> None:
    standing = {name: Embedding("Cora", name, 8, 1.0, 1).standing for name in MECHANISMS_OF_EDGES}
    assert {name for name, worth in standing.items() if worth == "guaranteed"} == {
        "randomised response", "top edges", "Gaussian", "DP-SGD"
    }  # fmt: skip
