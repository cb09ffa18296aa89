"""Views: saved and loaded whole, each part with its mark."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.attacks.findings import Finding, leakage_of, write_findings
from fedkge.attacks.intervals import proportion
from fedkge.attacks.reconstruction.variants import Reconstruction
from fedkge.attacks.view import Rows, Source, View
from fedkge.errors import DataError
from tests.attacks import planted


def same(first: object, second: object) -> bool:
    """Equal in every field, arrays included."""
    if isinstance(first, np.ndarray):
        return (
            isinstance(second, np.ndarray) and first.dtype == second.dtype and np.array_equal(first, second)
        )
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)  # type: ignore[union-attr, index]
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))  # type: ignore[arg-type]
    if type(first).__module__ == "fedkge.attacks.view" and not isinstance(first, Source):
        return all(same(getattr(first, f.name), getattr(second, f.name)) for f in fields(first))  # type: ignore[arg-type]
    return bool(first == second)


@given(ratio=st.floats(0.05, 1.0), rounds=st.integers(1, 3), masked=st.booleans())
@settings(max_examples=15, deadline=None)
def test_a_saved_view_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, ratio: float, rounds: int, masked: bool
) -> None:
    tables = planted.planted_tables("TransE", np.random.default_rng(0))
    view, truth = planted.granted_view(tables, tables["entity"])
    lee = {client: replace(rows, masked=masked) for client, rows in view.last.lee.items()}
    shots = tuple(replace(view.last, round=number, lee=lee) for number in range(rounds))
    view = replace(view, rounds=shots, leak_ratio=ratio, union={"relation": 6}, sums_only=masked)
    view = replace(view, holders={"relation": np.arange(6)}, presence={"relation": {1: np.arange(3)}})
    path = tmp_path_factory.mktemp("view") / "view.safetensors"
    view.save(path)
    loaded = View.load(path)
    assert same(view, loaded)
    rng = np.random.default_rng
    before = Reconstruction().assess(view, truth, "paper", rng(0))
    assert Reconstruction().assess(loaded, truth, "paper", rng(0)) == before


def test_a_file_that_is_no_view_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "view"
    path.write_bytes(b"nonsense")
    with pytest.raises(DataError, match="not a saved view"):
        View.load(path)


def test_fields_say_what_was_received_and_what_was_granted() -> None:
    tables = planted.planted_tables("TransE", np.random.default_rng(0))
    view, _ = planted.granted_view(tables, tables["entity"])
    assert view.fields == {"GRE": Source.RECEIVED, "LEE": Source.GRANTED, "EEP": Source.RECEIVED}
    assert view.granted == ("LEE",)
    hidden = {1: Rows(np.arange(2), np.zeros((2, 3), np.float32), masked=True)}
    assert "masked LEE" in replace(view, rounds=(replace(view.last, lee=hidden),)).fields


def test_findings_read_as_they_are_meant(tmp_path: Path) -> None:
    tables = planted.planted_tables("TransE", np.random.default_rng(0))
    view, _ = planted.global_view(tables)
    found = [
        Finding.of("reconstruction", "paper", view, 1, "ERR", 0.5, interval=(0.4, 0.6), baseline=0.45),
        Finding.of("reconstruction", "paper", view, 1, "TRR", None, note="nothing is sent"),
    ]
    assert found[0].includes_guessing
    assert not found[1].includes_guessing
    write_findings(tmp_path / "findings.csv", found)
    text = (tmp_path / "findings.csv").read_text()
    assert "not possible" in text
    assert "nothing is sent" in text
    entries = leakage_of(found)["reconstruction"]["paper"]
    assert [entry["possible"] for entry in entries] == [True, False]


def test_the_interval_is_exact_and_widens_with_the_design_effect() -> None:
    assert proportion(0, 10)[0] == 0
    assert proportion(10, 10)[1] == 1
    assert proportion(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)
    narrow, wide = proportion(50, 100), proportion(50, 100, design=4)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
