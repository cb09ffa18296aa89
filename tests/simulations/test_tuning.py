"""Settings of private training chosen on public triples: what enters the choice, and what it says."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fedkge
from fedkge.datasets import mark
from fedkge.datasets.confidential import unrestricted
from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.errors import DataError, InputError, SettingError
from fedkge.experiment import DPSettings, Experiment
from fedkge.simulations.cli.main import app
from fedkge.simulations.tuning.candidates import CANDIDATES, candidates_of
from fedkge.simulations.tuning.public_task import pretended
from fedkge.simulations.tuning.tuning import Tuning, half_width, tune_privacy
from tests.client.conftest import random_graph

QUICK = [
    "model.dim=8",
    "model.margin=3.0",
    "training.negatives=1",
    "training.batch_size=64",
    "training.learning_rate=0.1",
    "training.optimizer=SGD",
    "training.loss=margin-ranking",
    "training.corrupt=both",
    "privacy.dp.target_epsilon=8.0",
]
HUBS = Experiment().override([*QUICK, "privacy.dp.options.steps=4", "privacy.dp.options.negatives=4"])
SOUND = Experiment().override([*QUICK, "privacy.dp.mode=sound"])
FEW = {"hubs": {"learning_rate": (0.01, 0.1), "steps": (8,)}, "sound": {"noise_share": (0.5, 4.0)}}


@pytest.fixture(scope="module")
def graph(umls: KnowledgeGraph) -> KnowledgeGraph:
    return mark(umls, "predicates:isa|causes|produces")


def other_confidential(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The same unrestricted triples in every split, as many confidential ones, others."""
    sizes = [graph.num_entities, graph.num_relations, graph.num_entities]
    arrays = {}
    for split in SPLITS:
        triples, marks = graph[split].copy(), graph.marks(split)
        triples[marks] = (triples[marks] + [7, 3, 11]) % sizes
        assert (triples[marks] != graph[split][marks]).all()
        arrays[split] = triples
    return replace(graph, **arrays)


@pytest.mark.parametrize("experiment", [HUBS, SOUND], ids=["hubs", "sound"])
def test_no_confidential_triple_influences_the_answer(experiment: Experiment, graph: KnowledgeGraph) -> None:
    mode = experiment.privacy.dp.mode
    first, second = (
        tune_privacy(experiment, data, epochs=3, candidates=FEW[mode])
        for data in (graph, other_confidential(graph))
    )
    pd.testing.assert_frame_equal(first.table, second.table, check_exact=True)
    assert (first.predicates, first.best) == (second.predicates, second.best)
    assert first.table["mrr"].nunique() > 1  # the options do something, so that equality says something


def test_public_triples_do_influence_it(graph: KnowledgeGraph) -> None:
    """Else the test above would show nothing."""
    fewer = replace(
        graph, train=graph.train[1:], confidential={**graph.confidential, "train": graph.marks("train")[1:]}
    )
    assert not graph.marks("train")[0]
    scores = [tune_privacy(SOUND, data, epochs=2, candidates=FEW["sound"]) for data in (graph, fewer)]
    assert not scores[0].table["mrr"].equals(scores[1].table["mrr"])


def test_the_same_seed_gives_the_same_bits_and_another_another(graph: KnowledgeGraph) -> None:
    first, again, other = (
        tune_privacy(SOUND.override([f"seed={seed}"]), graph, epochs=2, candidates=FEW["sound"]).table
        for seed in (0, 0, 1)
    )
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert not first["mrr"].equals(other["mrr"])


@given(seed=st.integers(0, 50), share=st.floats(0.05, 0.6))
def test_what_is_pretended_is_public_and_within_the_number_of_confidential_triples(
    seed: int, share: float
) -> None:
    graph = mark(random_graph(seed, entities=30, relations=9, triples=300), str(share), seed)
    graph = replace(
        graph, valid=graph.train, confidential={**graph.confidential, "valid": graph.marks("train")}
    )
    task, public = pretended(graph), unrestricted(graph)
    for split in SPLITS:
        np.testing.assert_array_equal(task[split], public[split])
    counts = np.bincount(public.train[:, 1], minlength=9)
    third = sorted(range(9), key=lambda relation: (-counts[relation], relation))[2::3]
    chosen = set(task.train[task.marks("train"), 1].tolist())
    assert chosen <= set(third)
    size = int(graph.marks("train").sum())
    assert counts[list(chosen)].sum() <= size or chosen == {third[-1]}
    for left in set(third) - chosen:  # none of those left out would have fitted beside the larger ones
        larger = [relation for relation in chosen if third.index(relation) < third.index(left)]
        assert counts[[*larger, left]].sum() > size


def test_it_refuses_where_nothing_public_is_left(umls: KnowledgeGraph) -> None:
    with pytest.raises(DataError, match="no unrestricted train triple to mark as if confidential; name"):
        tune_privacy(SOUND, mark(umls, "1.0"))
    with pytest.raises(DataError, match=r"UMLS: no confidential triples, so .* mark some with data\.conf"):
        tune_privacy(SOUND, umls)
    with pytest.raises(DataError, match="all triples are marked as if confidential; leave some"):
        tune_privacy(SOUND, umls, as_if="1.0")
    blind = replace(umls, valid=umls.valid[:0])
    with pytest.raises(DataError, match="no unrestricted valid triple"):
        tune_privacy(SOUND, blind, as_if="predicates:isa")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["privacy.dp.mode=off"], r"privacy\.dp\.target_epsilon: missing; .* add \[privacy\.dp\]"),
        (["privacy.dp.mode=paper"], r'mode "paper": no values to try are known; .*hubs or sound'),
        (["privacy.dp.mode=nothing"], "unknown DP mode"),
    ],
)
def test_mistakes_name_the_remedy(changes: list[str], message: str, graph: KnowledgeGraph) -> None:
    with pytest.raises(InputError, match=message):
        tune_privacy(SOUND.override(changes), graph)


def test_candidates_are_checked_before_any_is_tried(graph: KnowledgeGraph) -> None:
    with pytest.raises(SettingError, match=r"privacy\.dp\.options\.noise_share: expected a number above 0"):
        tune_privacy(SOUND, graph, candidates={"noise_share": (-1.0,)}, watch=_nobody)
    with pytest.raises(SettingError, match=r"privacy\.dp\.options\.stepps: unknown key; did you mean"):
        tune_privacy(HUBS, graph, candidates={"stepps": (5,)}, watch=_nobody)
    with pytest.raises(SettingError, match="1 or more of each"):
        tune_privacy(SOUND, graph, seeds=0, watch=_nobody)


def _nobody(done: int, total: int, title: str) -> None:
    raise AssertionError("a dry run was begun")


def test_one_option_is_changed_at_a_time_and_only_where_it_has_an_effect() -> None:
    for mode in CANDIDATES:
        dp = DPSettings(mode=mode, target_epsilon=1.0)
        given_first, *others = candidates_of(dp, "SGD")
        assert given_first.dp == dp
        assert all(each.dp.options == {each.option: each.value} for each in others)
    sgd, adam = (
        {each.option for each in candidates_of(DPSettings(mode="sound"), name)} for name in ("SGD", "Adam")
    )
    assert sgd ^ adam == {"noise_share", "gradient_share"}
    clipped = {each.option for each in candidates_of(DPSettings(mode="sound", clip=0.1), "SGD")}
    assert clipped == sgd - {"noise_share"}


def test_an_option_is_taken_only_if_it_gains_more_than_its_interval() -> None:
    columns = ["option", "value", "mrr", "gain", "gain_low", "gain_high", "rank"]
    for low, best in ((0.01, {"phase": 0.5, "steps": 30}), (-0.01, {"phase": 0.5}), (np.nan, {"phase": 0.5})):
        rows = [("steps", 30, 0.3, 0.1, low, 0.2, 1), ("", None, 0.2, 0.0, 0.0, 0.0, 2)]
        tuning = Tuning(
            pd.DataFrame(rows, columns=columns, dtype=object), "hubs", ("isa",), {"phase": 0.5}, 1.0
        )
        assert tuning.best == best
        assert tomllib.loads(tuning.lines)["privacy"]["dp"] == {
            "mode": "hubs",
            "target_epsilon": 1.0,
            "options": best,
        }


def test_the_interval_is_students_and_wider_for_more_comparisons() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert half_width(values) == pytest.approx(3.182446 * 1.2909944 / 2)  # t of 3 degrees; s / √n
    assert half_width(values, 5) > half_width(values)
    assert half_width(values[:1]) == np.inf


def test_a_table_is_ranked_and_gains_are_over_what_is_given(graph: KnowledgeGraph) -> None:
    told: list[tuple[int, int, str]] = []
    watch = lambda *now: told.append(now)  # noqa: E731
    tuning = tune_privacy(HUBS, graph, epochs=2, seeds=2, candidates=FEW["hubs"], watch=watch)
    table = tuning.table
    assert table["mrr"].is_monotonic_decreasing
    assert set(table["option"]) == {"", "learning_rate", "steps"}
    assert isinstance(table.loc[table["option"] == "steps", "value"].item(), int)  # as the option is
    as_given = table.loc[table["option"] == "", "mrr"].item()
    np.testing.assert_allclose(table["gain"], table["mrr"] - as_given, atol=1e-12)
    assert [done for done, _, _ in told] == list(range(9))  # four candidates, two seeds, and the end
    assert {total for _, total, _ in told} == {8}
    assert "isa" not in tuning.predicates


def test_the_command_prints_the_table_and_lines_that_a_run_takes(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    changes = [*QUICK, "privacy.dp.mode=sound", "data.confidential=predicates:isa|causes|produces"]
    file.write_text(Experiment().override([*changes, "data.clients=1"]).to_toml(), encoding="utf-8")
    words = ["tune", str(file), "--epochs", "1", "--quiet"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "noise_share" in done.stdout
    assert "gradient_share" not in done.stdout
    lines = done.stdout[done.stdout.index("[privacy.dp]") :]
    assert tomllib.loads(lines)["privacy"]["dp"]["mode"] == "sound"
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told["mode"] == "sound"
    assert len(told["candidates"]) == len(candidates_of(DPSettings(mode="sound"), "SGD"))
    assert Experiment.load(file).override([f"privacy.dp.options.{k}={v}" for k, v in told["best"].items()])


def test_the_command_names_a_client_that_does_not_exist() -> None:
    words = ["tune", "--client", "9", *(word for change in QUICK for word in ("--set", change))]
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, SettingError)
    assert str(error) == "client 9: clients are 0 to 4"


def test_it_is_part_of_the_package() -> None:
    assert fedkge.tune_privacy is tune_privacy
