"""`hubs`: what one triple can change, what it costs, and that nothing but chosen rows hears of it."""

from __future__ import annotations

from dataclasses import replace
from math import erf, exp, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.client.kernels.gradients import triple_gradients
from fedkge.client.models import MODELS, Model, build_model
from fedkge.client.privacy import PrivateResult, mechanism_of, train_privately
from fedkge.client.privacy.accountant import Event, epsilon, gaussian_sigma
from fedkge.client.privacy.epoch_plan import Stretch
from fedkge.client.privacy.grid import GRID, GridSum, unit_share
from fedkge.client.privacy.hub_step import HubStep, Moved, unit_gradients
from fedkge.client.privacy.mechanism import TrainingSession
from fedkge.client.privacy.normals import Keystream
from fedkge.client.training.negatives import NegativeSampler
from fedkge.client.training.steps import KernelStep
from fedkge.client.training.threads import one_thread
from fedkge.datasets import mark, unrestricted
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.load import load
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from tests.contracts.model import PRIVATE

SECRET = bytes(range(32))
TRAINING = TrainingSettings(batch_size=64, negatives=4, learning_rate=0.5, optimizer="SGD", corrupt="both")
FEW = {"steps": 6, "negatives": 4, "least": 10.0}


def umls() -> KnowledgeGraph:
    """Two relations of UMLS are confidential as a whole."""
    graph = load("UMLS")
    assert isinstance(graph, KnowledgeGraph)
    return mark(graph, "predicates:affects|causes")


def train(
    graph: KnowledgeGraph,
    secret: bytes = SECRET,
    name: str = "TransE",
    epochs: int = 5,
    sigma: float = 1.0,
    **options: object,
) -> tuple[Model, PrivateResult]:
    model = build_model(ModelSettings(name=name, dim=6), unrestricted(graph), 0)
    dp = DPSettings(mode="hubs", sigma=sigma, options={**FEW, **options})
    rng = np.random.default_rng(1)
    return model, train_privately(model, graph, rng, TRAINING, dp, secret, epochs=epochs)


# What one triple can change.


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6, 3e38])
def test_a_triple_counts_for_one_whatever_rows_a_server_sends(name: str, size: float) -> None:
    """Over all rows that it reaches together, on the grid, as the sums have it."""
    graph = umls()
    model = build_model(ModelSettings(name=name, dim=4), unrestricted(graph), 0)
    rng = np.random.default_rng(2)
    for table in model.tables.values():
        table[:] = (rng.normal(size=table.shape) * size).clip(-3e38, 3e38)
    graph = replace(graph, train=np.concatenate([graph.train[:40], [[3, 1, 3], [5, 2, 5]]]), confidential={})
    with np.errstate(all="ignore"), one_thread():
        sampler = NegativeSampler(graph, TRAINING.model_copy(update={"filter_negatives": False}))
        batch = sampler.batch(np.arange(len(graph.train)), rng)
        gradients = triple_gradients(model, KernelStep(model, TRAINING).objective, batch)
        places = {
            "entity": np.where(np.arange(graph.num_entities) % 3, np.arange(graph.num_entities), -1),
            "relation": np.arange(graph.num_relations),
        }
        parts = unit_gradients(model.entity.numpy(), gradients, places)
    square = np.zeros(len(graph.train))
    for triple in range(len(graph.train)):
        for key, table in (("entity", model.entity), ("relation", model.relation)):
            total = GridSum(*table.shape)
            for part, vectors, at in parts:
                if part == key:
                    total.add(vectors[triple : triple + 1], at[triple : triple + 1])
            square[triple] += ((total.sums / GRID) ** 2).sum()
    assert np.isfinite(square).all()
    assert square.max() <= 1.0
    if size == 1.0:
        assert np.median(square) > 0.999  # the bound is used


@pytest.mark.parametrize("name", ["TransE", "DistMult", "RotatE", "TransR"])
def test_a_unit_gradient_is_autograd_s_at_chosen_rows_over_its_length(name: str) -> None:
    """The slow version: the gradient of one triple's loss, rows that are not chosen struck out."""
    graph = umls()
    model = build_model(ModelSettings(name=name, dim=4), unrestricted(graph), 0)
    rng = np.random.default_rng(0)
    sampler = NegativeSampler(graph, TRAINING.model_copy(update={"filter_negatives": False}))
    objective = KernelStep(model, TRAINING).objective
    places = {
        "entity": np.where(np.arange(graph.num_entities) % 2, np.arange(graph.num_entities), -1),
        "relation": np.arange(graph.num_relations),
    }
    with one_thread():
        for place in range(8):
            batch = sampler.batch(np.array([place]), rng)
            gradients = triple_gradients(model, objective, batch)
            dense = {
                "entity": gradients.entity_sums(model.entity.numpy()).rows(_every(model.entity)),
                "relation": gradients.relation_sums(len(model.relation)).rows(_every(model.relation)),
            }
            anchor, target = int(batch.anchors[0]), int(batch.candidates[0, 0])
            if np.count_nonzero(batch.candidates[0] == anchor) + np.count_nonzero(
                batch.candidates[0, 1:] == target
            ):
                continue  # a negative that is one of its own entities adds to the same row
            expected = {"entity": np.zeros(model.entity.shape), "relation": dense["relation"].astype(float)}
            for row in {anchor, target}:
                if places["entity"][row] >= 0:
                    expected["entity"][row] = dense["entity"][row]
            length = sqrt(sum((part**2).sum() for part in expected.values()))
            sums = {key: np.zeros(value.shape) for key, value in expected.items()}
            for key, vectors, at in unit_gradients(model.entity.numpy(), gradients, places):
                if at[0] >= 0:
                    sums[key][at[0]] += vectors[0]
            for key, value in expected.items():
                np.testing.assert_allclose(sums[key], value / max(length, 1e-30), atol=2e-5)


def _every(rows: object) -> np.ndarray:
    return np.arange(len(rows), dtype=np.int32)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), min_size=1, max_size=20),
    st.integers(0, 2**32 - 1),
)
def test_grid_sums_are_exact_in_any_order_and_vectors_never_grow(rows: list[list[float]], seed: int) -> None:
    vectors = np.array(rows)
    with np.errstate(over="ignore"):
        units = vectors * unit_share((vectors**2).sum(axis=1))[:, None]
    units[~np.isfinite(units).all(axis=1)] = 0.0
    places = np.random.default_rng(seed).integers(-1, 4, len(units))
    order = np.random.default_rng(seed).permutation(len(units))
    one, other = GridSum(4, 3), GridSum(4, 3)
    one.add(units, places)
    for i in order:
        other.add(units[i : i + 1], places[i : i + 1])
    np.testing.assert_array_equal(one.sums, other.sums)
    single = GridSum(1, 3)
    single.add(units[:1], np.zeros(1, dtype=np.int64))
    assert ((single.sums / GRID) ** 2).sum() <= 1.0


def test_noise_on_a_grid_is_normal_and_whole() -> None:
    total = GridSum(200, 100)
    noisy = total.noised(3.0, Keystream(SECRET)) * GRID
    np.testing.assert_array_equal(noisy, np.rint(noisy))
    assert np.std(noisy / GRID) == pytest.approx(3.0, rel=0.02)
    assert abs(np.mean(noisy / GRID)) < 0.1
    assert np.mean(np.abs(noisy / GRID) > 6) == pytest.approx(1 - erf(sqrt(2)), rel=0.15)


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_a_triple_says_the_same_bit_for_bit_whatever_another_one_is(name: str, size: float) -> None:
    """|C| is public: one triple stands in the place of another, and no other vector is rounded otherwise."""
    graph = umls()
    model = build_model(ModelSettings(name=name, dim=9), unrestricted(graph), 0)
    for table in model.tables.values():
        table[:] = np.random.default_rng(2).normal(size=table.shape) * size
    triples = graph.train[:61].copy()
    other = triples.copy()
    other[7, [0, 2]] = [11, 11]
    places = {
        "entity": np.arange(graph.num_entities),
        "relation": np.arange(graph.num_relations),
    }
    vectors = []
    for train in (triples, other):
        world = replace(graph, train=train, confidential={})
        rng = np.random.default_rng(5)
        with np.errstate(all="ignore"), one_thread():
            sampler = NegativeSampler(world, TRAINING.model_copy(update={"filter_negatives": False}))
            batch = sampler.batch(np.arange(len(train)), rng)
            gradients = triple_gradients(model, KernelStep(model, TRAINING).objective, batch)
            parts = unit_gradients(model.entity.numpy(), gradients, places)
        vectors.append(np.concatenate([part for _, part, _ in parts], axis=1))
    changed = (vectors[0] != vectors[1]).any(axis=1)
    assert changed.sum() <= 1


# Nothing but chosen rows hears of confidential triples.


def test_rows_that_are_not_chosen_are_those_of_training_without_confidential_triples() -> None:
    """Every step but the noisy ones is on unrestricted triples, so with rates of 0 both models are one."""
    graph = umls()
    model, result = train(graph, learning_rate=1e-30, start=1e-9)
    other, _ = train(unrestricted_like(graph), learning_rate=1e-30, start=1e-9)
    chosen = result.memory["hubs.entity"]
    rest = np.setdiff1d(np.arange(graph.num_entities), chosen)
    assert min(len(chosen), len(rest)) > 0
    np.testing.assert_array_equal(model.tables["entity"][rest], other.tables["entity"][rest])


def unrestricted_like(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The same unrestricted triples; every confidential one has become the same loop at one entity."""
    triples = graph.train.copy()
    relation = triples[graph.marks("train")][0, 1]
    triples[graph.marks("train")] = [0, relation, 0]
    return replace(graph, train=triples)


def test_a_relation_with_few_confidential_triples_is_left_alone() -> None:
    graph = umls()
    place = int(np.flatnonzero(graph.marks("train"))[0])
    lonely = graph.train.copy()
    rare = next(r for r in range(graph.num_relations) if not (graph.train[:, 1] == r).sum() > 5)
    lonely[place, 1] = rare
    _, result = train(replace(graph, train=lonely), sigma=0.5)
    assert rare not in result.memory["hubs.relation"]
    assert set(result.memory["hubs.relation"]) <= set(np.unique(graph.train[graph.marks("train"), 1]))


def test_the_first_epochs_are_training_on_unrestricted_triples_alone() -> None:
    """So a run that stops before the phase has spent nothing, and its model is that of U."""
    graph = umls()
    dp = DPSettings(mode="hubs", options=FEW)
    models = []
    for triples in (graph, unrestricted_like(graph)):
        model = build_model(ModelSettings(dim=6), unrestricted(graph), 0)
        result = train_privately(
            model,
            triples,
            np.random.default_rng(1),
            TRAINING,
            dp,
            SECRET,
            stretch=Stretch(0, 4, 5),
        )
        assert result.events == ()
        models.append(model)
    np.testing.assert_array_equal(models[0].tables["entity"], models[1].tables["entity"])
    np.testing.assert_array_equal(models[0].tables["relation"], models[1].tables["relation"])


# What it costs.


def test_a_run_costs_what_its_target_says_however_it_is_divided_into_rounds() -> None:
    graph = umls()
    dp = DPSettings(mode="hubs", target_epsilon=1.0, options=FEW)
    plan, delta = mechanism_of(dp).plan(graph, TRAINING), mechanism_of(dp).delta(graph)
    sigma = mechanism_of(dp).sigma_within(1.0, plan, 20, delta)
    hubs = mechanism_of(dp.model_copy(update={"sigma": sigma}))
    whole = hubs.cost(plan, Stretch.whole(20), {})
    assert epsilon(whole, delta) == pytest.approx(1.0, abs=1e-6)
    assert epsilon(whole, delta) <= 1.0
    events: list[Event] = []
    memory: dict[str, np.ndarray] = {}
    for first in range(0, 20, 2):
        cost = hubs.cost(plan, Stretch(first, 2, 20), memory)
        events += cost
        if cost:
            memory = {"hubs.entity": np.zeros(0)}
    assert epsilon(events, delta) == pytest.approx(epsilon(whole, delta), abs=1e-9)
    assert sum(event.steps for event in events) == 2 + 6


def test_without_unknown_relations_their_share_goes_to_the_steps() -> None:
    graph = umls()
    marks = graph.marks("train").copy()
    marks[::2] = False
    known = replace(graph, confidential={"train": marks})
    costs = []
    for marked in (graph, known):
        hubs = mechanism_of(DPSettings(mode="hubs", options=FEW))
        costs.append(hubs.cost(hubs.plan(marked, TRAINING), Stretch.whole(10), {}))
    assert [len(cost) for cost in costs] == [3, 2]
    assert epsilon(costs[0], 1e-4) == pytest.approx(epsilon(costs[1], 1e-4), rel=1e-6)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_full_batches_are_accounted_for_by_the_formula_of_the_gaussian_mechanism(
    sigma: float, delta: float
) -> None:
    """ε is where Balle and Wang's curve crosses δ; four steps with twice the noise cost as much as one."""

    def curve(eps: float) -> float:
        def phi(x: float) -> float:
            return 0.5 * (1 + erf(x / sqrt(2)))

        mu = 1 / sigma
        return phi(mu / 2 - eps / mu) - exp(eps) * phi(-mu / 2 - eps / mu)

    found = epsilon([Event(sigma, 1.0, 1)], delta)
    if found > 0:
        assert curve(found) == pytest.approx(delta, rel=2e-2)  # the difference of two like numbers
        assert gaussian_sigma(found, delta) == pytest.approx(sigma, rel=1e-4)
    else:
        assert curve(0.0) <= delta
    assert epsilon([Event(2 * sigma, 1.0, 4)], delta) == pytest.approx(found, abs=1e-8)


def test_the_formula_is_no_more_than_a_mesh_says() -> None:
    """PRV over nearly full batches, which goes another way, gives the same up to its error."""
    exact = epsilon([Event(5.0, 1.0, 30)], 1e-5)
    mesh = epsilon([Event(5.0, 1 - 1e-12, 30)], 1e-5)
    assert exact <= mesh <= exact + 0.03


# The rest of the contract.


def test_the_same_secret_gives_the_same_bits_and_another_one_other_rows() -> None:
    graph = umls()
    (one, _), (two, _), (other, _) = train(graph), train(graph), train(graph, secret=bytes(32))
    np.testing.assert_array_equal(one.tables["entity"], two.tables["entity"])
    assert (one.tables["relation"] != other.tables["relation"]).any()


@pytest.mark.parametrize("name", PRIVATE)
def test_every_model_can_be_trained(name: str) -> None:
    model, result = train(umls(), name=name, epochs=2)
    assert all(np.isfinite(table).all() for table in model.tables.values())
    assert ("relation" in model.tables) == (len(result.memory.get("hubs.relation", [])) > 0)
    assert result.noise == "chosen rows"


def test_rounds_go_on_from_the_memory_of_the_one_before() -> None:
    """Hubs are chosen once, and a run in two calls moves the same rows as in one."""
    graph = umls()
    dp = DPSettings(mode="hubs", options={**FEW, "phase": 0.5})
    model = build_model(ModelSettings(dim=6), unrestricted(graph), 0)
    memory: dict[str, np.ndarray] = {}
    seen = []
    for round in range(4):
        result = train_privately(
            model,
            graph,
            np.random.default_rng(round),
            TRAINING,
            dp,
            bytes([round]) * 32,
            stretch=Stretch(round, 1, 4),
            memory=memory,
        )
        memory = result.memory
        seen.append(memory.get("hubs.entity"))
    assert seen[:2] == [None, None]
    np.testing.assert_array_equal(seen[2], seen[3])
    assert memory["hubs.progress"][0] == 6


def test_training_helps_where_relations_are_confidential_as_a_whole() -> None:
    """With little noise, true triples beat those with a random tail more often than with all noise."""
    graph = umls()
    head, relation, tail = graph.train[graph.marks("train")].T
    random = np.random.default_rng(0).integers(0, graph.num_entities, len(tail), dtype=np.int32)
    wins = {}
    for sigma in (0.02, 1e6):
        model, _ = train(graph, sigma=sigma, epochs=20, steps=20, least=0.0)
        ahead = model.scores_of(head, relation, tail) > model.scores_of(head, relation, random)
        wins[sigma] = float(np.mean(ahead))
    assert wins[0.02] > wins[1e6] + 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": 0.5}, r"privacy\.dp\.clip: mode \"hubs\" makes every gradient as long as 1"),
        ({"noise": "lazy"}, r"privacy\.dp\.noise"),
        ({"options": {"choice": 0.5, "start": 0.5}}, "leave nothing of the budget for steps"),
        ({"options": {"stepz": 3}}, "stepz"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    graph = umls()
    with pytest.raises(SettingError, match=message):
        mechanism_of(DPSettings(mode="hubs", **settings)).check(MODELS["TransE"], graph, TRAINING)


class Silent(Keystream):
    """Noise of zero."""

    def normals(self, count: int) -> np.ndarray:
        return np.zeros(count)


def test_another_triple_in_the_place_of_one_changes_the_sums_of_a_step_by_two_at_most() -> None:
    """The whole step as it runs, noise taken out: one triple's vector goes, another's comes."""
    graph = umls()
    place = int(np.flatnonzero(graph.marks("train"))[3])
    other = graph.train.copy()
    other[place, [0, 2]] = (other[place, [0, 2]] + 5) % graph.num_entities
    sums = []
    for triples in (graph, replace(graph, train=other)):
        model = build_model(ModelSettings(dim=6), unrestricted(graph), 0)
        mechanism = mechanism_of(DPSettings(mode="hubs", options={**FEW, "least": 0.0}))
        plan = mechanism.plan(triples, TRAINING)
        rng, kernel = np.random.default_rng(0), KernelStep(model, TRAINING)
        session = TrainingSession(model, triples, rng, TRAINING, plan, kernel, SECRET)
        session.noise = Silent(SECRET)
        step = mechanism.step(session)
        assert isinstance(step, HubStep)
        with one_thread():
            batch = next(mechanism.batches(session).confidential())
            every = {name: np.arange(len(table)) for name, table in model.tables.items()}
            step.moved = {name: Moved(rows, model.tables[name]) for name, rows in every.items()}
            gradients, _ = step._noisy_gradients(batch, 1.0)
        sums.append(np.concatenate([rows.ravel() for rows in gradients.values()]))
    change = np.linalg.norm(sums[0] - sums[1])
    assert 0 < change <= 2
    assert np.linalg.norm(sums[0]) > 20  # beside what all triples say together
