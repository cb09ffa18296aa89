"""Federations under membership attacks, run whole."""

from __future__ import annotations

import numpy as np
import pytest

from fedkge.attacks import ATTACKS
from fedkge.attacks.behaviours import BEHAVIOURS
from fedkge.attacks.coalition import views_of
from fedkge.attacks.recorded_run import RecordedRun
from fedkge.errors import SettingError
from fedkge.simulations.runs import worker
from fedkge.simulations.runs.run import run
from fedkge.simulations.runs.tampered import tamper

GRAPH = "data.dataset=synthetic:entities=300,relations=4,triples=1100,jitter=3.0"
LONG = ("federation.strategy=FedE", GRAPH, "federation.rounds=12", "federation.evaluate_every=6")
STRONG = ("model.dim=16", "training.negatives=8", "training.batch_size=128", "training.learning_rate=0.02")


def areas(findings, target):
    return {f.regime: f for f in findings if f.metric == "auc" and f.target == target}


def test_uploads_in_the_clear_give_members_away(tiny, out):
    run(tiny(*LONG, *STRONG, "data.clients=2", "adversary.record=every"), out)
    recorded = RecordedRun(out)
    server, allied, alone = views_of(recorded, [0], 1.0)
    found = {
        view.adversary: ATTACKS["membership"]().assess(
            view, recorded.truth, "rigorous", np.random.default_rng(0)
        )
        for view in (server, allied, alone)
    }
    assert areas(found["server"], 1)["score (fitted relations), entity-seen"].low > 0.5
    assert areas(found["server + client 0"], 1)["gain, entity-seen"].low > 0.5
    assert set(areas(found["client 0"], 1)) == set()  # it sees no upload of client 1's …
    assert areas(found["client 0"], None)["score, entity-seen"].low > 0.5  # … but what all have in common


def test_masked_uploads_are_at_chance_and_the_aggregate_is_not(secret, out):
    run(secret(*LONG, *STRONG, "adversary.record=last"), out)
    recorded = RecordedRun(out)
    masked, allied, aggregate, _ = views_of(recorded, [0], 1.0)
    rng = np.random.default_rng(0)
    attack = ATTACKS["membership"]()
    assert all(finding.value is None for finding in attack.assess(masked, recorded.truth, "rigorous", rng))
    shown = attack.assess(allied, recorded.truth, "rigorous", rng)
    assert all(areas(shown, client)["score, all"].includes_guessing for client in (1, 2))
    # The colluder's relation rows started from its own secret, so they are fitted to the shared entity rows.
    known = areas(attack.assess(aggregate, recorded.truth, "rigorous", rng), None)
    assert known["score (fitted relations), all"].low > 0.5


LARGE = "data.dataset=synthetic:entities=1200,relations=4,triples=4800,jitter=3.0"


def test_a_tampering_client_sees_the_others_repair(tiny, out):
    findings = areas(tamper(tiny(*LONG, *STRONG, LARGE), out, client=0, round=9), None)
    assert list(out.parent.iterdir()) == [out]  # what was asked and watched is in the run's folder
    assert (out / "tampering-0.json").is_file()
    assert findings["repair, all"].low > 0.5
    assert set(findings) >= {"score before tampering, all", "score after repair, all", "repair, entity-seen"}


@pytest.mark.slow
@pytest.mark.parametrize("from_seed", ["false", "true"])
def test_secure_sums_do_not_hide_the_repair_wherever_rows_start(secret, out, from_seed):
    """Where initial rows come from does not matter. One run's interval is ±.14: four are taken together."""
    rows = f"privacy.rows_from_seed={from_seed}"
    repairs = [
        areas(
            tamper(secret(*LONG, *STRONG, LARGE, rows, f"seed={seed}"), out / str(seed), client=0, round=9),
            None,
        )["repair, all"]
        for seed in range(4)
    ]
    errors = [(repair.high - repair.low) / (2 * 1.96) for repair in repairs]
    pooled = np.mean([repair.value for repair in repairs])
    assert pooled - 1.96 * np.sqrt(np.sum(np.square(errors))) / len(errors) > 0.5


def test_a_round_too_late_to_watch_is_refused(tiny, out):
    with pytest.raises(SettingError, match="expected 1 to 10"):
        tamper(tiny(*LONG), out, client=0, round=11)
    with pytest.raises(SettingError, match="not in the roster"):
        tamper(tiny(*LONG), out, client=3, round=2)
    with pytest.raises(SettingError, match="shares no entity rows"):
        tamper(tiny("federation.strategy=FedR"), out, client=0, round=1)


def test_honest_clients_are_unchanged_by_a_plan_that_only_watches_until_its_round(tiny, out, tmp_path):
    """The malicious client trains as the others do up to its round: the first losses are the same."""
    experiment = tiny(*LONG)
    honest = run(experiment, tmp_path / "honest")
    tamper(experiment, out, client=0, round=9, strength=0.5)
    first, second = (
        result.query("round < 9 and split == 'train'").reset_index(drop=True)
        for result in (honest.metrics, type(honest)(out, {}).metrics)
    )
    assert len(first) > 0
    assert first.equals(second)


def test_behaviours_of_plug_ins_are_put_around_the_client(monkeypatch, tmp_path):
    class Marked:
        """A mod that notes its plan, and passes on."""

        def __init__(self, path):
            self.path = path

        load = classmethod(lambda cls, path: cls(path))

        def __call__(self, message, context, call_next):
            return [self.path.name, *call_next(message, context)]

    monkeypatch.setattr(worker, "app", lambda message, context: [message, context])
    monkeypatch.setitem(BEHAVIOURS, "first", Marked)
    monkeypatch.setitem(BEHAVIOURS, "second", Marked)
    assert "tampering" in BEHAVIOURS
    assert worker._app_of({"data": "x"})("message", "context") == ["message", "context"]
    program = worker._app_of({"first": str(tmp_path / "a"), "second": str(tmp_path / "b")})
    assert program("message", "context") == ["b", "a", "message", "context"]
