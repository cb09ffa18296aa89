"""The DPKGE studies on a small graph: every method and mode, the attacker, the clusters, the figures."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan

import numpy as np
import pandas as pd
import pytest

from fedkge.attacks.canaries.canary_bound import p_value
from fedkge.datasets.load import load
from fedkge.simulations.studies import RECIPES
from fedkge.simulations.studies.dpkge import dpkge_attacker, dpkge_clusters, dpkge_plots, dpkge_utility
from fedkge.simulations.studies.dpkge.dpkge_cells import Cell, graph_of, measured, train_cell
from fedkge.simulations.studies.dpkge.dpkge_epsilon import epsilon_over_epochs
from fedkge.simulations.studies.dpkge.dpkge_utility import link_cells, measure_cells


@pytest.fixture(scope="module")
def table():
    return measure_cells(link_cells("UMLS", ["TransE"], [1.0], epochs=2, seeds=[0]))


def test_a_table_has_every_method_in_every_mode(table):
    kinds = set(zip(table["method"], table["mode"], strict=True))
    private = {(method, mode) for method in ("DPKGE", "FullDP") for mode in ("paper", "sound")}
    assert kinds == private | {("NDP", "off"), ("U", "off")}
    assert (table["mrr_low"] <= table["mrr"]).all()
    assert (table["mrr"] <= table["mrr_high"]).all()
    assert table["hits"].between(0, 100).all()


def test_only_noise_has_a_finite_epsilon_above_zero(table):
    by_kind = table.set_index(["method", "mode"])["epsilon"]
    assert by_kind["NDP", "off"] == inf
    assert by_kind["U", "off"] == 0
    assert by_kind[["DPKGE", "FullDP"]].between(0.01, 100).all()
    assert set(table["epsilon_is"]) == {"exact", "claimed", "guaranteed"}


def test_the_published_figures_stand_beside_their_own_cells_only(table):
    assert table["published_mr"].isna().all()  # the paper has no UMLS
    cell = Cell("FB15k-237", "TransE", "DPKGE", "paper", 0.7)
    assert cell.published("mr") == 250.45
    assert replace(cell, share=0.25).published("mr") is None
    assert replace(cell, dataset="WN18RR").published("mr") is None


@pytest.mark.parametrize(
    ("dataset", "sigmas"),
    [("FB15k", (0.7, 1.0, 1.3, 10.0)), ("FB15k-237", (0.7, 1.0, 1.3, 10.0)), ("YAGO3-10", (1.0,))],
)
def test_every_cell_that_the_paper_prints_has_both_numbers(dataset, sigmas):
    """In the print noise on all costs more than on half, and more of it costs FullDP more."""
    for model in ("TransE", "TransM", "RESCAL", "DistMult"):
        cells = list(link_cells(dataset, [model], sigmas, 100, [0]))
        ranks = {cell: cell.published("mr") for cell in cells}
        assert None not in ranks.values()
        assert all(0 < cell.published("hits") < 100 for cell in cells)
        for mode in ("paper", "sound"):
            of = {
                method: [ranks[Cell(dataset, model, method, mode, s)] for s in sigmas]
                for method in ("DPKGE", "FullDP")
            }
            assert all(half < full for half, full in zip(of["DPKGE"], of["FullDP"], strict=True))
            assert of["FullDP"] == sorted(of["FullDP"])
        assert ranks[Cell(dataset, model, "NDP")] == min(ranks.values())


@pytest.mark.parametrize(("here", "datasets"), [(True, {"YAGO3-10"}), (False, set())])
def test_the_largest_graph_is_a_choice_where_its_files_are(here, datasets, monkeypatch):
    monkeypatch.setattr(dpkge_utility, "at_hand", lambda name: here)
    recipe = RECIPES["dpkge-link-prediction"]
    assert {cell.keys["dataset"] for cell in recipe.cells("quick")} == {"FB15k-237", "FB15k"}
    listed = {cell.keys["dataset"] for cell in recipe.cells("full", [0])}
    assert listed == {"FB15k-237", "FB15k", "WN18RR"} | datasets
    assert {cell.keys["epochs"] for cell in recipe.cells("full", [0])} == {100}


def test_the_same_cell_gives_the_same_bits_and_another_noise_other_ones():
    cell = Cell("UMLS", "TransE", "DPKGE", "sound", 1.0, epochs=1)
    first, again, other = (train_cell(one) for one in (cell, cell, replace(cell, seed=1)))
    np.testing.assert_array_equal(first.model.tables["entity"], again.model.tables["entity"])
    assert not np.array_equal(first.model.tables["entity"], other.model.tables["entity"])


@pytest.mark.parametrize("model", ["TransM", "DistMult", "RESCAL"])
@pytest.mark.parametrize(("method", "mode"), [("DPKGE", "paper"), ("FullDP", "sound")])
def test_every_model_of_the_paper_trains_in_every_way(model, method, mode):
    trained = train_cell(Cell("UMLS", model, method, mode, 1.0, epochs=1))
    assert not isnan(measured(trained)["mrr"])


def test_a_percentile_of_norms_bounds_sound_training_too() -> None:
    low, high = (
        train_cell(Cell("UMLS", "TransE", "DPKGE", "sound", 1.0, percentile=share, epochs=1)).clip
        for share in (20, 80)
    )
    assert low is not None
    assert high is not None
    assert 0.1 < low < high  # the study's own bound is 0.1


def test_u_never_sees_a_confidential_statement():
    cell = Cell("UMLS", "TransE", "U", epochs=1)
    marked = graph_of("UMLS", 0.5)
    triple = tuple(marked.train[marked.marks("train")][0].tolist())
    whole, without = train_cell(cell), train_cell(replace(cell, without=triple))
    np.testing.assert_array_equal(whole.model.tables["entity"], without.model.tables["entity"])


def test_critical_attacks_are_confidential_and_ask_different_questions():
    graph = graph_of("UMLS", 0.5)
    attacked = dpkge_attacker.critical_attacks(graph, 100, np.random.default_rng(0))
    secret = {tuple(row) for row in graph.train[graph.marks("train")].tolist()}
    assert len(attacked) == 100
    assert {tuple(row) for row in attacked.tolist()} <= secret
    assert len({(head, relation) for head, relation, _ in attacked.tolist()}) == 100


def test_attacked_tails_are_ranked_among_all_entities():
    graph = graph_of("UMLS", 0.5)
    model = train_cell(Cell("UMLS", "TransE", "NDP", epochs=1)).model
    head, relation, tail = graph.train[0]
    every = np.arange(graph.num_entities)
    scores = model.scores_of(np.full(len(every), head), np.full(len(every), relation), every)
    (found,) = dpkge_attacker.tail_ranks(model, graph, graph.train[:1])
    assert abs(found - (1 + (scores > scores[tail]).sum())) <= 0.5


def test_equal_clusters_agree_whatever_their_numbers():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(3, dtype=np.float32) * 10, 20, axis=0)
    near, moved, apart = (centres + rng.normal(0, 0.1, centres.shape).astype(np.float32) for _ in range(3))
    assert dpkge_clusters.agreement([near], [moved + 5], 3, 0)[0] == pytest.approx(1)
    assert dpkge_clusters.agreement([near], [rng.permutation(apart)], 3, 0)[0] < 0.5


def test_clusters_of_ndp_are_the_measure_of_all_others(tmp_path):
    chosen = np.arange(60, dtype=np.int32)
    frame = dpkge_clusters.compare_clusters("UMLS", chosen, runs=1, epochs=1, seed=0, folder=tmp_path)
    assert len(frame) == 3 * 4  # k × methods
    assert frame["nmi"].between(0, 1).all()
    assert frame.loc[frame["method"] == "NDP", "published"].isna().all()


def test_ranks_are_counted_once_each_and_ndp_equals_itself(tmp_path):
    frame = dpkge_attacker.rank_histogram("UMLS", epochs=1, seed=0, count=40, folder=tmp_path)
    kinds = frame.groupby(["method", "mode"])
    assert (kinds["count"].sum() == 40).all()
    assert kinds["p_value"].first()["NDP", "off"] == 1
    assert set(kinds["published_p"].first().dropna()) == {8.28e-44}


def test_a_left_out_statement_is_ranked_with_and_without_it(tmp_path):
    frame = dpkge_attacker.leave_out("UMLS", count=1, epochs=1, seed=0, folder=tmp_path)
    assert list(zip(frame["method"], frame["mode"], strict=True)) == [
        ("NDP", "off"),
        ("DPKGE", "paper"),
        ("DPKGE", "sound"),
    ]
    ranks = frame[["rank_with", "rank_without", "rank_with_reseeded"]]
    assert ranks.map(lambda rank: 1 <= rank <= 135).all(axis=None)
    assert frame.iloc[0]["published_without"] == 9


def test_people_are_heads_of_personal_relations():
    graph = load("UMLS")
    labels = ("/people/person/profession", *graph.relation_labels[1:])
    renamed = replace(graph, relation_labels=labels)
    found = dpkge_clusters.people(renamed, 5, np.random.default_rng(0))
    heads = set(graph.train[graph.train[:, 1] == 0, 0].tolist())
    assert len(found) == min(5, len(heads))
    assert set(found.tolist()) <= heads


def test_the_audit_refutes_the_paper_and_not_sound_training():
    frame = RECIPES["dpkge-audit"]("quick", 0)
    printed = frame[(frame["mode"] == "paper") & (frame["attacker"] == "touched rows")]
    assert (printed["verdict"] == "refuted").all()
    sound = frame[(frame["mode"] == "sound") & (frame["guesses"] > 0)]
    tries = 5 * len(
        frame[frame["mode"] == "sound"]
    )  # numbers of guesses of each attacker: they share the 5 %
    for _, row in sound.iterrows():
        assert p_value(row["correct"], row["guesses"], 600, row["epsilon"], 1e-5) > 0.05 / tries
    able = frame[(frame["batch"] == "all") & (frame["attacker"] == "along the gradient")]
    assert able["at_least"].max() > 2


def test_every_study_has_its_figure(table, tmp_path):
    losses = pd.DataFrame(
        [
            {"model": "TransE", "method": method, "mode": mode, "sigma": sigma, "epoch": epoch, "loss": 1.0}
            for method, mode, sigma in (("NDP", "off", None), ("DPKGE", "sound", 1.0))
            for epoch in (1, 2)
        ]
    ).assign(batches="all")
    ranks = pd.DataFrame({"method": "NDP", "mode": "off", "rank_to": [1, 10], "count": [3, 4]})
    figures = [
        dpkge_plots.plot_trade_off(table),
        dpkge_plots.plot_losses(losses),
        dpkge_plots.plot_epsilon(epsilon_over_epochs("quick")),
        dpkge_plots.plot_shares(table[table["method"] == "DPKGE"]),
        dpkge_plots.plot_attacker(ranks),
    ]
    for number, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{number}.png")
        assert all(axis.has_data() for axis in figure.axes)
