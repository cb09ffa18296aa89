"""Membership inference on whole graphs beside Tables 3, 5, 6 and 7 of Wang et al. (2021).

Each cell, a dataset and a model, is kept in the folder as soon as it is done, and not computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pandas as pd

from fedkge.attacks.membership.curve import Curve
from fedkge.attacks.membership.decisions import DECISIONS, decision_figures
from fedkge.attacks.membership.figures import figures_of
from fedkge.attacks.membership.guess import Guess
from fedkge.attacks.membership.halves import Answers, Questions, halve
from fedkge.attacks.membership.plots import plot_curves
from fedkge.attacks.membership.target import (
    Asked,
    Recipe,
    ask,
    published_attacks,
    shadow_attacks,
    train_shadows,
)
from fedkge.attacks.membership.thresholds import Bars
from fedkge.attacks.membership.transfer import TransferAttack
from fedkge.datasets import load_graph
from fedkge.errors import InputError, UnknownNameError
from fedkge.experiment import ModelSettings, TrainingSettings
from fedkge.seeding import draw
from fedkge.simulations.recipes.membership_published import ATTACK_OF_TABLE, DATASETS, PUBLISHED
from fedkge.storage import staged

__all__ = ["MODELS", "SCALES", "Scale", "cross_datasets", "cross_models", "draw_curves", "table"]

MODELS = ("TransE", "TransH", "ComplEx", "DistMult")
SIZES = ("DDB14", "WN18RR", "NELL-995", "FB15k-237")  # the smallest first: an interrupted run has most cells
NOTES = (
    "Settings follow OpenKE's examples, which the paper names, in dimension, negatives, sampling, losses and "
    "margins; rows are not normalised, there is no L2 penalty, and the optimiser is LazyAdam.",
    "The published DDB14 has 66,841 triples, the public one 44,561: not the same data.",
    "The margin loss needs corrupted triples beside each queried one; the paper does not say which: the mean "
    "over as many random corruptions as training draws is taken.",
    "The target calls a triple true by one threshold, found on its test half and as many corruptions, as "
    "OpenKE does.",
)
_HALVE, _FIGURES = 1000, 1001


@dataclass(frozen=True)
class Scale:
    """How large the models are and how long they train."""

    dim: int
    negatives: int
    epochs: int
    shadows: dict[str, int]  # by dataset; absent: LiRA and RMIA are not run


SCALES = {
    "quick": Scale(dim=50, negatives=10, epochs=60, shadows={"DDB14": 4, "WN18RR": 4}),
    "full": Scale(dim=200, negatives=25, epochs=400, shadows=dict.fromkeys(SIZES, 16)),
}


def table(scale: Literal["quick", "full"] = "quick", folder: Path | None = None) -> pd.DataFrame:
    """Published, measured, entity-seen: one row per dataset, model, attack and metric; notes in `attrs`."""
    if folder is None:
        with TemporaryDirectory() as made:
            return table(scale, Path(made))
    size = _scale(scale)
    folder.mkdir(parents=True, exist_ok=True)
    cells = [_published_cell(dataset, model, size, folder) for dataset in SIZES for model in MODELS]
    cells += [_shadow_cell(dataset, model, size, folder) for dataset in size.shadows for model in MODELS]
    return _beside_published(pd.concat(cells))


def cross_datasets(scale: Literal["quick", "full"], folder: Path, model: str = "ComplEx") -> pd.DataFrame:
    """Figure 6: transfer attacks whose shadow is another dataset; accuracy, all and entity-seen."""
    return _transfers(_scale(scale), folder, [(dataset, model) for dataset in DATASETS])


def cross_models(scale: Literal["quick", "full"], folder: Path, dataset: str = "DDB14") -> pd.DataFrame:
    """Figure 7: transfer attacks whose shadow is another model."""
    return _transfers(_scale(scale), folder, [(dataset, model) for model in MODELS])


def draw_curves(folder: Path, dataset: str, model: str, path: Path, seen: bool = True) -> None:
    """The ROC curves of one cell's attacks, on the entity-seen subset or on all triples."""
    curves = {}
    cells = [folder / f"{dataset}-{model}{end}.npz" for end in ("", "-shadows")]
    for cell in filter(Path.is_file, cells):
        with np.load(cell, allow_pickle=False) as kept:
            chosen = kept["seen"] if seen else np.ones(len(kept["seen"]), dtype=bool)
            for attack in set(kept.files) - {"member", "seen"}:
                curves[attack] = Curve.of(kept[attack][chosen], kept["member"][chosen])
    if not curves:
        raise InputError(
            f"{folder}: no finished cell of {dataset} and {model}; compute it with table() first"
        )
    subset = "entity-seen triples" if seen else "all triples"
    plot_curves(dict(sorted(curves.items())), path, f"{dataset}, {model}: {subset}")


def recipe_of(model: str, members: int, scale: Scale) -> Recipe:
    """How one model is trained, after OpenKE's examples."""
    bilinear = model in ("ComplEx", "DistMult")
    margin = 4.0 if model == "TransH" else 5.0
    return Recipe(
        ModelSettings(name=model, dim=scale.dim, margin=margin),
        TrainingSettings(
            negatives=scale.negatives,
            batch_size=max(members // 100, 1),
            learning_rate=0.02 if bilinear else 0.01,
            optimizer="LazyAdam",
            loss="logistic" if bilinear else "margin-ranking",
            corrupt="both",
            sampler="bernoulli",
        ),
        scale.epochs,
    )


def _scale(name: str) -> Scale:
    if name not in SCALES:
        raise UnknownNameError("scale", name, SCALES)
    return SCALES[name]


def _published_cell(dataset: str, model: str, scale: Scale, folder: Path) -> pd.DataFrame:
    path = folder / f"{dataset}-{model}.csv"
    if not path.exists():
        target, shadow = _asked(dataset, model, scale, folder)
        guesses = {name: (guess, None) for name, guess in published_attacks(target, shadow).items()}
        _keep(path, dataset, model, guesses, target.questions.answers)
    return pd.read_csv(path)


def _shadow_cell(dataset: str, model: str, scale: Scale, folder: Path) -> pd.DataFrame:
    path = folder / f"{dataset}-{model}-shadows.csv"
    if not path.exists():
        target, _ = _asked(dataset, model, scale, folder)
        half, _ = halve(load_graph(dataset), draw(0, _HALVE))
        recipe = recipe_of(model, len(half.train), scale)
        count = scale.shadows[dataset]
        shadowed = train_shadows(half, target.questions.triples, recipe, count, number=2)
        _keep(path, dataset, model, shadow_attacks(target, shadowed), target.questions.answers)
    return pd.read_csv(path)


def _keep(
    path: Path, dataset: str, model: str, guesses: Mapping[str, tuple[Guess, Bars | None]], answers: Answers
) -> None:
    rows = [
        {"dataset": dataset, "model": model, "attack": attack, **asdict(figure)}
        for attack, (guess, bars) in guesses.items()
        for figure in figures_of(guess, answers, draw(0, _FIGURES), bars)
    ]
    with staged(path.with_suffix(".npz")) as part, part.open("wb") as file:
        certainty = {attack: guess.certainty for attack, (guess, _) in guesses.items()}
        np.savez_compressed(file, allow_pickle=False, member=answers.member, seen=answers.seen, **certainty)
    frame = pd.DataFrame(rows)
    frame[["low", "high"]] = frame.pop("interval").tolist()
    with staged(path) as part:
        frame.to_csv(part, index=False)


def _asked(dataset: str, model: str, scale: Scale, folder: Path) -> tuple[Asked, Asked]:
    """Target and shadow, trained once and kept: triples, membership and scores."""
    paths = [folder / f"{dataset}-{model}-{half}.npz" for half in ("target", "shadow")]
    if not all(path.exists() for path in paths):
        halves = halve(load_graph(dataset), draw(0, _HALVE))
        for number, (half, path) in enumerate(zip(halves, paths, strict=True)):
            _save(path, ask(half, recipe_of(model, len(half.train), scale), number))
    target, shadow = map(_load, paths)
    return target, shadow


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


def _beside_published(cells: pd.DataFrame) -> pd.DataFrame:
    keys = ["dataset", "model", "attack", "metric"]
    order = cells[keys].drop_duplicates()
    wide = cells.pivot(index=keys, columns="subset", values=["value", "low", "high"])
    found = order.copy()
    at = pd.MultiIndex.from_frame(order)
    found["published"] = [_published(*key) for key in order.itertuples(index=False, name=None)]
    for subset, name in (("all", "measured"), ("seen", "entity_seen"), ("matched", "matched")):
        found[name] = wide["value"][subset].reindex(at).to_numpy()
        for bound in ("low", "high"):
            found[f"{name}_{bound}"] = wide[bound][subset].reindex(at).to_numpy()
    numbers = {attack: number for number, attack in ATTACK_OF_TABLE.items()}
    found.insert(0, "table", [numbers.get(attack) for attack in order["attack"]])
    found.attrs["notes"] = NOTES
    return found.reset_index(drop=True)


def _published(dataset: str, model: str, attack: str, metric: str) -> float:
    """The published number as a share; not a number where none was published."""
    for number, name in ATTACK_OF_TABLE.items():
        if name == attack and metric in DECISIONS:
            return PUBLISHED[number][model][DATASETS.index(dataset)][DECISIONS.index(metric)] / 100
    return float("nan")


def _transfers(scale: Scale, folder: Path, cells: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Every shadow against every target."""
    asked = {cell: _asked(*cell, scale, folder) for cell in cells}
    attacks = {
        cell: TransferAttack.fit(shadow.scores, shadow.questions.answers.member, seed=0)
        for cell, (_, shadow) in asked.items()
    }
    return pd.DataFrame(_pairs({cell: target for cell, (target, _) in asked.items()}, attacks))


def _pairs(
    targets: dict[tuple[str, str], Asked], attacks: dict[tuple[str, str], TransferAttack]
) -> Iterator[dict[str, str | float]]:
    for target, asked in targets.items():
        answers = asked.questions.answers
        for shadow, attack in attacks.items():
            guess = attack.guess(asked.scores)
            row: dict[str, str | float] = {"target": " ".join(target), "shadow": " ".join(shadow)}
            for subset, chosen in answers.subsets.items():
                row[subset] = decision_figures(guess.member[chosen], answers.member[chosen])["accuracy"][0]
            yield row
