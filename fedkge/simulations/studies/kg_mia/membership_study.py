"""Membership inference on whole graphs beside Tables 3, 5, 6 and 7 of Wang et al. (2021).

Answers of trained models are kept beside the runs: several recipes ask the same models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedkge.attacks.membership.central.halves import Answers, Questions, halve, hold_back
from fedkge.attacks.membership.central.shadows import Bars
from fedkge.attacks.membership.central.target import (
    Asked,
    TrainingRecipe,
    ask,
    published_attacks,
    shadow_attacks,
    train_shadows,
)
from fedkge.attacks.membership.central.transfer import TransferAttack
from fedkge.attacks.membership.curve import Curve
from fedkge.attacks.membership.guesses import Guess, decision_figures
from fedkge.attacks.membership.plots import plot_curves
from fedkge.attacks.membership.scores import measures_of
from fedkge.datasets import KnowledgeGraph, Split, load, load_graph
from fedkge.errors import DataError, InputError
from fedkge.experiment import ModelSettings, TrainingSettings
from fedkge.seeding import draw
from fedkge.simulations.studies.cells import Key, Row, StudyCache, TableCell
from fedkge.simulations.studies.published import Published
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study
from fedkge.storage import staged

__all__ = [
    "MODELS",
    "NUMBERS",
    "SIZES",
    "Size",
    "cross_datasets",
    "cross_models",
    "draw_curves",
    "exchanges",
    "tables",
]

MODELS = ("TransE", "TransH", "ComplEx", "DistMult")
ORDER = ("DDB14", "WN18RR", "NELL-995", "FB15k-237")  # the smallest first: an interrupted run has most cells
NOTES = (
    "Settings follow OpenKE's examples, which the paper names, in dimension, negatives, sampling, losses and "
    "margins; rows are not normalised, there is no L2 penalty, and the optimiser is LazyAdam.",
    "The published DDB14 has 66,841 triples, the public one 44,561: not the same data.",
    "The margin loss needs corrupted triples beside each queried one; the paper does not say which: the mean "
    "over as many random corruptions as training draws is taken.",
    "The target calls a triple true by one threshold, found on its test half and as many corruptions, as "
    "OpenKE does.",
)
EXCHANGES = "StockKG-Exchanges"
EXCHANGE_NOTES = (
    "A stand-in: FinKG (13 relations, 15,847 entities, 32,404 triples) is not published. StockKG has "
    "statements of its kinds (14 relations, 24,272 entities, 41,423 triples) and no amounts or dates: not "
    "the same data.",
    "Each exchange has its own vocabulary and half of its triples as members. Three of five entities stand "
    "in one triple alone: their non-members were never trained on, which the columns over all triples "
    "measure as well.",
)
_HALVE, _FIGURES = 1000, 1001
NUMBERS = Published.beside(__file__)
_TABLES = {"transfer": 3, "loss (logistic)": 5, "loss (margin)": 6, "correctness": 7}
_COLUMNS = {"all": "measured", "seen": "entity_seen", "matched": "matched"}  # by subset


@dataclass(frozen=True)
class Size:
    """How large the models are and how long they train."""

    dim: int
    negatives: int
    epochs: int
    shadows: dict[str, int]  # by dataset; absent: LiRA and RMIA are not run


SIZES: dict[Scale, Size] = {
    "quick": Size(dim=50, negatives=10, epochs=60, shadows={"DDB14": 4, "WN18RR": 4}),
    "full": Size(dim=200, negatives=25, epochs=400, shadows=dict.fromkeys(ORDER, 16)),
}
_EXCHANGE_SHADOWS: dict[Scale, int] = {"quick": 4, "full": 16}
_ONE: dict[Scale, int] = {"quick": 1, "full": 1}
_ACCURACIES = (
    Quantity("all", "accuracy, all triples"),
    Quantity("seen", "accuracy, entity-seen"),
    Quantity("matched", "accuracy, matched"),
)


_BY_SUBSET = (
    Quantity("measured", "", "published", "measured_low", "measured_high"),
    Quantity("entity_seen", ", entity-seen", None, "entity_seen_low", "entity_seen_high"),
    Quantity("matched", ", matched", None, "matched_low", "matched_high"),
)


@study(_BY_SUBSET, within=("attack", "metric"), seeds=_ONE, notes=NOTES)
def tables(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Membership inference, tables 3, 5, 6 and 7 of Wang et al.: published attacks, and LiRA and RMIA beside.

    Quick: 50 dimensions, 60 epochs; LiRA and RMIA with 4 shadows on DDB14 and WN18RR. Full: 200 dimensions,
    400 epochs, 16 shadows. Each figure also over triples whose entities were trained on.
    """
    size = SIZES[scale]
    for seed in seeds:
        for dataset in ORDER:
            for model in MODELS:
                yield _cell(dataset, model, "published", size, seed, _published_rows)
        for dataset in size.shadows:
            for model in MODELS:
                yield _cell(dataset, model, "with shadows", size, seed, _shadow_rows)


@study(_BY_SUBSET, within=("attack", "metric"), seeds=_ONE, notes=(*EXCHANGE_NOTES, NOTES[0], *NOTES[2:]))
def exchanges(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Membership inference, tables 3, 5, 6 and 7 of Wang et al., FinKG's rows on a stand-in of two exchanges.

    Target: Shanghai, shadow: Shenzhen. Quick: 50 dimensions, 60 epochs, LiRA and RMIA with 4 shadows. Full:
    200 dimensions, 400 epochs, 16 shadows.
    """
    size = replace(SIZES[scale], shadows={EXCHANGES: _EXCHANGE_SHADOWS[scale]})
    for seed in seeds:
        for model in MODELS:
            yield _cell(EXCHANGES, model, "published", size, seed, _published_rows)
            yield _cell(EXCHANGES, model, "with shadows", size, seed, _shadow_rows)


@study(_ACCURACIES, within=("shadow",), seeds=_ONE, notes=NOTES)
def cross_datasets(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Membership inference, figure 6 of Wang et al.: transfer attacks whose shadow is another dataset.

    ComplEx. Quick: 50 dimensions, 60 epochs. The paper draws the figure and prints no numbers.
    """
    for seed in seeds:
        for dataset in ORDER:
            yield _crossed((dataset, "ComplEx"), [(other, "ComplEx") for other in ORDER], SIZES[scale], seed)


@study(_ACCURACIES, within=("shadow",), seeds=_ONE, notes=NOTES)
def cross_models(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Membership inference, figure 7 of Wang et al.: transfer attacks whose shadow is another model.

    DDB14. Quick: 50 dimensions, 60 epochs. The paper draws the figure and prints no numbers.
    """
    for seed in seeds:
        for model in MODELS:
            yield _crossed(("DDB14", model), [("DDB14", other) for other in MODELS], SIZES[scale], seed)


def draw_curves(folder: Path, dataset: str, model: str, path: Path, seen: bool = True) -> None:
    """The ROC curves of one cell's attacks, on the entity-seen subset or on all triples."""
    curves = {}
    for cell in sorted((folder / "runs").rglob(f"membership-{dataset}-{model}-*-curves.npz")):
        with np.load(cell, allow_pickle=False) as kept:
            chosen = kept["seen"] if seen else np.ones(len(kept["seen"]), dtype=bool)
            for attack in set(kept.files) - {"member", "seen"}:
                curves[attack] = Curve.of(kept[attack][chosen], kept["member"][chosen])
    if not curves:
        raise InputError(
            f"{folder}: no finished cell of {dataset} and {model}; measure it with tables() first"
        )
    subset = "entity-seen triples" if seen else "all triples"
    plot_curves(dict(sorted(curves.items())), path, f"{dataset}, {model}: {subset}")


def recipe_of(model: str, members: int, size: Size, seed: int) -> TrainingRecipe:
    """How one model is trained, after OpenKE's examples."""
    bilinear = model in ("ComplEx", "DistMult")
    margin = 4.0 if model == "TransH" else 5.0
    return TrainingRecipe(
        ModelSettings(name=model, dim=size.dim, margin=margin),
        TrainingSettings(
            negatives=size.negatives,
            batch_size=max(members // 100, 1),
            learning_rate=0.02 if bilinear else 0.01,
            optimizer="LazyAdam",
            loss="logistic" if bilinear else "margin-ranking",
            corrupt="both",
            sampler="bernoulli",
        ),
        size.epochs,
        seed,
    )


def _cell(
    dataset: str, model: str, attacks: str, size: Size, seed: int, rows: Callable[..., list[Row]]
) -> TableCell:
    def measure(cache: StudyCache) -> list[Row]:
        return rows(dataset, model, size, seed, cache.runs)

    keys: dict[str, Key] = {"dataset": dataset, "model": model, "attacks": attacks, "seed": seed}
    return TableCell(keys, measure, repr(size))


def _published_rows(dataset: str, model: str, size: Size, seed: int, folder: Path) -> list[Row]:
    target, shadow = _asked(dataset, model, size, seed, folder)
    guesses = {name: (guess, None) for name, guess in published_attacks(target, shadow, seed).items()}
    path = _path_of(folder, dataset, model, size, seed, "published-curves")
    return _rows_of(path, dataset, model, guesses, target.questions.answers, seed)


def _shadow_rows(dataset: str, model: str, size: Size, seed: int, folder: Path) -> list[Row]:
    target, _ = _asked(dataset, model, size, seed, folder)
    half, _ = _halves(dataset, seed)
    recipe = recipe_of(model, len(half.train), size, seed)
    shadowed = train_shadows(half, target.questions.triples, recipe, size.shadows[dataset], number=2)
    path = _path_of(folder, dataset, model, size, seed, "shadows-curves")
    return _rows_of(path, dataset, model, shadow_attacks(target, shadowed), target.questions.answers, seed)


def _path_of(folder: Path, dataset: str, model: str, size: Size, seed: int, what: str) -> Path:
    return folder / f"membership-{dataset}-{model}-{size.dim}-{size.epochs}-{seed}-{what}.npz"


def _rows_of(
    path: Path,
    dataset: str,
    model: str,
    guesses: Mapping[str, tuple[Guess, Bars | None]],
    answers: Answers,
    seed: int,
) -> list[Row]:
    """What each attack found, as shares beside the published ones; the certainties are kept for curves."""
    with staged(path) as part, part.open("wb") as file:
        certainty = {attack: guess.certainty for attack, (guess, _) in guesses.items()}
        np.savez_compressed(file, allow_pickle=False, member=answers.member, seen=answers.seen, **certainty)
    rows: dict[tuple[str, str], Row] = {}
    for attack, (guess, bars) in guesses.items():
        for figure in measures_of(guess, answers, draw(seed, _FIGURES), bars):
            row = rows.setdefault(
                (attack, figure.metric),
                {
                    "table": _TABLES.get(attack),
                    "attack": attack,
                    "metric": figure.metric,
                    "published": _published(dataset, model, attack, figure.metric),
                },
            )
            name = _COLUMNS[figure.subset]
            row |= {name: figure.value, f"{name}_low": figure.interval[0], f"{name}_high": figure.interval[1]}
    return list(rows.values())


def _asked(dataset: str, model: str, size: Size, seed: int, folder: Path) -> tuple[Asked, Asked]:
    """Target and shadow, trained once and kept: triples, membership and scores."""
    paths = [_path_of(folder, dataset, model, size, seed, half) for half in ("target", "shadow")]
    if not all(path.exists() for path in paths):
        for number, (half, path) in enumerate(zip(_halves(dataset, seed), paths, strict=True)):
            _save(path, ask(half, recipe_of(model, len(half.train), size, seed), number))
    target, shadow = map(_load, paths)
    return target, shadow


def _halves(dataset: str, seed: int) -> tuple[KnowledgeGraph, KnowledgeGraph]:
    """Target and shadow: halves at random, or one exchange each."""
    if dataset != EXCHANGES:
        return halve(load_graph(dataset), draw(seed, _HALVE))
    split = load(dataset)
    if not isinstance(split, Split):
        raise DataError(
            f"{dataset}: expected two clients, an exchange each; see 'fedkge data info {dataset}'"
        )
    target, shadow = split.clients
    return hold_back(target, draw(seed, _HALVE)), hold_back(shadow, draw(seed, _HALVE, 1))


def _save(path: Path, asked: Asked) -> None:
    answers = asked.questions.answers
    with staged(path) as part, part.open("wb") as file:
        np.savez_compressed(
            file,
            triples=asked.questions.triples,
            member=answers.member,
            seen=answers.seen,
            matched=answers.matched,
            degree=answers.degree,
            scores=asked.scores,
            margin_loss=asked.margin_loss,
            threshold=asked.threshold,
            likelihood=asked.likelihood,
        )


def _load(path: Path) -> Asked:
    with np.load(path, allow_pickle=False) as kept:
        answers = Answers(kept["member"], kept["seen"], kept["matched"], kept["degree"])
        asked = Questions(kept["triples"], answers)
        return Asked(asked, kept["scores"], kept["margin_loss"], float(kept["threshold"]), kept["likelihood"])


def _published(dataset: str, model: str, attack: str, metric: str) -> float | None:
    """The published number as a share, where there is one."""
    paper = "FinKG" if dataset == EXCHANGES else dataset
    per_cent = NUMBERS.get(str(_TABLES.get(attack)), metric, dataset=paper, model=model, attack=attack)
    return None if per_cent is None else per_cent / 100


def _crossed(target: tuple[str, str], shadows: Sequence[tuple[str, str]], size: Size, seed: int) -> TableCell:
    """Every shadow against one target."""

    def measure(cache: StudyCache) -> Iterator[Row]:
        asked, _ = _asked(*target, size, seed, cache.runs)
        answers = asked.questions.answers
        for other in shadows:
            _, shadow = _asked(*other, size, seed, cache.runs)
            attack = TransferAttack.fit(shadow.scores, shadow.questions.answers.member, seed)
            guess = attack.guess(asked.scores)
            yield {"shadow": " ".join(other)} | {
                subset: decision_figures(guess.member[chosen], answers.member[chosen])["accuracy"][0]
                for subset, chosen in answers.subsets.items()
            }

    return TableCell({"target": " ".join(target), "seed": seed}, measure, repr(size))
