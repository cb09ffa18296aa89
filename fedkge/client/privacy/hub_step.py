"""The steps of `hubs`: who is a hub, where unknown relations start, and how both move."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.gradients import TripleGradients, triple_gradients
from fedkge.client.kernels.pairwise import candidate_gradients
from fedkge.client.kernels.scatter import group, take_rows
from fedkge.client.privacy.grid import GridSum, unit_share
from fedkge.client.privacy.mechanism import PrivateStep, TrainingSession, confidential_part
from fedkge.client.training.negatives import Batch
from fedkge.client.training.optimizers import State
from fedkge.datasets.graph import KnowledgeGraph

__all__ = ["HubStep", "Schedule", "unit_gradients"]

_CHUNK = 2**22  # floats of candidates' gradients held at once
_SURE = 3.8  # deviations of noise: of 10,000 rows without a confidential triple, one passes for a hub
_COUNTED = 1.0  # what a triple adds to the count of its relation, beside a vector of length 1

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """How many steps a run has and how they move rows."""

    steps: int
    learning_rate: float
    momentum: float
    averaged: int  # the last so many iterates
    least: float  # confidential triples of a hub


class Moved:
    """The rows of one table that confidential triples may move, and how they have moved so far."""

    def __init__(self, rows: Places, table: Floats, velocity: Numbers | None = None) -> None:
        self.rows, self.table = rows, table
        self.velocity = np.zeros((len(rows), table.shape[1])) if velocity is None else velocity
        self.total = np.zeros((len(rows), table.shape[1]))  # of the iterates to be averaged
        self.places = np.full(len(table), -1, dtype=np.int64)
        self.places[rows] = np.arange(len(rows))

    def move(self, gradient: Numbers, momentum: float, variance: float, rate: float) -> None:
        """Against the velocity of a noisy gradient (r, w), shrunk by what its noise explains.

        The positive part of James and Stein's factor, for noise of that variance in each number of the
        velocity; the step is relative to the velocity's own size.
        """
        self.velocity *= momentum
        self.velocity += gradient
        width = self.velocity.shape[1]
        square = np.maximum((self.velocity**2).sum(axis=1, keepdims=True), 1e-30)
        shrunk = np.maximum(0.0, 1 - max(width - 2, 1) * variance / square)
        self.table[self.rows] -= (rate * shrunk * self.velocity / np.sqrt(square / width)).astype(np.float32)


class HubStep(PrivateStep):
    """Full-batch steps on the rows of hubs and of relations, and of nothing else.

    Hubs are chosen, and relations that no unrestricted triple knows are started, before the first of them.
    """

    noise_name = "chosen rows"
    bound = 1.0

    def __init__(
        self,
        session: TrainingSession,
        public: KnowledgeGraph,
        schedule: Schedule,
        choice: float,
        start: float,
        step: float,
    ) -> None:
        super().__init__(session.kernel)
        self.session, self.public, self.schedule = session, public, schedule
        self.choice, self.start, self.deviation = choice, start, step  # noise per sensitivity
        self.moved: dict[str, Moved] = {}
        self.variance = 0.0  # of the noise in a velocity
        self.done = self.num_averaged = 0
        if session.memory:
            self._recall(session.memory)

    def confidential(self, batch: Batch) -> float:
        if not self.moved:
            self._choose()
            if self.start:
                self._begin(batch)
        gradients, loss = self._noisy_gradients(batch, self.deviation)
        schedule = self.schedule
        self.variance = schedule.momentum**2 * self.variance + self.deviation**2
        rate = schedule.learning_rate * (1 - self.done / schedule.steps)
        for name, moved in self.moved.items():
            moved.move(gradients[name], schedule.momentum, self.variance, rate)
            self._apply_term(self._names[name], moved)
        self.done += 1
        if self.done > schedule.steps - schedule.averaged:
            self.num_averaged += 1
            for moved in self.moved.values():
                moved.total += moved.table[moved.rows]
        return loss

    def finish(self) -> None:
        """The mean of the last iterates stands for them."""
        if self.num_averaged:
            for moved in self.moved.values():
                moved.table[moved.rows] = (moved.total / self.num_averaged).astype(np.float32)

    def memory(self) -> State:
        """Chosen rows and velocities come of noisy sums alone: they are as private as the model."""
        state: State = {}
        for name, moved in self.moved.items():
            state[f"hubs.{name}"] = moved.rows
            state[f"hubs.{name}.velocity"] = moved.velocity
        if self.moved:
            state["hubs.progress"] = np.array([self.done, self.variance])
        return state

    def _recall(self, memory: State) -> None:
        for name, table in self._tables().items():
            self.moved[name] = Moved(memory[f"hubs.{name}"], table, memory[f"hubs.{name}.velocity"].copy())
        done, variance = memory["hubs.progress"].tolist()
        self.done, self.variance = int(done), float(variance)

    @property
    def _names(self) -> dict[str, str]:
        """Tables by the vocabulary of their rows: a model without an encoder has these two, or one."""
        model = self.kernel.model
        names = {"entity": model.entity_table, "relation": model.relation_table}
        return {key: name for key, name in names.items() if name in model.tables}

    def _tables(self) -> dict[str, Floats]:
        tables = self.kernel.model.tables
        return {key: tables[name] for key, name in self._names.items()}

    def _apply_term(self, name: str, moved: Moved) -> None:
        """The strategy's term depends on what is public and on the model alone."""
        term = self.kernel.term
        if term is None:
            return
        rows = moved.rows.astype(np.int32)
        addition = term.gradient(name, rows, moved.table[moved.rows])
        if addition is not None:
            moved.table[moved.rows] -= np.float32(self.kernel.optimizer.learning_rate) * addition

    def _choose(self) -> None:
        """Rows that enough confidential triples touch, by counts with noise.

        A triple counts once at its relation and once at each entity that it has: √3 at most.
        """
        head, relation, tail = confidential_part(self.session.graph).train.T.astype(np.int64)
        sensitivity = sqrt(3)
        deviation = sensitivity * self.choice
        least = max(self.schedule.least, _SURE * deviation)
        for name, table in self._tables().items():
            touched = [relation] if name == "relation" else [head, tail[tail != head]]
            counts = np.bincount(np.concatenate(touched), minlength=len(table))
            noisy = counts + np.rint(self.session.noise.normals(len(table)) * deviation)
            self.moved[name] = Moved(np.flatnonzero(noisy > least), table)

    def _begin(self, batch: Batch) -> None:
        """Start the relations that no unrestricted triple knows, or, where a model cannot name the row that
        fits a pair, begin with a first gradient that has little noise."""
        fitting = self._fitting_rows()
        if fitting is None:
            gradients, _ = self._noisy_gradients(batch, self.start)
            reach = 1 / (1 - self.schedule.momentum)  # of a gradient that all steps so far had in common
            for name, moved in self.moved.items():
                moved.velocity = reach * gradients[name]
            self.variance = (reach * self.start) ** 2
        elif len(fitting):
            self._start_relations(fitting)

    def _fitting_rows(self) -> Numbers | None:
        """(c, v) the relation row that fits each confidential triple best, in units of a public length."""
        between = self._between(confidential_part(self.session.graph))
        known = self._between(self.public)
        if between is None or known is None:
            return None
        self._unit = float(np.median(np.linalg.norm(known, axis=1))) if len(known) else 1.0
        self._unit = max(self._unit, 1e-6)
        rows = between / self._unit
        square = (rows**2).sum(axis=1)
        fitting: Numbers = rows * np.minimum(1.0, unit_share(square))[:, None]
        return np.where(np.isfinite(fitting), fitting, 0.0)

    def _between(self, graph: KnowledgeGraph) -> Numbers | None:
        model = self.kernel.model
        head, _, tail = torch.from_numpy(graph.train.astype(np.int64)).T
        with torch.no_grad():
            rows = model.relation_between(model.entity[head], model.entity[tail])
        return None if rows is None else rows.double().numpy()

    def _start_relations(self, fitting: Numbers) -> None:
        """The noisy mean of what fits each triple: a vector of length 1 and a count change by one triple."""
        moved = self.moved["relation"]
        unknown = np.bincount(self.public.train[:, 1], minlength=len(moved.table)) == 0
        chosen = moved.rows[unknown[moved.rows]]
        places = np.full(len(moved.table), -1, dtype=np.int64)
        places[chosen] = np.arange(len(chosen))
        at = places[confidential_part(self.session.graph).train[:, 1]]
        deviation = sqrt(1 + _COUNTED**2) * self.start
        sums, counts = GridSum(len(chosen), fitting.shape[1]), GridSum(len(chosen), 1)
        sums.add(fitting, at)
        counts.add(np.full((len(at), 1), _COUNTED), at)
        noise = self.session.noise
        mean = sums.noised(deviation, noise) / np.maximum(counts.noised(deviation, noise) / _COUNTED, 1.0)
        moved.table[chosen] = (self._unit * mean).astype(np.float32)

    def _noisy_gradients(self, batch: Batch, deviation: float) -> tuple[dict[str, Numbers], float]:
        """Sums of unit gradients with noise, by table, and the mean loss, which is for nobody."""
        sums = {name: GridSum(len(moved.rows), moved.table.shape[1]) for name, moved in self.moved.items()}
        places = {name: moved.places for name, moved in self.moved.items()}
        model, loss = self.kernel.model, 0.0
        step = max(1, _CHUNK // (batch.candidates.shape[1] * model.entity.shape[1]))
        for start in range(0, len(batch.anchors), step):
            part = batch.part(start, start + step)
            gradients = triple_gradients(model, self.kernel.objective, part)
            for name, vectors, at in unit_gradients(model.entity.numpy(), gradients, places):
                sums[name].add(vectors, at)
            loss += float(gradients.losses.sum(dtype=np.float64))
        noise = self.session.noise
        noisy = {name: total.noised(deviation, noise) for name, total in sums.items()}
        return noisy, loss / max(len(batch.anchors), 1)


def unit_gradients(
    table: Floats, gradients: TripleGradients, places: dict[str, Places]
) -> list[tuple[str, Numbers, Places]]:
    """The gradients of single triples at chosen rows alone, made as long as 1 each over all of them together.

    Args:
        table: (entities, w) the rows that are scored.
        places: by vocabulary, the place of each chosen row; negative: it is not chosen.

    Returns:
        Vectors (b, w) with the places (b,) that they belong to: relations, anchors, targets.
    """
    batch = gradients.batch
    anchors, targets = batch.anchors, batch.candidates[:, 0]
    at_anchor, at_target = places["entity"][anchors], places["entity"][targets]
    anchor_rows = gradients.anchor_rows.astype(np.float64) * (at_anchor >= 0)[:, None]
    target_rows = _target_rows(table, gradients).astype(np.float64) * (at_target >= 0)[:, None]
    same = anchors == targets
    anchor_rows[same] += target_rows[same]
    target_rows[same] = 0.0
    parts = [("entity", anchor_rows, at_anchor), ("entity", target_rows, at_target)]
    if "relation" in places:
        at = places["relation"][batch.relations]
        parts.insert(0, ("relation", gradients.relation_rows.astype(np.float64) * (at >= 0)[:, None], at))
    square = np.sum([(rows**2).sum(axis=1) for _, rows, _ in parts], axis=0)
    share = unit_share(square)
    broken = share == 0  # infinite, not a number, or nothing to say
    for _, rows, _ in parts:
        rows *= share[:, None]
        rows[broken] = 0.0
    return parts


def _target_rows(table: Floats, gradients: TripleGradients) -> Floats:
    """(b, w) the gradient of each triple at the row of its own answer."""
    batch = gradients.batch
    width = gradients.coefficients.shape[1]
    if gradients.candidate_rows is not None:
        return gradients.candidate_rows[::width]
    own_rows = take_rows(table, np.ascontiguousarray(batch.candidates[:, 0]))
    every: Ids = np.arange(len(own_rows), dtype=np.int32)
    pairs = group(every, len(own_rows))
    out = np.empty_like(own_rows)
    slopes = np.ascontiguousarray(gradients.coefficients[:, 0])
    candidate_gradients(gradients.comparison, gradients.queries, own_rows, slopes, pairs, every, out)
    return out
