"""A first experiment file for somebody's own data: settings that suit it, and why."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedkge.datasets import Split, load

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

    @classmethod
    def of(cls, source: Path) -> Starter:
        """Look at a file, folder or archive in any format that datasets are read from."""
        loaded = load(source)
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
        )

    @property
    def is_protected(self) -> bool:
        return self.strategy != "Local" and self.clients >= _HIDDEN_AMONG

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

    def to_toml(self) -> str:
        small = self.train < _SMALL
        return _TEMPLATE.format(
            warning=f"# Warning: {self.warning}.\n" if self.warning else "",
            counts=self.counts,
            name=json.dumps(self.name),
            dataset=json.dumps(self.dataset, ensure_ascii=False),
            clients=self.clients,
            partition=_GIVEN if self.given else _DRAWN,
            dim=64 if small else 128,
            batch_size=128 if small else 512,
            negatives=64 if small else 256,
            learning_rate=0.01 if small else 0.001,
            strategy=self.strategy,
            rounds=30 if small else 100,
            evaluate_every=2 if small else 5,
            privacy=_PROTECTED if self.is_protected else _CLEAR,
            engine="inline" if small else "ray",
        )


def _strategy(split: Split) -> str:
    """Share the table that enough clients have in common; relations first, since they tell less."""
    enough = max(min(split.num_clients, _HIDDEN_AMONG), 2)
    if _is_common([graph.relation_labels for graph in split.clients], enough):
        return "FedR"
    return "FedE" if _is_common([graph.entity_labels for graph in split.clients], enough) else "Local"


def _is_common(labels: Sequence[Sequence[str]], holders: int) -> bool:
    counts = Counter(label for own in labels for label in set(own))
    return max(counts.values(), default=0) >= holders


_TEMPLATE = """\
# {counts}.
{warning}# Run it with 'fedkge run THIS_FILE', compare strategies with 'fedkge compare THIS_FILE'.
# Try a change without editing: 'fedkge run THIS_FILE --set model.name=RotatE'.

name = {name}
seed = 0  # the same seed gives the same result, bit for bit

[data]
dataset = {dataset}
clients = {clients}
{partition}

[model]
name = "ComplEx"  # see 'fedkge list models'
dim = {dim}

[training]
local_epochs = 3  # over its own triples, before a client shares
batch_size = {batch_size}
negatives = {negatives}  # false triples that each true one is held against
learning_rate = {learning_rate}

[federation]
strategy = "{strategy}"  # FedR shares relations, FedE entities, Local nothing; see 'fedkge list strategies'
rounds = {rounds}  # at most: it stops when validation MRR has not risen for `patience` evaluations
evaluate_every = {evaluate_every}
patience = 5

[evaluation]
sides = "both"  # rank tails and heads

{privacy}

[engine]
name = "{engine}"  # inline: in this process; ray: several processes, or a cluster
"""

_GIVEN = 'partition = "given"  # one client for each folder client-N'
_DRAWN = """\
partition = "random"  # simulated: who would hold what; see 'fedkge list partitions'
# When each organisation brings its own triples, put them into client-0/train.tsv, client-1/train.tsv, …
# (with valid.tsv and test.tsv beside them), run 'fedkge init' on the folder above, and nothing is drawn."""
_PROTECTED = """\
[privacy]
union = "private"  # the server learns pseudonyms, and not who holds what
secure_aggregation = true  # the server sees sums over clients, never one client's rows
min_holders = 3  # rows that fewer clients hold stay at home"""
_CLEAR = """\
[privacy]  # fewer than three clients, or nothing shared: a sum would hide nothing
union = "plain"
secure_aggregation = false"""
