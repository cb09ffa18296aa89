"""Reconstruction scored as a ranked set of triples, beside what is reached without any embedding.

Candidate regimes: the target's true pairs are granted, as in the paper; they are hidden among decoys; or
nothing is granted, and all pairs are scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedkge.attacks.assessment import Assessment
from fedkge.attacks.intervals import proportion
from fedkge.attacks.reconstruction.algorithm import (
    Claims,
    Identified,
    ImpossibleError,
    claim_all_pairs,
    claim_pairs,
    global_rows,
    identify,
    local_rows,
    pool_of,
    relation_model,
)
from fedkge.attacks.reconstruction.alignment import mutual, ranks, superpose
from fedkge.attacks.reconstruction.presence import held, masked_presence
from fedkge.attacks.reconstruction.relations import Inferred, RelationModel
from fedkge.attacks.reconstruction.scoring import (
    ClaimScore,
    decoys,
    guessers,
    positions,
    right_names,
    score,
    true_pairs,
)
from fedkge.attacks.truth import Truth
from fedkge.attacks.view import UNKNOWN, Rows, View

__all__ = ["rigorous"]

Ids = NDArray[np.int64]
Values = NDArray[np.float32]
Infer = Callable[[Values, Values], Inferred]

DECOYS = 9  # for each true pair
MOST_PAIRS = 5000  # true pairs among decoys, and pairs of a shuffle
MOST_HEADS = 100  # heads of the regime over all pairs
CLAIMS_PER_HEAD = 10
SHUFFLES = 10
ANCHORS = 500  # fewer than a few times the dimensions leave the rotation open


def rigorous(assessment: Assessment, truth: Truth, rng: np.random.Generator, rotate: bool) -> None:
    """Entities and triples of one client, from every kind of row that the view has."""
    view, target = assessment.view, assessment.target
    sources: dict[str, Callable[[], Rows]] = {
        "global rows": lambda: global_rows(view),
        "local rows": lambda: local_rows(view, target),
    }
    for metric, part in {"entity recall": _entities, "recall": _triples}.items():
        reasons = []
        for source, rows_of in sources.items():
            try:
                part(replace(assessment, source=source), truth, rows_of(), rng, rotate)
            except ImpossibleError as error:
                reasons.append(str(error))
        if len(reasons) == len(sources):  # not by any kind of row
            assessment.impossible(metric, "; ".join(dict.fromkeys(reasons)))
    try:
        held(assessment, truth, "relation")
    except ImpossibleError as error:
        assessment.impossible("relation recall", str(error))
    masked_presence(assessment, truth)


# Entities.


def _entities(
    assessment: Assessment, truth: Truth, rows: Rows, rng: np.random.Generator, rotate: bool
) -> None:
    if (rows.names != UNKNOWN).all() and not rows.masked:
        held(assessment, truth, "entity")
        return
    pool = pool_of(assessment.view)
    right = right_names(assessment.view, truth, rows, assessment.target)
    pool_rows = _right_rows(assessment.view, right)  # (colluders, n) where the pool has the right answer
    common = np.flatnonzero((pool_rows != UNKNOWN).any(axis=0))
    moved, still = superpose(rows.values, pool.values) if rotate else (rows.values, pool.values)
    _aligned(assessment, truth, moved, still, pool_rows)
    if rotate and len(common) > 2 * ANCHORS:
        known = rng.permutation(common)[:ANCHORS]
        moved, still = superpose(rows.values, pool.values, (known, pool_rows[:, known].max(axis=0)))
        free = np.setdiff1d(np.arange(len(rows)), known)
        _aligned(assessment, truth, moved[free], still, pool_rows[:, free], f"{ANCHORS} names granted")


def _right_rows(view: View, right: Ids) -> Ids:
    """For each colluder, where in the common pool it has the row of each name; UNKNOWN if it has none."""
    pool_rows, start = [], 0
    for other in view.handed:
        rows = other.entity.rows_of(right)
        pool_rows.append(np.where(rows == UNKNOWN, UNKNOWN, rows + start))
        start += len(other.entity)
    return np.stack(pool_rows)


def _aligned(
    assessment: Assessment, truth: Truth, moved: Values, still: Values, pool_rows: Ids, regime: str = ""
) -> None:
    """Recall and hits@k over the overlap and over all entities; precision of mutual nearest neighbours."""
    overlap = np.flatnonzero((pool_rows != UNKNOWN).any(axis=0))
    best = np.full(len(overlap), len(still), dtype=np.int64)
    for of_colluder in pool_rows[:, overlap]:  # the best of the colluders' rows of that name
        there = of_colluder != UNKNOWN
        best[there] = np.minimum(best[there], ranks(moved[overlap[there]], still, of_colluder[there]))
    total = truth.clients[assessment.target].num_entities
    for k, metric in ((1, "entity recall"), (10, "entity hits@10")):
        hits, chance = int((best <= k).sum()), min(1.0, k / len(still))
        assessment.share(f"{metric} (overlap)", hits, len(overlap), regime=regime, baseline=chance)
        assessment.share(metric, hits, total, regime=regime, baseline=chance * len(overlap) / total)
    paired, nearest = mutual(moved, still)
    right = int((pool_rows[:, paired] == nearest).any(axis=0).sum())
    assessment.share("entity precision (mutual)", right, len(paired), regime=regime, baseline=1 / len(still))


# Triples.


@dataclass(frozen=True, eq=False)
class Case:
    """One client's rows as they were identified, and its true triples."""

    view: View
    truth: Truth
    identified: Identified
    relation_names: Ids
    row_of: Ids  # the attacked row of each of the target's entities
    target: int

    def claims(self, pairs: Ids, infer: Infer) -> Claims:
        return claim_pairs(self.identified, pairs, infer, self.relation_names)

    def guesses(self, pairs: Ids, guess: Callable[[Ids], Inferred]) -> Claims:
        return self.claims(pairs, lambda _h, _t: guess(pairs))

    def score(self, claims: Claims, positives: Ids, most: int | None = None) -> ClaimScore:
        return score(self.view, self.truth, claims, positives, most)

    def positives(self, pairs: Ids | None = None, heads: Ids | None = None) -> Ids:
        """Keys of the target's train triples: all, those of some pairs, or those from some heads."""
        keys = self.truth.keys(self.truth.train(self.target))
        head, _, tail = self.truth.clients[self.target].train.T
        rows = np.stack([self.row_of[head], self.row_of[tail]], axis=1)
        if heads is not None:
            return keys[np.isin(rows[:, 0], heads)]
        if pairs is None:
            return keys
        width = len(self.identified.rows) + 1
        return keys[np.isin((rows[:, 0] + 1) * width + rows[:, 1], (pairs[:, 0] + 1) * width + pairs[:, 1])]

    @property
    def owned(self) -> Ids:
        """Keys of the triples that the adversary's own clients hold."""
        keys = [self.truth.keys(self.truth.train(other.client)) for other in self.view.handed]
        return np.unique(np.concatenate([np.empty(0, np.int64), *keys]))

    def shuffled(self, rng: np.random.Generator) -> Case:
        """The same rows dealt to other entities."""
        rows = self.identified.rows
        dealt = replace(rows, values=rows.values[rng.permutation(len(rows))])
        return replace(self, identified=replace(self.identified, rows=dealt))


def _triples(
    assessment: Assessment, truth: Truth, rows: Rows, rng: np.random.Generator, rotate: bool
) -> None:
    view, target = assessment.view, assessment.target
    model, names = relation_model(view)
    unnamed = bool((rows.names == UNKNOWN).any())
    identified = identify(rows, view, rotate=rotate and unnamed)
    row_of = positions(view, truth, identified, target)
    pairs = true_pairs(truth, target, row_of)
    if len(pairs) == 0:
        raise ImpossibleError(
            "no pair of the target's entities is among the rows that this adversary can use"
        )
    case = Case(view, truth, identified, names, row_of, target)
    methods: dict[str, Infer] = {"inverse": model.invert} if model.inverts else {}
    for method, infer in {**methods, "score": model.best}.items():
        part = replace(assessment, method=method)
        _true_pairs(part, case, pairs, infer, rng)
        _among_decoys(part, case, pairs, infer, rng)
    _all_pairs(replace(assessment, method="score"), case, pairs, model, rng)


def _true_pairs(
    assessment: Assessment, case: Case, pairs: Ids, infer: Infer, rng: np.random.Generator
) -> None:
    """The pairs are granted, as in the paper; what is left to find is the relation."""
    regime, claims, positives = "true pairs", case.claims(pairs, infer), case.positives()
    result = case.score(claims, positives)
    chance, design = _chance(case, pairs, infer, rng)
    assessment.scored(
        regime,
        result,
        interval=proportion(result.hits, result.positives, design),
        baseline=chance * result.claims / result.positives,
    )
    beyond = np.setdiff1d(positives, case.owned)
    fresh = case.score(claims, beyond)
    assessment.share("recall beyond the colluders' triples", fresh.hits, fresh.positives, regime=regime)
    for name, guess in guessers(case.view, case.identified, case.relation_names, rng).items():
        reached = case.score(case.guesses(pairs, guess), positives)
        assessment.above(f"recall above {name}", result.recall, reached.recall, regime=regime)


def _among_decoys(
    assessment: Assessment, case: Case, pairs: Ids, infer: Infer, rng: np.random.Generator
) -> None:
    """The attacker must also tell which pairs are related at all; it names as many as there are."""
    chosen = pairs[rng.permutation(len(pairs))[:MOST_PAIRS]]
    rows = case.row_of[case.row_of != UNKNOWN]
    mixed = np.concatenate([chosen, decoys(chosen, pairs, rows, DECOYS, rng)])
    positives = case.positives(chosen)
    most = len(np.unique(positives))
    regime = f"true pairs among {DECOYS} decoys"
    result = case.score(case.claims(mixed, infer), positives, most)
    assessment.scored(regime, result)
    for name, guess in guessers(case.view, case.identified, case.relation_names, rng).items():
        reached = case.score(case.guesses(mixed, guess), positives, most)
        gain = (result.average_precision, reached.average_precision)
        assessment.above(f"AUPRC above {name}", *gain, regime=regime)


def _all_pairs(
    assessment: Assessment, case: Case, pairs: Ids, model: RelationModel, rng: np.random.Generator
) -> None:
    """Nothing is granted: the best triples from some heads to all rows, over all relations."""
    heads = rng.permutation(np.unique(pairs[:, 0]))[:MOST_HEADS]
    claims = claim_all_pairs(case.identified, heads, model, case.relation_names, CLAIMS_PER_HEAD * len(heads))
    assessment.scored(f"all pairs from {len(heads)} heads", case.score(claims, case.positives(heads=heads)))


def _chance(case: Case, pairs: Ids, infer: Infer, rng: np.random.Generator) -> tuple[float, float]:
    """The precision of the same attack on rows dealt at random, and how much hits come in clusters.

    Pairs that share an entity succeed together, so a share of n pairs varies more than n coins would: the
    design effect says by how much.
    """
    sample = pairs[rng.permutation(len(pairs))[:MOST_PAIRS]]
    positives = case.positives(sample)
    rates = []
    for _ in range(SHUFFLES):
        dealt = case.shuffled(rng)
        rates.append(dealt.score(dealt.claims(sample, infer), positives).precision)
    mean, spread = float(np.mean(rates)), float(np.var(rates, ddof=1))
    coins = max(mean * (1 - mean), 1e-12) / len(sample)
    return mean, 1 + max(spread / coins - 1, 0.0) * len(pairs) / len(sample)
