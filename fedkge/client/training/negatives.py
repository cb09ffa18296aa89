"""Candidates for every triple of a batch: its own entity first, then entities drawn from the client's.

Under `negatives_from = "seen"` those of train triples alone are drawn: an entity that is held out would else
be a wrong answer to everything.

Known answers are left out exactly, and every entity that is left is equally likely: a draw that hits a known
one is drawn again; where most are known, a draw is a number among the *others*, counted past the sorted known
ones. Only train triples are known here: a sampler that avoided test triples would be told the answers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkge.client.kernels.arrays import Floats, Ids
from fedkge.client.kernels.corruption import Batch, arrange, draw, strike_out
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.lookup import Lookup
from fedkge.errors import SettingError
from fedkge.experiment import TrainingSettings

__all__ = ["Batch", "NegativeSampler", "answer_counts", "check_negatives", "head_shares", "others"]


class NegativeSampler:
    """Draws negatives for the train triples of one graph; `counted` is the graph whose counts may be used.

    With a `pool`, (m,) entities or −1 for none, negatives are drawn from it alone. Which entities are seen is
    counted too; where none is, all are drawn.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        settings: TrainingSettings,
        counted: KnowledgeGraph | None = None,
        pool: Ids | None = None,
    ) -> None:
        if settings.negatives_from == "first" and pool is None:
            raise SettingError(
                'training.negatives_from: "first" counts by shared numbers of entities, which open training '
                'with a strategy that shares them has, such as FedE; set it to "own"'
            )
        check_negatives(settings)
        self.pool = pool
        self.in_batch = settings.negatives_from == "batch"
        self.triples = graph.train
        self.num_entities = graph.num_entities
        self.num_negatives = settings.negatives
        self.filtered = settings.filter_negatives
        self.shared = settings.shared_negatives
        self.replace_head = _replace_head(graph, settings, counted or graph)  # (n,) probability
        head, relation, tail = graph.train.T
        tails = Lookup.build(head, relation, tail, graph.num_relations)
        heads = Lookup.build(tail, relation, head, graph.num_relations)
        self.offered = _seen(counted or graph) if settings.negatives_from == "seen" else None
        self.num_offered = self.num_entities if self.offered is None else len(self.offered)
        self.known = np.concatenate([tails.values, heads.values])
        tail_starts, tail_stops = tails.spans(head, relation)
        head_starts, head_stops = heads.spans(tail, relation)
        shift = len(tails.values)
        self.starts = np.stack([tail_starts, head_starts + shift])  # (2, n) where the known answers are
        self.stops = np.stack([tail_stops, head_stops + shift])
        if self.offered is not None:
            self._renumber(self.offered)

    def batch(self, places: NDArray[np.int64], rng: np.random.Generator) -> Batch:
        """The train triples at those places, each with its own negatives (or all with the same)."""
        chances = rng.random(len(places), dtype=np.float32)
        anchors, relations = np.empty((2, len(places)), dtype=np.int32)
        starts, stops = np.empty((2, len(places)), dtype=np.int64)
        candidates = np.empty((len(places), 1 + self.num_negatives), dtype=np.int32)
        rows = (self.triples, self.replace_head, self.starts, self.stops)
        num_tails = arrange(places, chances, *rows, anchors, relations, candidates, starts, stops)
        if not self.filtered:
            stops = starts
        shared = None
        if self.in_batch:
            candidates[:, 1:] = others(anchors, candidates[:, 0], self.num_negatives, rng)
            strike_out(self.known, starts, stops, candidates)
        elif self.pool is not None:
            drawn = rng.integers(0, len(self.pool), (len(places), self.num_negatives), dtype=np.int32)
            candidates[:, 1:] = self.pool[drawn]
            strike_out(self.known, starts, stops, candidates)
        elif self.shared:
            shared = rng.integers(0, self.num_offered, self.num_negatives, dtype=np.int32)
            candidates[:, 1:] = shared
            strike_out(self.known, starts, stops, candidates)
        else:
            seed = rng.integers(0, 2**64, dtype=np.uint64)
            draw(seed, self.num_offered, self.known, starts, stops, candidates)
        if self.offered is not None:
            numbers = candidates[:, 1:]
            candidates[:, 1:] = np.where(numbers < 0, -1, self.offered[numbers])
            shared = None if shared is None else self.offered[shared]
        return Batch(anchors, relations, candidates, num_tails, shared)

    def _renumber(self, offered: Ids) -> None:
        """Known answers by their places among the offered entities, without those that are not offered."""
        places = np.minimum(np.searchsorted(offered, self.known), len(offered) - 1)
        kept = offered[places] == self.known
        before = np.concatenate([[0], np.cumsum(kept)])
        self.starts, self.stops = before[self.starts], before[self.stops]
        self.known = places[kept].astype(np.int32)


def _seen(graph: KnowledgeGraph) -> Ids | None:
    """Entities of train triples, ascending; None where these are all, or none."""
    entities: Ids = np.unique(graph.train[:, [0, 2]]).astype(np.int32)
    return entities if 0 < len(entities) < graph.num_entities else None


def others(anchors: Ids, targets: Ids, num_negatives: int, rng: np.random.Generator) -> Ids:
    """(b, n) entities of the other triples of a batch (Daza et al., 2021); −1 where there is no other."""
    b = len(anchors)
    if b < 2:
        return np.full((b, num_negatives), -1, dtype=np.int32)
    drawn = rng.integers(0, 2 * b - 2, (b, num_negatives))
    triple = drawn // 2
    triple += triple >= np.arange(b)[:, None]  # not its own
    ends: Ids = np.stack([anchors, targets])[drawn % 2, triple]
    return ends


def head_shares(graph: KnowledgeGraph) -> Floats:
    """How often a relation's heads are replaced: tails per head over both (Wang et al., 2014).

    A half where there is no triple to count.
    """
    tails_per_head, heads_per_tail = answer_counts(graph)
    both = np.maximum(tails_per_head + heads_per_tail, 1e-9)
    share = np.where(tails_per_head > 0, tails_per_head / both, 0.5)
    return share.astype(np.float32)


def answer_counts(graph: KnowledgeGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(relations,) train tails for each head, and heads for each tail, on the mean; 0 without a triple."""
    head, relation, tail = graph.train.T
    count = np.bincount(relation, minlength=graph.num_relations)
    tails_per_head = count / np.maximum(_distinct(relation, head, graph), 1)
    heads_per_tail = count / np.maximum(_distinct(relation, tail, graph), 1)
    return tails_per_head, heads_per_tail


def _distinct(relation: Ids, entity: Ids, graph: KnowledgeGraph) -> NDArray[np.int64]:
    """How many distinct entities each relation has in that column."""
    pairs = np.unique(relation.astype(np.int64) * graph.num_entities + entity)
    return np.bincount(pairs // graph.num_entities, minlength=graph.num_relations)


def check_negatives(settings: TrainingSettings) -> None:
    """Refuse settings that contradict each other."""
    if settings.negatives_from == "batch" and settings.shared_negatives:
        raise SettingError(
            'training.shared_negatives: with negatives_from = "batch" each triple draws from the others; '
            "set it to false"
        )
    if settings.sampler == "bernoulli" and settings.corrupt != "both":
        raise SettingError(
            'training.sampler: "bernoulli" chooses between head and tail; set training.corrupt = "both"'
        )


def _replace_head(graph: KnowledgeGraph, settings: TrainingSettings, counted: KnowledgeGraph) -> Floats:
    if settings.corrupt != "both":
        return np.full(len(graph.train), settings.corrupt == "head", dtype=np.float32)
    if settings.sampler == "bernoulli":
        shares: Floats = head_shares(counted)[graph.train[:, 1]]
        return shares
    return np.full(len(graph.train), 0.5, dtype=np.float32)
