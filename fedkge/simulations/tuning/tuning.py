"""Choosing settings of differential privacy on public triples: the choice tells nothing and costs no ε."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import Experiment
from fedkge.simulations.cli.display import StepDisplay
from fedkge.simulations.experiments.defaults import QUICKSTART
from fedkge.simulations.runs.layout import divide
from fedkge.simulations.tuning.candidates import Candidate, Values, candidates_of
from fedkge.simulations.tuning.public_task import PublicTask, Scores, pretended

__all__ = ["Tuning", "half_width", "tune_privacy"]

Watch = Callable[[int, int, str], None]  # how many are done, of how many, and what comes next


@dataclass(frozen=True)
class Tuning:
    """What each candidate scored, and what follows.

    Attributes:
        table: a row a candidate, best first: option, value, MRR on validation triples that were marked as if
            confidential, the gain over the settings given with its 95 % interval (paired over triples, for
            all candidates at once), and its rank. The row without an option is that of the settings given.
        predicates: those that were marked.
    """

    table: pd.DataFrame
    mode: str
    predicates: tuple[str, ...]
    given: dict[str, Any]  # the options that the experiment sets itself
    target: float  # ε of each dry run

    @property
    def best(self) -> dict[str, Any]:
        """The options to take: those given, with one changed if its gain is above its interval."""
        first = self.table.iloc[0]
        if not first["gain_low"] > 0:
            return self.given
        return {**self.given, first["option"]: first["value"]}

    @property
    def lines(self) -> str:
        """What to put into the experiment file."""
        section = ["[privacy.dp]", f'mode = "{self.mode}"', f"target_epsilon = {self.target}"]
        options = [f"{key} = {json.dumps(value)}" for key, value in self.best.items()]
        return "\n".join([*section, *(["", "[privacy.dp.options]", *options] if options else [])])


def tune_privacy(
    experiment: Experiment | Path | str | None = None,
    graph: KnowledgeGraph | None = None,
    *,
    client: int = 0,
    as_if: str | None = None,
    candidates: Values | None = None,
    epochs: int | None = None,
    seeds: int = 1,
    progress: bool = False,
    watch: Watch | None = None,
) -> Tuning:
    """Try options of a mechanism in dry runs on public triples, some of them marked as if confidential.

    No confidential triple is read: of them only their number enters. The client trains alone.

    Args:
        experiment: with [privacy.dp] and a target_epsilon; or its file.
        graph: marked; in the place of the client's part of the experiment's data.
        client: who tunes.
        as_if: which public triples to mark, as in `data.confidential`; left out: as `pretended` says.
        candidates: values to try, by option; left out: those known for the mechanism.
        epochs: of each dry run; left out: all of the experiment's rounds.
        seeds: over how many a score is the mean.
        watch: told before each candidate, in the place of a bar.
    """
    chosen = experiment if isinstance(experiment, Experiment) else Experiment.load(experiment or QUICKSTART)
    dp = chosen.dp_of(client)
    if dp.mode == "off" or dp.target_epsilon is None:
        raise SettingError(
            "privacy.dp.target_epsilon: missing; settings are compared at one ε: add [privacy.dp] with "
            "target_epsilon = 1.0"
        )
    if seeds < 1 or (epochs is not None and epochs < 1):
        raise SettingError(f"{seeds} seeds, {epochs} epochs: expected 1 or more of each")
    tried = candidates_of(dp, chosen.training.optimizer, candidates)
    task = PublicTask(
        pretended(_data(chosen, client) if graph is None else graph, as_if),
        chosen.model,
        chosen.training,
        chosen.evaluation,
        epochs or chosen.federation.rounds * chosen.training.local_epochs,
    )
    with _shown(watch, progress) as shown:
        scores = _scored(task, tried, range(chosen.seed, chosen.seed + seeds), shown)
    relations = np.unique(task.graph.train[task.graph.marks("train"), 1])
    predicates = tuple(task.graph.relation_labels[relation] for relation in relations)
    return Tuning(_table(tried, scores), dp.mode, predicates, dict(dp.options), dp.target_epsilon)


def _data(experiment: Experiment, client: int) -> KnowledgeGraph:
    split = divide(experiment)
    if not 0 <= client < split.num_clients:
        raise SettingError(f"client {client}: clients are 0 to {split.num_clients - 1}")
    return split.clients[client]


def _scored(task: PublicTask, tried: list[Candidate], seeds: range, watch: Watch) -> list[Scores]:
    """The score of each validation triple, the mean over seeds, for each candidate."""
    scores: list[Scores] = []
    total = len(tried) * len(seeds)
    for candidate in tried:
        runs: list[Scores] = []
        for seed in seeds:
            watch(len(scores) * len(seeds) + len(runs), total, _title(candidate))
            runs.append(task.scores(candidate.dp, seed))
        scores.append(np.mean(runs, axis=0))
    watch(total, total, "done")
    return scores


def _title(candidate: Candidate) -> str:
    return f"{candidate.option} = {candidate.value}" if candidate.option else "as given"


def _table(tried: list[Candidate], scores: list[Scores]) -> pd.DataFrame:
    gains = [values - scores[0] for values in scores]
    means = np.array([gain.mean() for gain in gains])
    widths = np.array([half_width(gain, len(tried) - 1) for gain in gains])
    columns = {
        "option": [candidate.option for candidate in tried],
        "value": pd.Series([candidate.value for candidate in tried], dtype=object),  # 30 steps, not 30.0
        "mrr": [float(values.mean()) for values in scores],
        "gain": means,
        "gain_low": means - widths,
        "gain_high": means + widths,
    }
    ranked = pd.DataFrame(columns).sort_values("mrr", ascending=False, kind="stable", ignore_index=True)
    return ranked.assign(rank=ranked["mrr"].rank(ascending=False, method="min").astype(int))


def half_width(values: Scores, comparisons: int = 1) -> float:
    """Of the 95 % interval of a mean over triples (Student), for so many means at once (Bonferroni)."""
    n = len(values)
    if n < 2:
        return float("inf")
    return float(t.ppf(1 - 0.025 / comparisons, n - 1) * values.std(ddof=1) / sqrt(n))


@contextmanager
def _shown(watch: Watch | None, progress: bool) -> Iterator[Watch]:
    if watch is not None or not progress:
        yield watch or (lambda done, total, title: None)  # noqa: ARG005 - nobody looks on
        return
    with StepDisplay("dry runs") as display:
        yield display.show
