"""Marking statements as confidential; the mark travels with the triple."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedkge.datasets.graph import SPLITS, BoolArray, KnowledgeGraph
from fedkge.datasets.split import Split
from fedkge.errors import DataError, SettingError, UnknownNameError

__all__ = ["mark", "mark_split"]

_RULES = "a share such as 0.5, random:0.5, relation:0.5, predicates:LABEL|LABEL, predicates:@FILE, or column"


def mark(graph: KnowledgeGraph, rule: str, seed: int = 0) -> KnowledgeGraph:
    """Mark by a rule: a share of each split at random, a share of the relations, named predicates, or the
    `confidential` column that the file brought."""
    kind, _, value = (
        rule.partition(":")
        if ":" in rule
        else ("column", "", "")
        if rule == "column"
        else ("random", "", rule)
    )
    rng = np.random.default_rng([seed, 0xC0F1D])
    if kind == "column":
        if not graph.confidential:
            raise DataError(
                f"{graph.name}: no column 'confidential'; add one with a header, or mark by share"
            )
        return graph
    if kind == "random":
        share = _share(value, rule)
        return _with(graph, {split: _drawn(len(graph[split]), share, rng) for split in SPLITS})
    if kind == "relation":
        chosen = _drawn(graph.num_relations, _share(value, rule), rng)
    elif kind == "predicates":
        chosen = _named(graph, value)
    else:
        raise SettingError(f"confidential '{rule}': expected {_RULES}")
    return _with(graph, {split: chosen[graph[split][:, 1]] for split in SPLITS})


def mark_split(split: Split, rule: str, seed: int = 0) -> Split:
    """Mark every client's graph; a client decides by itself, with its own draw."""
    graphs = tuple(mark(graph, rule, seed=seed + number) for number, graph in enumerate(split.clients))
    return replace(split, clients=graphs)


def _with(graph: KnowledgeGraph, marks: dict[str, BoolArray]) -> KnowledgeGraph:
    return replace(graph, confidential=marks)


def _share(value: str, rule: str) -> float:
    try:
        share = float(value)
    except ValueError:
        raise SettingError(f"confidential '{rule}': expected {_RULES}") from None
    if not 0 <= share <= 1:
        raise SettingError(f"confidential '{rule}': a share lies between 0 and 1")
    return share


def _drawn(count: int, share: float, rng: np.random.Generator) -> BoolArray:
    chosen = np.zeros(count, dtype=bool)
    chosen[rng.permutation(count)[: round(share * count)]] = True
    return chosen


def _named(graph: KnowledgeGraph, value: str) -> BoolArray:
    if value.startswith("@"):
        path = Path(value[1:])
        if not path.is_file():
            raise DataError(f"{path}: no such file; it should list one predicate a line")
        labels = [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    else:
        labels = value.split("|")
    number = {label: place for place, label in enumerate(graph.relation_labels)}
    chosen = np.zeros(graph.num_relations, dtype=bool)
    for label in labels:
        if label not in number:
            raise UnknownNameError("predicate", label, number)
        chosen[number[label]] = True
    return chosen
