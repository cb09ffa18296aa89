"""When clients take the mean: federation.sync; and NoGE, which the FedR authors synchronise rarely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fedkge.client.training.ranks import rank
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.runs import run as runs
from fedkge.simulations.runs.run_folder import RunResult
from fedkge.simulations.trained.client_model import load_trained
from fedkge.simulations.trained.prediction import predict
from tests.simulations.mishaps import Crash, crash_in, run_with_dying_workers

Make = Callable[..., Experiment]
NOGE = (
    "data.dataset=synthetic:entities=60,relations=6,triples=300",
    "model.name=NoGE",
    "training.type=KvsAll",
    "training.batch_size=64",
    "training.label_smoothing=0.1",
    "training.max_gradient_norm=0.5",
    "privacy.min_holders=1",
)
SYNCS = ("round", "at-evaluation", "never")


def losses(result: RunResult) -> list[float]:
    """The mean training loss of each round."""
    lines = result.metrics[(result.metrics["split"] == "train") & (result.metrics["metric"] == "loss")]
    return lines.groupby("round")["value"].mean().tolist()


def relation_rows(folder: Path) -> dict[str, list[np.ndarray]]:
    """The exported rows of each relation, one of each client that holds it."""
    rows: dict[str, list[np.ndarray]] = {}
    for client in range(3):
        trained = load_trained(folder, client)
        for label, row in zip(trained.graph.relation_labels, trained.model.tables["relation"], strict=True):
            rows.setdefault(label, []).append(row)
    return rows


def test_each_sync_does_to_training_what_it_says(tiny: Make, tmp_path: Path) -> None:
    """Validation is after rounds 2 and 4 of 4."""
    found = {
        sync: runs.run(tiny(*NOGE, "federation.strategy=FedR", f"federation.sync={sync}"), tmp_path / sync)
        for sync in SYNCS
    }
    always, rarely, never = (losses(found[sync]) for sync in SYNCS)
    assert always[0] == rarely[0] == never[0]
    assert rarely[1] == never[1] != always[1]
    assert rarely[2] != never[2]
    for sync in SYNCS:  # what is ranked and exported is the mean, always
        for label, rows in relation_rows(tmp_path / sync).items():
            for row in rows[1:]:
                np.testing.assert_array_equal(row, rows[0], err_msg=f"{sync}, {label}")


def test_where_every_round_validates_at_evaluation_is_every_round(tiny: Make, tmp_path: Path) -> None:
    for model in (NOGE, ()):
        hashes = [
            runs.run(
                tiny(
                    *model, "federation.evaluate_every=1", "federation.strategy=FedE", f"federation.sync={s}"
                ),
                tmp_path / f"{len(model)}-{s}",
            ).summary["result_hash"]
            for s in SYNCS
        ]
        assert hashes[0] == hashes[1] != hashes[2]


def test_looking_at_the_mean_changes_nothing_where_nobody_ever_takes_it(tiny: Make, tmp_path: Path) -> None:
    often, once = (
        runs.run(
            tiny("federation.strategy=FedER", "federation.sync=never", f"federation.evaluate_every={every}"),
            tmp_path / str(every),
        )
        for every in (1, 4)
    )
    assert losses(often) == losses(once)


@pytest.mark.parametrize("sync", SYNCS)
def test_open_and_secure_sums_agree(sync: str, tiny: Make, secret: Make, tmp_path: Path) -> None:
    changes = (*NOGE, "federation.strategy=FedR", f"federation.sync={sync}", "privacy.rows_from_seed=true")
    plain = runs.run(tiny(*changes), tmp_path / "open")
    masked = runs.run(secret(*changes), tmp_path / "secure")
    assert losses(plain) == pytest.approx(losses(masked), rel=1e-4)
    others = relation_rows(tmp_path / "secure")
    for label, rows in relation_rows(tmp_path / "open").items():
        np.testing.assert_allclose(rows[0], others[label][0], atol=2e-4)


def test_inverse_relations_travel_with_their_relations_and_answer_for_heads(
    tiny: Make, secret: Make, tmp_path: Path
) -> None:
    changes = (
        *NOGE,
        "model.options.inverse_relations=true",
        "training.corrupt=both",
        "evaluation.sides=both",
        "federation.strategy=FedR",
        "privacy.rows_from_seed=true",
    )
    plain = runs.run(tiny(*changes), tmp_path / "open")
    runs.run(secret(*changes), tmp_path / "secure")
    others = relation_rows(tmp_path / "secure")
    for label, rows in relation_rows(plain.folder).items():
        np.testing.assert_allclose(rows[0], others[label][0], atol=2e-4)
        for row in rows[1:]:
            np.testing.assert_array_equal(row, rows[0])
    trained = load_trained(plain.folder, 0)
    graph = trained.graph
    ranks = rank(trained.model, graph, sides="head")
    assert trained.model.tables["relation"].shape[1] == 2 * trained.model.settings.dim
    for (head, relation, tail), better in zip(graph.test, ranks.better[:, 0], strict=True):
        asked, wanted = graph.relation_labels[relation], graph.entity_labels[head]
        answers = predict(plain.folder, 0, asked, tail=graph.entity_labels[tail], top=graph.num_entities)
        offered = [each.label for each in answers.answers if each.known is None or each.label == wanted]
        assert offered.index(wanted) == better


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("make", ["tiny", "secret"])
def test_a_resumed_run_ends_in_the_same_bits(
    sync: str, make: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With running statistics, which are as much a result as rows."""
    experiment = request.getfixturevalue(make)(*NOGE, "federation.strategy=FedR", f"federation.sync={sync}")
    whole = runs.run(experiment, tmp_path / "whole")
    with pytest.raises(Crash):
        runs.run(experiment, tmp_path / "cut", crash_in(3))
    resumed = runs.resume(tmp_path / "cut", experiment=experiment)
    assert resumed.summary["result_hash"] == whole.summary["result_hash"]
    pd.testing.assert_frame_equal(resumed.metrics, whole.metrics)


@pytest.mark.slow
def test_ray_gives_the_same_bits_and_survives_a_dead_worker(
    tiny: Make, tmp_path: Path, ray_running: Any
) -> None:
    changes = (*NOGE, "federation.strategy=FedE", "federation.sync=never")
    inline = runs.run(tiny(*changes), tmp_path / "inline").summary
    experiment = tiny(*changes, "engine.name=ray", "engine.workers=2")
    killed = run_with_dying_workers(experiment, tmp_path / "killed", ray_running, {3})
    assert killed.summary["result_hash"] == inline["result_hash"]


def test_a_run_exports_the_statistics_that_its_scores_need(tiny: Make, out: Path) -> None:
    result = runs.run(tiny(*NOGE, "federation.strategy=FedR"), out)
    saved = load_file(out / "embeddings" / "client-0.safetensors")
    assert set(saved) == {
        "entity", "relation", "layer", "norm_scale", "norm_shift", "node_mean", "node_variance",
    }  # fmt: skip
    assert np.abs(saved["node_mean"]).max() > 0
    mrr = result.summary["utility"]["filters"]["own"]["test"]["mrr"]["value"]
    assert mrr == pytest.approx(result.test("mrr"), rel=1e-6)  # ranked once more, from these files


def test_a_training_that_a_model_cannot_have_is_refused_before_it_begins(tiny: Make, out: Path) -> None:
    with pytest.raises(SettingError, match=r'training\.type = "KvsAll": the score of TransE is no product'):
        runs.run(tiny("training.type=KvsAll"), out)
    with pytest.raises(SettingError, match=r"model\.dim: 6 for NoGE"):
        runs.run(tiny(*NOGE, "model.dim=6"), out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("model.name=DKRL-Mixed", "model.norm=2"), r"^model\.norm: .*; set model\.norm = 1$"),
        (("model.name=DeepWalkMF", "training.type=KvsAll"), r'^training\.type = "KvsAll": DeepWalkMF'),
        (("training.sampler=bernoulli", "training.corrupt=head"), r'set training\.corrupt = "both"$'),
        (("training.negatives_from=batch", "training.shared_negatives=true"), "set it to false$"),
    ],
)
def test_settings_that_no_graph_could_make_right_are_refused_before_anything_starts(
    tiny: Make, out: Path, changes: tuple[str, ...], words: str
) -> None:
    with pytest.raises(SettingError, match=words) as caught:
        runs.run(tiny("federation.strategy=FedE", *changes), out)
    assert "\n" not in str(caught.value)
    assert not out.exists()
