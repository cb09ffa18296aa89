"""Ways to divide a graph among clients."""

from __future__ import annotations

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.given import Given
from fedkge.datasets.partition.partitioner import Assigner, Partitioner
from fedkge.datasets.spec import build
from fedkge.datasets.split import Split
from fedkge.errors import DataError, SettingError
from fedkge.plugins import Registry

__all__ = ["PARTITIONERS", "Assigner", "Partitioner", "partition"]

PARTITIONERS: Registry[type[Partitioner]] = Registry(
    "partition",
    "fedkge.partitions",
    {
        name: f"fedkge.datasets.partition.{target}"
        for name, target in {
            "random": "random:Random",
            "relation": "relation:ByRelation",
            "cluster": "relation:Cluster",
            "dirichlet": "dirichlet:Dirichlet",
            "edges": "edges:Edges",
            "overlap": "overlap:Overlap",
            "fedr": "fedr:FedRPartition",
            "fedr-legacy": "fedr:FedRLegacy",
            "given": "given:Given",
            "given-by": "given_by:GivenBy",
        }.items()
    },
)


def partition(source: KnowledgeGraph | Split, spec: str = "random", clients: int = 5, seed: int = 0) -> Split:
    """Divide a graph among clients: `spec` names a partitioner, with options as in 'dirichlet:alpha=0.5'.

    A source that is already split takes 'given' and its own number of clients, or 0 for whatever it has.
    """
    partitioner = build(spec, PARTITIONERS)
    if isinstance(source, Split):
        return _given(source, partitioner, clients)
    if clients < 1:
        raise SettingError(f"clients = {clients}: expected at least 1")
    if clients > source.num_triples:
        raise DataError(
            f"{source.name}: {clients} clients, but only {source.num_triples} triples to share out"
        )
    return partitioner.split(source, clients, seed, spec)


def _given(split: Split, partitioner: Partitioner, clients: int) -> Split:
    if not isinstance(partitioner, Given):
        raise DataError(
            f"{split.name} is already split among {split.num_clients} clients; use partition 'given' or "
            "leave it out, or divide the whole graph instead"
        )
    if clients not in (0, split.num_clients):
        raise DataError(
            f"{split.name} has {split.num_clients} clients, not {clients}; leave clients out or correct it"
        )
    return split
