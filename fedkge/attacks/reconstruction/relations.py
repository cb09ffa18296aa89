"""Which relation two rows stand in: by inverting the model's query, or as the one that scores highest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.attacks.reconstruction.alignment import nearest
from fedkge.client.kernels.ranking import Candidates, padded
from fedkge.client.models import MODELS, Model
from fedkge.errors import UnknownNameError
from fedkge.experiment import ModelSettings

__all__ = ["Inferred", "RelationModel", "TopTriples"]

Values = NDArray[np.float32]
Places = NDArray[np.int64]

_BLOCK = 4096  # pairs whose rows stay in the cache while all relations pass


@dataclass(frozen=True, eq=False)
class Inferred:
    """For each pair the relation found, by its place among those known, and how well it fits."""

    places: Places  # (n,)
    confidence: Values  # (n,)


@dataclass(frozen=True, eq=False)
class TopTriples:
    """The best-scored triples of a grid of heads and tails, best first."""

    heads: Places
    relations: Places
    tails: Places
    confidence: Values


class RelationModel:
    """A model of which only relation rows are known; pairs of entity rows come from outside."""

    def __init__(self, settings: ModelSettings, relations: Values) -> None:
        if settings.name not in MODELS:
            raise UnknownNameError("model", settings.name, MODELS)
        kind = MODELS[settings.name]
        entity = np.zeros((1, kind.entity_columns(settings.dim)), dtype=np.float32)
        rows = np.ascontiguousarray(relations, dtype=np.float32)
        self.model: Model = kind.of_rows(settings, entity, rows)
        self.relations = rows

    @property
    def inverts(self) -> bool:
        """Whether the relation row of a pair can be computed from the pair."""
        row = self.model.entity[:1]
        return self.model.relation_between(row, row) is not None

    def invert(self, h: Values, t: Values) -> Inferred:
        """r̂ from the pair, such as t − h, then the known relation with the largest cosine (Algorithm 2)."""
        wanted = np.empty((len(h), self.relations.shape[1]), dtype=np.float32)
        for block in _blocks(len(h)):
            between = self.model.relation_between(_tensor(h[block]), _tensor(t[block]))
            assert between is not None  # `inverts`
            wanted[block] = between.numpy()
        matches = nearest(wanted, self.relations)
        return Inferred(matches.places[:, 0], matches.similarity[:, 0])

    def best(self, h: Values, t: Values) -> Inferred:
        """argmax over the known relations of the model's score."""
        places = np.zeros(len(h), dtype=np.int64)
        confidence = np.full(len(h), -np.inf, dtype=np.float32)
        for block in _blocks(len(h)):
            heads, tails = _tensor(h[block]), _tensor(t[block])
            found, top = places[block], confidence[block]
            for number, row in enumerate(self.model.relation):
                scores = self.model.score(heads, row.expand(len(heads), -1), tails).numpy()
                better = scores > top
                top[better], found[better] = scores[better], number
        return Inferred(places, confidence)

    def ranks(self, h: Values, t: Values, right: Places) -> Places:
        """One more than how many known relations score higher than the right one."""
        found = np.ones(len(h), dtype=np.int64)
        for block in _blocks(len(h)):
            heads, tails = _tensor(h[block]), _tensor(t[block])
            own = self.model.score(heads, self.model.relation[torch.from_numpy(right[block])], tails)
            for row in self.model.relation:
                scores = self.model.score(heads, row.expand(len(heads), -1), tails)
                found[block] += (scores > own).numpy()
        return found

    def top_triples(self, heads: Values, tails: Values, k: int) -> TopTriples:
        """The k best of all (head, relation, tail), without ever holding more than one relation's scores."""
        best: list[NDArray[Any]] = [np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int64)]
        bar = -np.inf
        for number, scores in enumerate(self._grids(heads, tails)):
            flat = scores.ravel()
            passed = np.flatnonzero(flat > bar)
            if len(passed) > k:
                passed = passed[np.argpartition(-flat[passed], k - 1)[:k]]
            joined: list[NDArray[Any]] = [flat[passed], np.full(len(passed), number), passed]
            best = [np.concatenate(parts) for parts in zip(best, joined, strict=True)]
            if len(best[0]) > k:
                keep = np.argpartition(-best[0], k - 1)[:k]
                best = [part[keep] for part in best]
                bar = float(best[0].min())
        order = np.argsort(-best[0], kind="stable")
        confidence, relations, places = (part[order] for part in best)
        return TopTriples(places // len(tails), relations, places % len(tails), confidence)

    def _grids(self, heads: Values, tails: Values) -> Iterator[Values]:
        """For each relation the scores of all heads with all tails: (heads, tails)."""
        model = self.model
        h, t = _tensor(heads), _tensor(tails)
        candidates = None if model.projects else Candidates(model.comparison, padded(t), len(t))
        for row in model.relation:
            queries = model.query_tail(h, row.expand(len(h), -1)).contiguous().numpy()
            seen = candidates or Candidates(
                model.comparison, padded(model.project(t[None], row[None])[0]), len(t)
            )
            compared: Values = np.float32(model.comparison.sign) * seen.compare(queries)
            yield compared


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))


def _tensor(rows: Values) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
