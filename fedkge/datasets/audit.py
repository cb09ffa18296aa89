"""Is a split sound? Counts, overlaps, duplicates, leakage and shortcuts, with a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.graph import SPLITS
from fedkge.datasets.labels import is_local
from fedkge.datasets.networks.network_facts import NetworkFacts, network_facts
from fedkge.datasets.split import Split
from fedkge.datasets.triple_keys import Keys, distinct, triple_keys

__all__ = ["Audit", "ClientCounts", "Leakage", "RelationPair", "audit"]

LOUD = 0.01  # a share of leaked held-out triples above this is no longer noise
MANY = 0.1  # so large a share that relations give away says nothing of what was learnt
SAME_PAIRS = 0.8  # two relations are near-duplicates when each has this share of the other's entity pairs
MIN_PAIRS = 5  # fewer pairs than this prove nothing about a relation


@dataclass(frozen=True)
class ClientCounts:
    """One client's part."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int
    distinct: int
    confidential: int
    unseen: int  # held-out triples with an entity or relation that its train set lacks


@dataclass(frozen=True)
class Leakage:
    """Held-out triples that stand in a train set."""

    held_out: int
    in_own_train: int
    in_any_train: int
    shortcut: int  # a near-inverse or near-duplicate relation gives the answer in the client's own train set
    inverse: int  # of these, by a near-inverse relation
    symmetric: int  # the reverse statement of the same relation is in the client's own train set

    @property
    def own_share(self) -> float:
        return self.in_own_train / self.held_out if self.held_out else 0.0

    @property
    def any_share(self) -> float:
        return self.in_any_train / self.held_out if self.held_out else 0.0

    @property
    def shortcut_share(self) -> float:
        return self.shortcut / self.held_out if self.held_out else 0.0

    @property
    def inverse_share(self) -> float:
        return self.inverse / self.held_out if self.held_out else 0.0

    @property
    def symmetric_share(self) -> float:
        return self.symmetric / self.held_out if self.held_out else 0.0


@dataclass(frozen=True)
class RelationPair:
    """Two relations that nearly say the same (`duplicate`) or the reverse (`inverse`)."""

    kind: str
    first: str
    second: str
    shared: float  # the smaller of the two shares of entity pairs in common


@dataclass(frozen=True)
class Audit:
    """Everything found; `problems` make results on this split mean less than they seem, `cautions` may."""

    name: str
    partition: str
    content_hash: str
    entities: int
    relations: int
    triples: int
    distinct: int
    unassigned: int
    merged_labels: int  # labels that were another spelling (Unicode) of one that is here
    local_labels: int  # labels of one client that mean nothing to others: blank nodes
    clients: tuple[ClientCounts, ...]
    test: Leakage
    valid: Leakage
    shared_triples: int  # distinct triples that more than one client holds
    entity_overlap: tuple[tuple[float, ...], ...]  # Jaccard index of each pair of clients
    relation_overlap: tuple[tuple[float, ...], ...]
    relation_pairs: tuple[RelationPair, ...]
    degrees: tuple[tuple[int, int], ...]  # (lower bound of a power-of-two bin, entities in it)
    network: NetworkFacts | None = None  # of edges without kinds

    def spread(self, count: str) -> tuple[float, float]:
        """Mean and sample standard deviation of a count over clients (Table 5 of the FedR paper)."""
        values = np.array([getattr(client, count) for client in self.clients], dtype=np.float64)
        return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0

    @property
    def problems(self) -> tuple[str, ...]:
        found = []
        for split, leak in (("test", self.test), ("valid", self.valid)):
            if leak.own_share > LOUD:
                found.append(
                    f"{leak.own_share:.1%} of the {split} triples are in their own client's train set"
                )
            if leak.any_share > max(LOUD, leak.own_share):
                found.append(f"{leak.any_share:.1%} of the {split} triples are in some client's train set")
            if leak.shortcut_share > LOUD:
                found.append(
                    f"{leak.shortcut_share:.1%} of the {split} triples are answered by a near-inverse or "
                    f"near-duplicate relation in train ({leak.inverse_share:.1%} by a near-inverse one)"
                )
        repeated = self.triples - sum(client.distinct for client in self.clients)
        if repeated > LOUD * self.triples:
            found.append(
                f"{repeated / self.triples:.1%} of the triples are duplicates: "
                "the same client holds another copy"
            )
        return tuple(found)

    @property
    def cautions(self) -> tuple[str, ...]:
        return tuple(
            f"{leak.symmetric_share:.1%} of the {split} triples reverse a train triple of the same relation: "
            "symmetric relations are knowledge, but easy to answer"
            for split, leak in (("test", self.test), ("valid", self.valid))
            if leak.symmetric_share > LOUD
        ) + (self.network.cautions if self.network else ())

    @property
    def judged(self) -> bool:
        """Whether anything is held out; without that, nothing can leak and nothing is proved."""
        return self.test.held_out + self.valid.held_out > 0

    @property
    def leaks(self) -> bool:
        """Whether held-out triples stand in train sets beyond noise."""
        return max(leak.any_share for leak in (self.test, self.valid)) > LOUD

    @property
    def given_away(self) -> bool:
        """Whether so many held-out triples follow from a twin relation that ranking them proves little."""
        return max(leak.shortcut_share for leak in (self.test, self.valid)) > MANY

    def to_dict(self) -> dict[str, Any]:
        table_5 = {
            f"{count}_{part}": value
            for count in ("entities", "relations")
            for part, value in zip(("mean", "std"), self.spread(count), strict=True)
        }
        return {
            **asdict(self),
            "table_5": table_5,
            "problems": list(self.problems),
            "cautions": list(self.cautions),
            "judged": self.judged,
            "leaks": self.leaks,
            "given_away": self.given_away,
        }


def audit(split: Split) -> Audit:
    """Look at a split from every side; a whole graph is audited as `Split.single(graph)`."""
    parts = {
        name: [split.global_triples(client, name) for client in range(split.num_clients)] for name in SPLITS
    }
    keys = {name: [_keys(split, triples) for triples in parts[name]] for name in SPLITS}
    everything = np.concatenate([*parts["train"], *parts["valid"], *parts["test"]])
    pairs = _relation_pairs(everything, split)
    return Audit(
        name=split.name,
        partition=split.partition,
        content_hash=split.content_hash,
        entities=len(split.entity_labels),
        relations=len(split.relation_labels),
        triples=len(everything),
        distinct=len(distinct(_keys(split, everything))),
        unassigned=split.unassigned,
        merged_labels=split.merged_labels,
        local_labels=sum(map(is_local, (*split.entity_labels, *split.relation_labels))),
        clients=tuple(_counts(split, client, keys) for client in range(split.num_clients)),
        test=_leakage(split, parts, keys, "test", pairs),
        valid=_leakage(split, parts, keys, "valid", pairs),
        shared_triples=_held_by_several(keys, split.num_clients),
        entity_overlap=_overlap(split.entity_ids, len(split.entity_labels)),
        relation_overlap=_overlap(split.relation_ids, len(split.relation_labels)),
        relation_pairs=tuple(_named(pair, split.relation_labels) for pair in pairs),
        degrees=_degrees(everything, len(split.entity_labels)),
        network=network_facts(split.clients),
    )


def _keys(split: Split, triples: NDArray[np.int64]) -> Keys:
    return triple_keys(triples, len(split.entity_labels), len(split.relation_labels))


def _counts(split: Split, client: int, keys: dict[str, list[Keys]]) -> ClientCounts:
    graph = split.clients[client]
    return ClientCounts(
        entities=graph.num_entities,
        relations=graph.num_relations,
        train=len(graph.train),
        valid=len(graph.valid),
        test=len(graph.test),
        distinct=len(distinct(np.concatenate([keys[name][client] for name in SPLITS]))),
        confidential=sum(int(graph.marks(name).sum()) for name in SPLITS),
        unseen=graph.unseen("valid") + graph.unseen("test"),
    )


@dataclass(frozen=True)
class _Pair:
    kind: str
    first: int
    second: int
    shared: float


def _named(pair: _Pair, labels: Sequence[str]) -> RelationPair:
    return RelationPair(pair.kind, labels[pair.first], labels[pair.second], pair.shared)


def _leakage(
    split: Split,
    parts: dict[str, list[NDArray[np.int64]]],
    keys: dict[str, list[Keys]],
    name: str,
    pairs: Sequence[_Pair],
) -> Leakage:
    train = distinct(np.concatenate(keys["train"]))
    inverses = [pair for pair in pairs if pair.kind == "inverse"]
    held, own, shortcut, inverse, symmetric = keys[name], 0, 0, 0, 0
    for client, triples in enumerate(parts[name]):
        own_train = distinct(keys["train"][client])
        leaked = _among(held[client], own_train)
        own += int(leaked.sum())
        shortcut += int((_answered(split, triples, own_train, pairs) & ~leaked).sum())
        inverse += int((_answered(split, triples, own_train, inverses) & ~leaked).sum())
        symmetric += int((_among(_keys(split, triples[:, [2, 1, 0]]), own_train) & ~leaked).sum())
    return Leakage(
        held_out=sum(map(len, held)),
        in_own_train=own,
        in_any_train=sum(int(_among(part, train).sum()) for part in held),
        shortcut=shortcut,
        inverse=inverse,
        symmetric=symmetric,
    )


def _answered(
    split: Split, triples: NDArray[np.int64], train: Keys, pairs: Sequence[_Pair]
) -> NDArray[np.bool_]:
    """Which triples follow from a train triple by a near-inverse or near-duplicate relation."""
    answered = np.zeros(len(triples), dtype=bool)
    for pair in pairs:
        for relation, other in ((pair.first, pair.second), (pair.second, pair.first)):
            rows = np.flatnonzero(triples[:, 1] == relation)
            twin = triples[rows][:, [2, 1, 0]] if pair.kind == "inverse" else triples[rows].copy()
            twin[:, 1] = other
            answered[rows] |= _among(_keys(split, twin), train)
    return answered


def _among(keys: Keys, ordered: Keys) -> NDArray[np.bool_]:
    if len(ordered) == 0:
        return np.zeros(len(keys), dtype=bool)
    row = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    same: NDArray[np.bool_] = ordered[row] == keys
    return same


def _held_by_several(keys: dict[str, list[Keys]], num_clients: int) -> int:
    client_keys = [
        distinct(np.concatenate([keys[name][client] for name in SPLITS])) for client in range(num_clients)
    ]
    ordered = np.sort(np.concatenate(client_keys))
    return len(distinct(ordered[1:][ordered[1:] == ordered[:-1]]))


def _overlap(ids: Sequence[NDArray[np.int64]], size: int) -> tuple[tuple[float, ...], ...]:
    from scipy.sparse import csr_matrix  # takes long to import

    owner = np.repeat(np.arange(len(ids)), [len(client_ids) for client_ids in ids])
    holds = csr_matrix((np.ones(len(owner)), (owner, np.concatenate(ids))), shape=(len(ids), size))
    common = (holds @ holds.T).toarray()
    sizes = np.diag(common)
    either = sizes[:, None] + sizes[None, :] - common
    return tuple(map(tuple, (common / np.maximum(either, 1)).round(6).tolist()))


def _relation_pairs(triples: NDArray[np.int64], split: Split) -> list[_Pair]:
    """Pairs of different relations whose entity pairs nearly coincide, straight or reversed."""
    from scipy.sparse import csr_matrix

    num_entities, num_relations = len(split.entity_labels), len(split.relation_labels)
    head, relation, tail = triples.T
    straight, reverse = head * num_entities + tail, tail * num_entities + head
    pair_keys = distinct(np.concatenate([straight, reverse]))

    def incidence(keys: Keys) -> Any:
        row = np.searchsorted(pair_keys, keys)
        matrix = csr_matrix((np.ones(len(keys)), (row, relation)), shape=(len(pair_keys), num_relations))
        matrix.data[:] = 1.0  # a repeated triple counts once
        return matrix

    forward, backward = incidence(straight), incidence(reverse)
    sizes = np.asarray(forward.sum(axis=0)).ravel()
    pairs = []
    for kind, common in (("duplicate", forward.T @ forward), ("inverse", forward.T @ backward)):
        common = common.tocoo()
        for first, second, count in zip(
            common.row.tolist(), common.col.tolist(), common.data.tolist(), strict=True
        ):
            larger, smaller = max(sizes[first], sizes[second]), min(sizes[first], sizes[second])
            if first < second and smaller >= MIN_PAIRS and count / larger >= SAME_PAIRS:
                pairs.append(_Pair(kind, first, second, float(count / larger)))
    return sorted(pairs, key=lambda pair: (-pair.shared, pair.first, pair.second))


def _degrees(triples: NDArray[np.int64], num_entities: int) -> tuple[tuple[int, int], ...]:
    degree = np.bincount(triples[:, [0, 2]].ravel(), minlength=num_entities)
    connected = degree[degree > 0]
    bins = np.bincount(np.log2(connected).astype(np.int64)) if len(connected) else np.empty(0, dtype=np.int64)
    isolated = [(0, int((degree == 0).sum()))] if (degree == 0).any() else []
    return (*isolated, *((2**power, int(count)) for power, count in enumerate(bins)))
