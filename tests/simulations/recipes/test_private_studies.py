"""What confidential triples are worth over ε, on a small graph: every method, the plot, a federation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedkge.datasets.load import load
from fedkge.errors import SettingError
from fedkge.server.privacy import check_privacy
from fedkge.simulations.studies import RECIPES, Scale
from fedkge.simulations.studies.cells import StudyCache, TableCell
from fedkge.simulations.studies.measuring import Order
from fedkge.simulations.studies.private import utility_cells
from fedkge.simulations.studies.private.federated_study import METHODS, named_experiment, recorded_experiment
from fedkge.simulations.studies.private.utility_cells import PARTS, UtilityCell, measure_utility
from fedkge.simulations.studies.private.utility_plot import plot_utility
from fedkge.simulations.studies.study import Quantity, study
from fedkge.strategy import STRATEGIES

U = UtilityCell("UMLS", "TransE", "predicates", "U", epochs=8)
LINES = (
    ("NDP", None),
    ("hubs", 1.0),
    ("hubs", 8.0),
    ("sound", 8.0),
    ("sound, pretrained", 8.0),
    ("paper", 8.0),
)
CELLS = (U, *(replace(U, method=method, target=target) for method, target in LINES))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> StudyCache:
    return StudyCache(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def frame(cache: StudyCache) -> pd.DataFrame:
    return pd.DataFrame([{**cell.keys, **measure_utility(cell, cache)} for cell in CELLS])


def test_epsilon_is_none_for_u_infinite_without_noise_and_within_the_target_if_guaranteed(
    frame: pd.DataFrame,
) -> None:
    spent = frame.set_index("method")["epsilon"]
    assert (spent["U"], spent["NDP"]) == (0, inf)
    private = frame[frame["epsilon_is"] == "guaranteed"]
    assert sorted(private["method"]) == ["hubs", "hubs", "sound", "sound, pretrained"]
    assert (private["epsilon"] <= private["target"]).all()
    assert (private["epsilon"] > 0.95 * private["target"]).all()  # and no noise is wasted
    assert (private["delta"] < 1 / 903).all()
    assert frame.set_index("method")["epsilon_is"]["paper"] == "claimed"


def test_all_test_triples_are_the_confidential_and_the_unrestricted_ones(frame: pd.DataFrame) -> None:
    graph = load("UMLS")
    labels = [graph.relation_labels[relation] for relation in graph.test[:, 1]]
    confidential = sum(label in ("isa", "causes", "produces") for label in labels)
    assert set(frame["confidential_test"]) == {confidential}
    share = confidential / len(labels)
    for name in ("mrr", "gain"):
        parts = share * frame[f"{name}_confidential"] + (1 - share) * frame[f"{name}_unrestricted"]
        np.testing.assert_allclose(parts, frame[f"{name}_all"])


def test_scores_lie_in_their_intervals(frame: pd.DataFrame) -> None:
    for column in (f"{name}_{part}" for name in ("mrr", "gain") for part in PARTS):
        scored = frame.dropna(subset=[column])
        assert len(scored) == len(frame) - column.startswith("gain")
        assert (scored[f"{column}_low"] < scored[column]).all()
        assert (scored[column] < scored[f"{column}_high"]).all()


def test_gains_are_over_u_and_u_has_none(frame: pd.DataFrame) -> None:
    others, without = frame[frame["method"] != "U"], frame[frame["method"] == "U"].iloc[0]
    for part in PARTS:
        np.testing.assert_allclose(others[f"gain_{part}"], others[f"mrr_{part}"] - without[f"mrr_{part}"])
        assert np.isnan(without[f"gain_{part}"])


def test_a_paired_interval_is_narrower_than_two_apart_would_be(frame: pd.DataFrame) -> None:
    row, without = (frame[frame["method"] == method].iloc[0] for method in ("sound", "U"))

    def width(line: pd.Series, column: str) -> float:
        return float(line[f"{column}_high"] - line[f"{column}_low"])

    apart = np.hypot(width(row, "mrr_all"), width(without, "mrr_all"))
    assert width(row, "gain_all") < 0.8 * apart


def test_u_knows_nothing_of_confidential_predicates_and_hubs_learn_some(frame: pd.DataFrame) -> None:
    score = frame.set_index(["method", "target"])["mrr_confidential"]
    low = frame.set_index(["method", "target"])["gain_confidential_low"]
    assert score["U"].item() < 0.15
    assert low["NDP"].item() > 0.2
    assert low["hubs", 1.0] > 0.05


def test_u_is_trained_once_for_all_cells_that_are_compared_with_it(
    frame: pd.DataFrame, cache: StudyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    del frame  # measured before
    trained: list[str] = []
    train = utility_cells._train

    def counted(cell: UtilityCell, graph: object) -> object:
        trained.append(cell.method)
        return train(cell, graph)  # type: ignore[arg-type]

    monkeypatch.setattr(utility_cells, "_train", counted)
    again = measure_utility(replace(U, method="NDP"), cache)
    assert trained == ["NDP"]
    measure_utility(replace(U, method="NDP", seed=1, epochs=1), cache)
    assert trained == ["NDP", "NDP", "U"]  # another seed has another U
    assert again["gain_all"] > 0


def test_the_same_cell_gives_the_same_row(frame: pd.DataFrame, cache: StudyCache) -> None:
    row = measure_utility(replace(U, method="hubs", target=8.0), cache)
    (before,) = frame[(frame["method"] == "hubs") & (frame["target"] == 8)].to_dict("records")
    del row["seconds"]
    assert {key: before[key] for key in row} == row


def test_confidential_predicates_of_umls_have_rank_3_6_and_9() -> None:
    graph = load("UMLS")
    ranked = [relation for relation, _ in Counter(graph.train[:, 1].tolist()).most_common()]
    chosen = {graph.relation_labels[ranked[rank - 1]] for rank in (3, 6, 9)}
    assert chosen == set(utility_cells.PREDICATES["UMLS"].removeprefix("predicates:").split("|"))


@pytest.mark.parametrize(("method", "target"), [("U", 1.0), ("NDP", 1.0), ("hubs", None)])
def test_noise_and_only_noise_has_a_target(method: str, target: float | None) -> None:
    with pytest.raises(SettingError, match="noise and only noise has an ε"):
        replace(U, method=method, target=target)


def test_other_options_of_a_mechanism_are_another_cell() -> None:
    plain, pretrained = (replace(U, method=m, target=1.0).settings for m in ("sound", "sound, pretrained"))
    assert "phase=0.2" in pretrained
    assert "phase=0.2" not in plain


def test_a_full_study_has_every_method_at_every_seed_and_what_matters_first() -> None:
    cells = RECIPES["privacy-utility"].cells("full")
    assert len({cell.file for cell in cells}) == len(cells)
    first = [(cell.keys["method"], cell.keys["target"]) for cell in cells[:8]]
    assert first[:2] == [("U", None), ("NDP", None)]
    assert set(first[2:6]) == {("hubs", target) for target in (0.3, 1.0, 3.0, 8.0)}
    assert set(first[6:]) == {("sound", 1.0), ("sound", 8.0)}
    for names in {tuple(cell.keys[key] for key in ("dataset", "model", "marking")) for cell in cells}:
        part = [cell.keys for cell in cells if names == tuple(list(cell.keys.values())[:3])]
        kinds = Counter((keys["method"], keys["target"]) for keys in part)
        assert set(kinds.values()) == {3}
        assert {"U", "NDP", "hubs", "sound"} <= {method for method, _ in kinds}
    assert {cell.keys["epochs"] for cell in cells} == {60}


def test_the_plot_has_a_line_a_method_between_u_and_ndp(frame: pd.DataFrame) -> None:
    (axis,) = plot_utility(frame).axes
    assert axis.get_xscale() == "log"
    lines = {line.get_label().split(" (")[0]: line for line in axis.get_lines()}
    assert set(lines) == {"U", "NDP", "hubs", "sound", "sound, pretrained", "paper"}
    assert (lines["NDP"].get_linestyle(), lines["U"].get_linestyle()) == ("--", ":")
    hubs = frame[frame["method"] == "hubs"]
    np.testing.assert_allclose(lines["hubs"].get_xdata(), hubs["epsilon"])
    np.testing.assert_allclose(lines["hubs"].get_ydata(), hubs["mrr_confidential"])
    ndp = frame.loc[frame["method"] == "NDP", "mrr_confidential"].item()
    np.testing.assert_allclose(lines["NDP"].get_ydata(), ndp)


def test_a_recipes_plot_is_beside_its_table_and_in_its_page(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @study([Quantity("mrr_all", "MRR")], seeds={"quick": 1, "full": 1}, plot=plot_utility)
    def drawn(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
        """A table with a plot."""
        for row, cell in zip(frame.to_dict("records"), CELLS, strict=True):
            yield TableCell(cell.keys, lambda cache, row=row: [row], scale)

    monkeypatch.setitem(RECIPES, "drawn", drawn)
    plots = []
    for _ in range(2):
        Order("drawn", tmp_path).fill(lambda cell, number, total: lambda now: None)
        plots.append((tmp_path / "drawn-quick" / "plot.svg").read_bytes())
    plot, again = plots
    assert plot == again  # so that a repository keeps no changes without a cause
    assert plot.startswith(b"<?xml")
    page = (tmp_path / "drawn-quick" / "report.html").read_text(encoding="utf-8")
    assert plot[plot.index(b"<svg") :].decode() in page
    assert "<?xml" not in page


@pytest.mark.parametrize("strategy", ["FedE", "FedR"])
@pytest.mark.parametrize("method", METHODS)
def test_federations_differ_in_what_clients_do_with_confidential_triples_alone(
    strategy: str, method: str
) -> None:
    target = 1.0 if method in ("hubs", "sound") else None
    recorded = recorded_experiment(strategy, method, target, "full", 0)
    plain = recorded_experiment(strategy, "NDP", None, "full", 0)
    for experiment in (recorded, named_experiment(recorded)):
        check_privacy(experiment, STRATEGIES[strategy].shared)
    privacy = recorded.privacy.model_copy(update={"dp": plain.privacy.dp})
    assert recorded.model_copy(update={"privacy": privacy}) == plain
    assert recorded.privacy.dp.target_epsilon == target


def test_a_federation_is_measured_by_utility_epsilon_and_attacks(cache: StudyCache) -> None:
    cells = {cell.keys["method"]: cell for cell in RECIPES["privacy-federated"].cells("quick")}
    assert list(cells) == list(METHODS)
    rows = {row["metric"]: row for row in cells["hubs"].rows(cache, cache.folder)}
    assert list(rows) == [
        "MRR, confidential",
        "MRR, unrestricted",
        "MRR, all",
        "ε",
        "ERR",
        "TRR",
        "membership accuracy",
        "pseudonyms named",
    ]
    assert 0.95 < rows["ε"]["measured"] <= 1
    low, high = sorted(rows[f"MRR, {part}"]["measured"] for part in ("confidential", "unrestricted"))
    assert low < rows["MRR, all"]["measured"] < high
    assert rows["pseudonyms named"]["measured"] > rows["pseudonyms named"]["chance"]
