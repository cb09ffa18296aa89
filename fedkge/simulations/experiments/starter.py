"""A first experiment file for somebody's own data: settings that suit it, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedkge.datasets import Split, load
from fedkge.experiment import (
    DataSettings,
    EngineSettings,
    EvaluationSettings,
    Experiment,
    FederationSettings,
    ModelSettings,
    PrivacySettings,
    TrainingSettings,
)

__all__ = ["Starter"]

_SMALL = 20_000  # train triples that need no second process
_HIDDEN_AMONG = 3  # the fewest clients among whom a sum hides its summands


@dataclass(frozen=True)
class Starter:
    """What the file needs to know of the data."""

    name: str
    dataset: str
    clients: int
    given: bool  # whether the data come divided among clients
    counts: str
    train: int
    held_out: int
    strategy: str
    columns: str | None = None  # what the columns of its text files hold, where the user had to say

    @classmethod
    def of(cls, source: Path, columns: str | None = None) -> Starter:
        """Look at a file, folder or archive in any format that datasets are read from."""
        loaded = load(source, columns)
        given = isinstance(loaded, Split)
        split = loaded if isinstance(loaded, Split) else Split.single(loaded)
        train = sum(len(graph.train) for graph in split.clients)
        held_out = sum(len(graph.valid) + len(graph.test) for graph in split.clients)
        return cls(
            name=re.sub(r"[^A-Za-z0-9._-]+", "-", split.name).strip("-.") or "experiment",
            dataset=str(source.resolve()),
            clients=split.num_clients if given else _HIDDEN_AMONG,
            given=given,
            counts=f"{len(split.entity_labels):,} entities, {len(split.relation_labels):,} relations, "
            f"{train:,} train and {held_out:,} held-out triples",
            train=train,
            held_out=held_out,
            strategy=_strategy(split) if given else "FedR",
            columns=columns,
        )

    @property
    def warning(self) -> str | None:
        """What the user had better mend first."""
        if self.given and not self.held_out:
            return "no client has a valid.tsv or test.tsv, so nothing can be measured; hold some triples out"
        if self.strategy == "Local" and self.clients > 1:
            return (
                "too few entities and relations are common to several clients, so there is nothing to share"
            )
        return None

    @property
    def experiment(self) -> Experiment:
        small = self.train < _SMALL
        protected = self.strategy != "Local" and self.clients >= _HIDDEN_AMONG
        return Experiment(
            name=self.name,
            data=DataSettings(
                dataset=self.dataset,
                columns=self.columns,
                clients=self.clients,
                partition="given" if self.given else "random",
            ),
            model=ModelSettings(name="ComplEx", dim=64 if small else 128),
            training=TrainingSettings(batch_size=128, negatives=64, learning_rate=0.01, corrupt="both")
            if small
            else TrainingSettings(corrupt="both"),
            federation=FederationSettings(
                strategy=self.strategy, rounds=30 if small else 100, evaluate_every=2
            ),
            evaluation=EvaluationSettings(sides="both"),
            privacy=PrivacySettings()
            if protected
            else PrivacySettings(union="plain", secure_aggregation=False),
            engine=EngineSettings(name="inline" if small else "ray"),
        )

    def to_toml(self) -> str:
        """The settings to begin with, each with what it means; all others keep their defaults."""
        comments = {**_COMMENTS, "data.partition": _GIVEN if self.given else _DRAWN}
        head = [f"{self.counts}.", *([f"Warning: {self.warning}."] if self.warning else []), *_HEAD]
        lines = [*(f"# {line}" for line in head), "", *_commented(self.experiment, comments)]
        return "\n".join(lines) + "\n"


def _strategy(split: Split) -> str:
    """Share the table that enough clients have in common; relations first, since they tell less."""
    enough = max(min(split.num_clients, _HIDDEN_AMONG), 2)
    if _is_common([graph.relation_labels for graph in split.clients], enough):
        return "FedR"
    return "FedE" if _is_common([graph.entity_labels for graph in split.clients], enough) else "Local"


def _is_common(labels: Sequence[Sequence[str]], holders: int) -> bool:
    counts = Counter(label for client_labels in labels for label in set(client_labels))
    return max(counts.values(), default=0) >= holders


def _commented(experiment: Experiment, comments: Mapping[str, str]) -> Iterator[str]:
    """The lines of an experiment file that there are comments for."""
    section = ""
    for line in experiment.to_toml().split("\n"):
        if line.startswith("["):
            section = f"{line.strip('[]')}."
            if any(key.startswith(section) and "." not in key.removeprefix(section) for key in comments):
                yield from ("", line)
        elif (key := section + line.partition(" = ")[0]) in comments:
            yield f"{line}  # {comments[key]}" if comments[key] else line


_HEAD = (
    "Run it with 'fedkge run THIS_FILE', compare strategies with 'fedkge compare THIS_FILE'.",
    "Try a change without editing: 'fedkge run THIS_FILE --set model.name=RotatE'.",
)
_GIVEN = "the data come divided: one client for each folder, or for each entry of a .pkl"
_DRAWN = (
    "drawn, to simulate clients; see 'fedkge list partitions'\n"
    "# When each organisation brings its own triples, put them into client-0/train.tsv, client-1/train.tsv,\n"
    "# … (with valid.tsv and test.tsv beside them), and run 'fedkge init' on the folder that holds these."
)
_COMMENTS = {
    "name": "",
    "seed": "the same seed gives the same result, bit for bit",
    "data.dataset": "",
    "data.columns": "what the columns hold; _ is left out",
    "data.clients": "",
    "model.name": "see 'fedkge list models'",
    "model.dim": "",
    "training.local_epochs": "over its own triples, before a client shares",
    "training.batch_size": "",
    "training.negatives": "false triples that each true one is held against",
    "training.learning_rate": "",
    "training.corrupt": "negatives replace tails and heads, as they are ranked",
    "federation.strategy": "FedR shares relations, FedE entities; see 'fedkge list strategies'",
    "federation.rounds": "at most",
    "federation.evaluate_every": "",
    "federation.patience": "it stops after so many evaluations in which validation MRR did not rise",
    "evaluation.sides": "rank tails and heads",
    "privacy.union": "private: the server learns pseudonyms, and not who holds what",
    "privacy.secure_aggregation": "true, among three or more: the server sees sums, never one client's rows",
    "privacy.min_holders": "rows that fewer clients hold stay at home",
    "privacy.colluders": "clients that may help the server",
    "engine.name": "inline: in this process; ray: several processes, or a cluster",
}
