"""Marking statements as confidential; the mark travels with the triple."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedkge.datasets.formats.container import members, read_text
from fedkge.datasets.graph import SPLITS, BoolArray, KnowledgeGraph
from fedkge.datasets.labels import respelt
from fedkge.datasets.split import Split
from fedkge.errors import DataError, SettingError, UnknownNameError
from fedkge.seeding import draw

__all__ = ["mark", "mark_split", "unrestricted"]

_RULES = (
    "a share such as 0.5, random:0.5, relation:0.5, predicates:LABEL|LABEL, predicates:/people/*,/medicine/*"
    ", predicates:@FILE, or column"
)
_DRAW = 0xC0F1D  # tells this draw from others with the same seed


def mark(graph: KnowledgeGraph, rule: str, seed: int = 0) -> KnowledgeGraph:
    """Mark by a rule: a share of each split at random, a share of the relations, named predicates, or the
    `confidential` column that the file brought."""
    return mark_split(Split.single(graph), rule, seed).clients[0]


def mark_split(split: Split, rule: str, seed: int = 0) -> Split:
    """Mark every client's graph; a client decides by itself, with its own draw."""
    kind, value = _parsed(rule)
    if kind == "column":
        if not any(graph.confidential for graph in split.clients):
            raise DataError(
                f"{split.name}: no column 'confidential'; add one with a header, or mark by share"
            )
        return split
    chosen: float | frozenset[str]
    chosen = _predicates(value, split.relation_labels) if kind == "predicates" else _share(value, rule)
    graphs = tuple(
        _marked(graph, kind, chosen, draw(seed, number, _DRAW)) for number, graph in enumerate(split.clients)
    )
    return replace(split, clients=graphs)


def unrestricted(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The same vocabulary with the statements that are not confidential, in every split."""
    train, valid, test = (graph[split][~graph.marks(split)] for split in SPLITS)
    return replace(graph, train=train, valid=valid, test=test, confidential={})


def _parsed(rule: str) -> tuple[str, str]:
    if rule == "column":
        return rule, ""
    kind, colon, value = rule.partition(":")
    if not colon:
        return "random", rule
    if kind not in ("random", "relation", "predicates"):
        raise SettingError(f"confidential '{rule}': expected {_RULES}")
    return kind, value


def _marked(
    graph: KnowledgeGraph, kind: str, chosen: float | frozenset[str], rng: np.random.Generator
) -> KnowledgeGraph:
    if isinstance(chosen, frozenset):
        relations = np.array([label in chosen for label in graph.relation_labels], dtype=bool)
    elif kind == "relation":
        relations = _drawn(graph.num_relations, chosen, rng)
    else:
        marks = {split: _drawn(len(graph[split]), chosen, rng) for split in SPLITS}
        return replace(graph, confidential=marks)
    return replace(graph, confidential={split: relations[graph[split][:, 1]] for split in SPLITS})


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


def _predicates(value: str, known: Sequence[str]) -> frozenset[str]:
    listed = _listed(Path(value[1:])) if value.startswith("@") else value.split("|")
    chosen: set[str] = set()
    for entry in map(respelt, listed):
        for name in [entry] if entry in known else entry.split(","):
            chosen |= _matching(name, known)
    return frozenset(chosen)


def _matching(name: str, known: Sequence[str]) -> set[str]:
    """The label of that name, or all that a pattern fits, in which * is any text."""
    if name in known:
        return {name}
    pattern = re.compile(".*".join(map(re.escape, name.split("*"))))
    found = {label for label in known if "*" in name and pattern.fullmatch(label)}
    if not found:
        raise UnknownNameError("predicate", name, known)
    return found


def _listed(path: Path) -> list[str]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; it should list one predicate a line")
    text = read_text(members(path)[0]).replace("\r\n", "\n")
    labels = [line for line in text.split("\n") if line]
    if not labels:
        raise DataError(f"{path}: no predicates in it; it should list one a line")
    return labels
