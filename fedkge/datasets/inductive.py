"""Splits that hold out whole entities: none of their triples is trained on (Daza et al., 2021, BLP)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedkge.datasets.formats.container import Member, members, read_text
from fedkge.datasets.graph import SPLITS, KnowledgeGraph, require_train
from fedkge.datasets.labels import respelt
from fedkge.datasets.split import Split, by_appearance
from fedkge.errors import DataError, SettingError

__all__ = ["check_held_out", "hold_out", "inductive"]

_FEWEST_NEIGHBOURS = 2  # a neighbour keeps more than these
_FEWEST_EDGES = 99  # a relation keeps at least these: the rule asks for 100 before the last one goes
_STUCK = 30  # refusals for each entity, in a row: an eligible one would have been drawn
_KEEP = ",keep"
_LISTS = {"valid": ("dev-ents", "valid-ents"), "test": ("test-ents",)}

Entities = Mapping[str, Sequence[int]]  # "valid", "test" -> entity ids


def inductive(graph: KnowledgeGraph, rule: str, seed: int) -> KnowledgeGraph:
    """The graph with entities held out, as a rule says.

    Args:
        graph: all of its triples count, whatever split they are in.
        rule: shares of entities for validation and test, '0.1,0.1', or a folder with `dev-ents.txt` and
            `test-ents.txt`; '0.1,0.1,keep' leaves the triples among all other entities in their splits,
            where otherwise all of them are trained on.
        seed: of the draw.
    """
    source = rule.removesuffix(_KEEP)
    shares = source.split(",")
    if len(shares) == 2 and all(_is_number(share) for share in shares):
        return hold_out(graph, _drawn(graph, (float(shares[0]), float(shares[1])), seed), source != rule)
    if Path(source).is_dir():
        return hold_out(graph, _listed(graph, Path(source)), source != rule)
    raise SettingError(
        f"data.inductive: '{rule}' is neither two shares, such as 0.1,0.1, nor a folder with dev-ents.txt "
        "and test-ents.txt"
    )


def check_held_out(split: Split, graph: KnowledgeGraph) -> None:
    """Refuse a division of a graph in which clients train on entities that the graph holds out."""
    met = np.zeros(graph.num_entities, dtype=bool)
    met[graph.triples[:, [0, 2]]] = True
    held = {graph.entity_labels[entity] for entity in np.flatnonzero(met & ~graph.seen_entities)}
    trained = {
        client.entity_labels[entity]
        for client in split.clients
        for entity in np.flatnonzero(client.seen_entities)
    }
    if held & trained:
        raise SettingError(
            f"data.partition: '{split.partition}' decides anew which triples are held out, and "
            f"{len(held & trained):,} of {len(held):,} entities of data.inductive would be trained on; take "
            "'random' or another that keeps the splits"
        )


def hold_out(graph: KnowledgeGraph, entities: Entities, keep: bool = False) -> KnowledgeGraph:
    """A triple with a test entity is a test triple, any other with a validation entity one of validation.

    All others are trained on, as in BLP, or `keep` the split that they are in.
    """
    role = np.zeros(graph.num_entities, dtype=np.int8)
    role[list(entities["valid"])] = 1
    role[list(entities["test"])] = 2
    head, _, tail = graph.triples.T
    part = np.maximum(role[head], role[tail])
    if keep:
        part = np.where(part == 0, np.repeat(range(3), [len(graph[split]) for split in SPLITS]), part)
    marks = np.concatenate([graph.marks(split) for split in SPLITS])
    held = KnowledgeGraph.from_ids(
        graph.name,
        graph.entity_labels,
        graph.relation_labels,
        {split: graph.triples[part == number] for number, split in enumerate(SPLITS)},
        {split: marks[part == number] for number, split in enumerate(SPLITS)} if graph.confidential else None,
        graph.features,
        graph.texts,
        graph.classes,
    )
    held = replace(held, edge_list=graph.edge_list)
    require_train(held, f"{graph.name} without its held-out entities")
    return held


def _drawn(graph: KnowledgeGraph, shares: tuple[float, float], seed: int) -> Entities:
    """Entities one by one at random; none whose leaving would strip a neighbour or a relation."""
    if min(shares) < 0 or not 0 < sum(shares) < 1:
        raise SettingError(
            f"data.inductive: shares {shares[0]:g} and {shares[1]:g}; expected two that are not negative and "
            "together above 0 and below 1"
        )
    counts = [int(graph.num_entities * share) for share in shares]
    dropped = _droppable(graph, sum(counts), random.Random(seed))
    return {"test": dropped[: counts[1]], "valid": dropped[counts[1] :]}


def _droppable(graph: KnowledgeGraph, wanted: int, rng: random.Random) -> list[int]:
    """Entities that leave the graph of all triples, in that order."""
    neighbours: dict[int, set[int]] = defaultdict(set)
    relations_of: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # its triples
    for triple in dict.fromkeys(map(tuple, graph.triples.tolist())):
        head, _, tail = triple
        neighbours[head].add(tail)
        neighbours[tail].add(head)
        for entity in {head, tail}:
            relations_of[entity].append(triple)
    edges = np.bincount(graph.triples[:, 1], minlength=graph.num_relations)
    remaining = by_appearance(graph.triples[:, [0, 2]].ravel())[0].tolist()
    gone: set[int] = set()
    dropped: list[int] = []
    refused = 0
    while len(dropped) < wanted:
        if refused > _STUCK * max(len(remaining), 1) or not remaining:
            raise DataError(
                f"{graph.name}: only {len(dropped)} of {wanted} entities can be held out such that each "
                f"neighbour keeps more than {_FEWEST_NEIGHBOURS} and each relation {_FEWEST_EDGES} triples; "
                "use smaller shares, or give lists of entities"
            )
        place = rng.randrange(len(remaining))
        entity = remaining[place]
        leaving = [triple for triple in relations_of[entity] if not gone & {triple[0], triple[2]}]
        after = edges - np.bincount([triple[1] for triple in leaving], minlength=len(edges))
        if _strips(entity, neighbours) or (after[[triple[1] for triple in leaving]] < _FEWEST_EDGES).any():
            refused += 1
            continue
        refused = 0
        edges = after
        for other in neighbours.pop(entity):
            neighbours.get(other, set()).discard(entity)
        gone.add(entity)
        dropped.append(remaining.pop(place))
    return dropped


def _strips(entity: int, neighbours: Mapping[int, set[int]]) -> bool:
    return any(len(neighbours[other]) <= _FEWEST_NEIGHBOURS for other in neighbours[entity])


def _listed(graph: KnowledgeGraph, folder: Path) -> Entities:
    """Held-out entities from a folder's two lists of labels."""
    files = {member.stem: member for member in members(folder)}
    numbers = {label: number for number, label in enumerate(graph.entity_labels)}
    entities: dict[str, list[int]] = {}
    for split, names in _LISTS.items():
        name = next((name for name in names if name in files), None)
        if name is None:
            raise DataError(f"{folder}: no {names[0]}.txt; expected one entity label a line")
        entities[split] = _numbered(files[name], numbers, graph.name)
    both = set(entities["valid"]) & set(entities["test"])
    if both:
        example = graph.entity_labels[min(both)]
        raise DataError(f"{folder}: '{example}' stands in both lists; an entity is held out for one of them")
    return entities


def _numbered(file: Member, numbers: Mapping[str, int], name: str) -> list[int]:
    found = []
    for row, line in enumerate(read_text(file).replace("\r\n", "\n").split("\n"), start=1):
        if not line:
            continue
        if respelt(line) not in numbers:
            raise DataError(f"{file.origin}, line {row}: '{line}' is no entity of {name}; remove it")
        found.append(numbers[respelt(line)])
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
