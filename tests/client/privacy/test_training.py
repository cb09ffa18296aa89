"""Private training: the same bits for the same secret, nothing private on any way but the noised one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fedkge.client.models import Model, build_model
from fedkge.client.privacy import EpochPlan, PrivateResult, mechanism_of, train_privately
from fedkge.client.privacy.accountant import Event
from fedkge.client.privacy.as_printed.paper import PaperStep
from fedkge.client.privacy.iterates import IterateMean
from fedkge.client.privacy.sound import SoundStep
from fedkge.client.training.negatives import Batch
from fedkge.datasets import mark, unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from tests.contracts.model import PRIVATE

SECRET = bytes(range(32))
SMALL = TrainingSettings(batch_size=16, negatives=3, learning_rate=0.05, optimizer="SGD")


def train(
    graph: KnowledgeGraph,
    dp: DPSettings | None = None,
    secret: bytes = SECRET,
    name: str = "TransE",
    settings: TrainingSettings = SMALL,
    epochs: int = 2,
    spare: bool = False,
) -> tuple[Model, PrivateResult]:
    model = build_model(ModelSettings(name=name, dim=4), unrestricted(graph), 0)
    rng = np.random.default_rng(1)
    dp = dp or DPSettings(mode="sound")
    return model, train_privately(model, graph, rng, settings, dp, secret, epochs=epochs, spare=spare)


def other_confidential(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The same unrestricted triples, as many confidential ones, all of them different."""
    triples = graph.train.copy()
    marks = graph.marks("train")
    triples[marks] = (triples[marks] + [7, 1, 11]) % [
        graph.num_entities,
        graph.num_relations,
        graph.num_entities,
    ]
    return replace(graph, train=triples)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, Batch]]:
    """Every step of a training: whether it is confidential, and its batch."""
    seen: list[tuple[bool, Batch]] = []
    for kind in (SoundStep, PaperStep):
        for verb in ("unrestricted", "confidential"):
            step = getattr(kind, verb)

            def spy(self, batch, step=step, confidential=verb == "confidential"):
                seen.append((confidential, batch))
                return step(self, batch)

            monkeypatch.setattr(kind, verb, spy)
    return seen


@pytest.mark.parametrize("mode", ["sound", "paper"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_the_same_secret_gives_the_same_bits_and_another_does_not(mode: str, optimizer: str, marked) -> None:
    settings = SMALL.model_copy(update={"optimizer": optimizer})
    dp = DPSettings(mode=mode)
    tables = [
        train(marked, dp, secret, settings=settings)[0].tables for secret in (SECRET, SECRET, bytes(32))
    ]
    for name in ("entity", "relation"):
        assert tables[0][name].tobytes() == tables[1][name].tobytes()
        assert (tables[0][name] != tables[2][name]).all()


@pytest.mark.parametrize("name", PRIVATE)
def test_every_model_trains_soundly(name: str, marked) -> None:
    model, result = train(marked, name=name, epochs=1)
    assert all(np.isfinite(table).all() for table in model.tables.values())
    assert np.isfinite(result.losses).all()


def test_unrestricted_batches_tell_nothing_about_confidential_triples(marked, steps) -> None:
    """Not by their order, not by negatives that known answers are missing from."""
    _, first = train(marked)
    mine, steps[:] = list(steps), []
    _, second = train(other_confidential(marked))
    assert [c for c, _ in mine] == [c for c, _ in steps]
    for (confidential, a), (_, b) in zip(mine, steps, strict=True):
        if not confidential:
            for part, other in zip(a[:3], b[:3], strict=True):
                np.testing.assert_array_equal(part, other)
    assert first.triples == second.triples
    assert first.events == second.events


def test_negatives_of_confidential_triples_are_not_filtered(marked, steps) -> None:
    """A graph where one head has all tails but one: filtered negatives would all be that one."""
    triples = marked.train.copy()
    confidential = np.flatnonzero(marked.marks("train"))[:39]
    triples[confidential] = [(0, 0, tail) for tail in range(39)]
    train(replace(marked, train=triples), epochs=4)
    drawn = {
        int(negative)
        for private, batch in steps
        if private
        for anchor, relation, candidates in zip(*batch[:3], strict=True)
        if (anchor, relation) == (0, 0)
        for negative in candidates[1:]
    }
    assert len(drawn) > 20


def test_sparing_leaves_confidential_triples_out_of_everything(marked) -> None:
    spared, result = train(marked, spare=True)
    other, _ = train(other_confidential(marked), secret=bytes(32), spare=True)
    for name, table in spared.tables.items():
        assert table.tobytes() == other.tables[name].tobytes()
    assert result.events == ()
    assert result.noise == "none"
    assert result.triples == 2 * len(unrestricted(marked).train)


def test_confidential_batches_are_poisson_samples(marked, steps) -> None:
    _, result = train(marked, epochs=60)
    sizes = np.array([len(batch.anchors) for private, batch in steps if private])
    plan = mechanism_of(DPSettings(mode="sound")).plan(marked, SMALL)
    count, rate = plan.num_confidential, plan.rate
    assert result.events == (Event(1.0, rate, len(sizes)),)
    assert len(sizes) == 60 * -(-count // 16)
    assert abs(sizes.mean() - 16) < 5 * np.sqrt(count * rate * (1 - rate) / len(sizes))
    assert sizes.std() > 2


def test_the_paper_walks_over_all_triples_in_batches_of_the_root(marked, steps) -> None:
    _, result = train(marked, DPSettings(mode="paper"), epochs=1)
    marks = marked.marks("train")
    size = int(np.sqrt(len(marked.train)))
    for confidential in (True, False):
        found = [batch for private, batch in steps if private is confidential]
        assert {len(batch.anchors) for batch in found[:-1]} == {size}
        heads = np.sort(np.concatenate([batch.anchors for batch in found]))
        np.testing.assert_array_equal(heads, np.sort(marked.train[marks == confidential, 0]))
    assert result.noise == "touched rows"


def test_the_paper_leaves_other_rows_without_noise(marked, steps) -> None:
    model, _ = train(marked, DPSettings(mode="paper"), epochs=1)
    touched = {int(e) for _, batch in steps for e in (*batch.anchors, *batch.candidates.ravel())}
    start = build_model(ModelSettings(dim=4), unrestricted(marked), 0).tables["entity"]
    moved = set(np.flatnonzero((model.tables["entity"] != start).any(axis=1)).tolist())
    assert moved == touched


@pytest.mark.parametrize(("unrestricted_count", "confidential_count"), [(30, 10), (10, 30), (5, 5), (0, 4)])
def test_the_order_of_batches_follows_the_ratio(unrestricted_count: int, confidential_count: int) -> None:
    plan = EpochPlan(unrestricted_count * 10, confidential_count * 10, 10, 10, confidential_count)
    order = list(plan.order(np.random.default_rng(0)))
    assert (order.count(False), order.count(True)) == (unrestricted_count, confidential_count)
    share = confidential_count / (unrestricted_count + confidential_count)
    for length in range(1, len(order) + 1):
        assert abs(sum(order[:length]) - share * length) <= 1.5


def test_without_unrestricted_triples_there_is_no_loss_to_tell(marked) -> None:
    every = mark(replace(marked, confidential={}), "1.0")
    _, result = train(every, DPSettings(mode="sound", clip=0.5))
    assert np.isnan(result.losses).all()
    assert np.isfinite(result.confidential_losses).all()


def test_without_a_clip_all_noise_of_a_run_is_a_share_of_the_rows(marked) -> None:
    """SGD: rate · σ · bound / batch in all steps adds up to that share of the rows' root mean square."""
    model, result = train(marked, DPSettings(mode="sound", sigma=2.0, options={"noise_share": 0.5}))
    rows = build_model(model.settings, unrestricted(marked), 0).tables["entity"].astype(np.float64)
    (event,) = result.events
    batch = event.rate * marked.marks("train").sum()
    noise = SMALL.learning_rate * 2.0 * result.clip / batch * np.sqrt(event.steps)
    assert noise == pytest.approx(0.5 * np.sqrt(np.mean(rows**2)), rel=1e-5)


def test_a_bound_by_rule_does_not_look_at_confidential_triples(marked) -> None:
    """Adagrad takes a share of the median gradient of unrestricted triples, whatever the others are."""
    settings = SMALL.model_copy(update={"optimizer": "Adagrad"})
    (_, first), (_, second) = (
        train(graph, DPSettings(mode="sound"), settings=settings)
        for graph in (marked, other_confidential(marked))
    )
    assert first.clip == second.clip > 0


def test_sound_training_takes_no_percentile(marked) -> None:
    assert mechanism_of(DPSettings(mode="paper")).bound is None  # it looks at each batch
    with pytest.raises(SettingError, match=r'privacy\.dp\.percentile: mode "sound" takes no percentile'):
        train(marked, DPSettings(mode="sound", percentile=50))


def test_no_confidential_triples_are_refused(marked) -> None:
    with pytest.raises(
        DataError, match=r"no confidential triples, but privacy\.dp\.mode = \"sound\"; mark some"
    ):
        train(replace(marked, confidential={}))


def test_delta_must_be_below_one_over_the_confidential_triples(marked) -> None:
    count = int(marked.marks("train").sum())
    assert mechanism_of(DPSettings(mode="sound")).delta(marked) < 1 / count
    with pytest.raises(
        SettingError, match=rf"0\.01 is not below 1 / {count} .* set privacy\.dp\.delta = 0\.004"
    ):
        train(marked, DPSettings(mode="sound", delta=0.01))
    assert "not below" in mechanism_of(DPSettings(mode="paper", delta=0.01)).check_delta(marked)
    assert mechanism_of(DPSettings(mode="paper")).delta(marked) == 1 / len(marked.train)


def test_transm_must_not_count_confidential_triples(marked) -> None:
    model = build_model(ModelSettings(name="TransM", dim=4), marked, 0)
    with pytest.raises(SettingError, match="relation weights of TransM count confidential triples"):
        train_privately(model, marked, np.random.default_rng(0), SMALL, DPSettings(mode="sound"), SECRET)


def test_bernoulli_probabilities_come_from_unrestricted_triples(marked, monkeypatch) -> None:
    settings = SMALL.model_copy(update={"corrupt": "both", "sampler": "bernoulli"})
    seen = []
    from fedkge.client.training import negatives

    count = negatives.head_shares
    monkeypatch.setattr(negatives, "head_shares", lambda graph: seen.append(len(graph.train)) or count(graph))
    train(marked, settings=settings, epochs=1)
    assert set(seen) == {len(unrestricted(marked).train)}


def test_a_model_that_the_paper_mode_cannot_clip_is_refused(marked) -> None:
    with pytest.raises(
        SettingError, match='"paper" is not supported for TransR, because it clips statements'
    ):
        train(marked, DPSettings(mode="paper"), name="TransR")


def test_other_devices_are_refused(marked) -> None:
    with pytest.raises(SettingError, match=r"training\.device: private training runs on the processor"):
        train(marked, settings=SMALL.model_copy(update={"device": "cuda"}))


def test_a_bound_that_is_given_is_used(marked) -> None:
    _, result = train(marked, DPSettings(mode="sound", clip=0.25))
    assert result.clip == 0.25


def test_more_noise_moves_rows_further(marked) -> None:
    start = build_model(ModelSettings(dim=4), unrestricted(marked), 0).tables["entity"]
    moves = [
        np.linalg.norm(
            train(marked, DPSettings(mode="sound", sigma=sigma, clip=0.03))[0].tables["entity"] - start
        )
        for sigma in (0.1, 3.0, 30.0)
    ]
    assert moves[0] < moves[1] < moves[2]


@pytest.mark.parametrize("noise", ["lazy", "dense"])
def test_averaging_releases_the_mean_of_the_last_iterates_each_noised_in_every_row(
    noise: str, marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterates = []
    take = IterateMean.take

    def spy(self, iterate):
        iterates.append({name: rows.copy() for name, rows in iterate.items()})
        take(self, iterate)

    monkeypatch.setattr(IterateMean, "take", spy)
    dp = DPSettings(mode="sound", noise=noise, options={"average": 0.5})
    model, result = train(marked, dp, epochs=4)
    steps = sum(event.steps for event in result.events)
    assert 2 <= len(iterates) <= min(20, steps // 2)
    for name, table in model.tables.items():
        mean = np.mean([iterate[name].astype(np.float64) for iterate in iterates], axis=0)
        assert np.array_equal(table, mean.astype(np.float32))
        for before, after in pairwise(iterates):
            assert (before[name] != after[name]).any(axis=1).all()


def test_averaging_changes_what_is_released_and_nothing_that_it_costs(marked) -> None:
    plain, averaged = (
        train(marked, DPSettings(mode="sound", options={"average": share}), epochs=4) for share in (0.0, 0.5)
    )
    assert (plain[0].tables["relation"] != averaged[0].tables["relation"]).all()
    assert plain[1].events == averaged[1].events


@pytest.mark.parametrize(("steps", "averaged"), [(7, 3), (100, 40), (50, 50), (3, 0)])
def test_iterates_are_evenly_apart_and_the_last_is_among_them(steps: int, averaged: int) -> None:
    mean = IterateMean(steps, averaged)
    due = [step for step in range(1, steps + 1) if mean.due()]
    assert len(due) <= 20
    assert all(step > steps - averaged for step in due)
    assert not averaged or due[-1] == steps
    assert len(set(np.diff(due).tolist())) <= 1
