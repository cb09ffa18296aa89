"""The pickle in which FedE, FedR and their successors exchange splits, read without executing it.

A list with one dict per client: `train | valid | test` -> `edge_index` (2, n) and `edge_type` (n,) in local
ids, `edge_index_ori` and `edge_type_ori` in global ids. It carries no labels: a global id is its own label.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.container import Member
from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.datasets.split import Split
from fedkge.errors import DataError

__all__ = ["read_pickle", "write_pickle"]

_ORDER = ("train", "test", "valid")  # as the published files have it


def read_pickle(member: Member) -> Split:
    """The split in a FedE pickle; ids become labels, and the numbering of the file is kept."""
    clients = _checked(_load(member), member.origin)
    num_entities = 1 + max(
        (int(_both(client, "edge_index_ori").max(initial=-1)) for client in clients), default=0
    )
    num_relations = 1 + max(
        (int(_both(client, "edge_type_ori").max(initial=-1)) for client in clients), default=0
    )
    entities = tuple(map(str, range(num_entities)))
    relations = tuple(map(str, range(num_relations)))
    graphs = [
        _graph(client, f"client-{number}", entities, relations, f"{member.origin}, client {number}")
        for number, client in enumerate(clients)
    ]
    return Split(member.stem, tuple(graphs), entities, relations, partition="given")


def write_pickle(path: Path, split: Split) -> None:
    """Write a split in the FedE format; global ids number the split's labels."""
    clients = []
    for graph, entity, relation in zip(split.clients, split.entity_ids, split.relation_ids, strict=True):
        record = {}
        for name in _ORDER:
            head, rel, tail = graph[name].astype(np.int64).T
            record[name] = {
                "edge_index": np.stack([head, tail]),
                "edge_type": rel.copy(),
                "edge_index_ori": np.stack([entity[head], entity[tail]]),
                "edge_type_ori": relation[rel],
            }
        clients.append(record)
    with path.open("wb") as file:
        pickle.dump(clients, file, protocol=4)


def _latin1(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("an encoding other than latin1")
    return text.encode("latin1")


class _ArraysOnly(pickle.Unpickler):
    """Admits what numpy needs to rebuild an array, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        core = module.replace("numpy._core", "numpy.core")
        allowed: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
            ("numpy.core.numeric", "_frombuffer"): np._core.numeric._frombuffer,  # type: ignore[attr-defined]
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("_codecs", "encode"): _latin1,
        }
        if (core, name) not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return allowed[core, name]


def _load(member: Member) -> object:
    try:
        return _ArraysOnly(io.BytesIO(member.read())).load()
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{member.origin}: not a FedE split: {error}; only lists, dicts and numpy arrays are admitted, "
            "because a pickle can execute code"
        ) from error
    except (EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError, MemoryError) as error:
        raise DataError(
            f"{member.origin}: a damaged or truncated pickle ({error}); fetch it again"
        ) from error


Client = dict[str, dict[str, NDArray[np.int64]]]


def _checked(data: object, origin: str) -> list[Client]:
    if not isinstance(data, list) or not data:
        raise DataError(f"{origin}: expected a list with one dict per client, found {type(data).__name__}")
    return [_checked_client(client, f"{origin}, client {number}") for number, client in enumerate(data)]


def _checked_client(client: object, origin: str) -> Client:
    if not isinstance(client, dict):
        raise DataError(f"{origin}: expected a dict, found {type(client).__name__}")
    checked: Client = {}
    for split in SPLITS:
        part = client.get(split)
        if not isinstance(part, dict):
            raise DataError(f"{origin}: no '{split}' in it; known: {', '.join(map(str, client))}")
        checked[split] = {}
        for key, shape in (("edge_index", (2, -1)), ("edge_type", (-1,))):
            for full in (key, f"{key}_ori"):
                array = part.get(full)
                if isinstance(array, np.ndarray) and array.size == 0:  # numpy calls an empty list float
                    array = np.zeros([max(size, 0) for size in shape], dtype=np.int64)
                if (
                    not isinstance(array, np.ndarray)
                    or array.dtype.kind not in "iu"
                    or array.ndim != len(shape)
                ):
                    raise DataError(f"{origin}: '{split}' needs '{full}', an integer array of shape {shape}")
                checked[split][full] = array.astype(np.int64)
        if len({array.shape[-1] for array in checked[split].values()}) != 1:
            raise DataError(f"{origin}: the arrays of '{split}' have different lengths")
        if any(len(array) != 2 for key, array in checked[split].items() if key.startswith("edge_index")):
            raise DataError(f"{origin}: 'edge_index' of '{split}' needs two rows, heads and tails")
        if any(array.min(initial=0) < 0 for array in checked[split].values()):
            raise DataError(f"{origin}: a negative id in '{split}'")
    return checked


def _both(client: Client, key: str) -> NDArray[np.int64]:
    return np.concatenate([client[split][key].ravel() for split in SPLITS])


def _labels(client: Client, key: str, labels: tuple[str, ...], origin: str) -> tuple[str, ...]:
    """The label of each local id; a local id must stand for one global id, and none may be left out."""
    local, ori = _both(client, key), _both(client, f"{key}_ori")
    pairs = np.unique(np.stack([local, ori]), axis=1)  # (2, k), sorted by local id
    if not np.array_equal(pairs[0], np.arange(pairs.shape[1])) or len(np.unique(pairs[1])) != pairs.shape[1]:
        raise DataError(
            f"{origin}: local and global ids of '{key}' do not match one to one, from 0 without gaps"
        )
    return tuple(labels[number] for number in pairs[1].tolist())


def _graph(
    client: Client, name: str, entities: tuple[str, ...], relations: tuple[str, ...], origin: str
) -> KnowledgeGraph:
    arrays = {
        split: np.stack([part["edge_index"][0], part["edge_type"], part["edge_index"][1]], axis=1)
        for split, part in client.items()
    }
    return KnowledgeGraph.from_ids(
        name,
        _labels(client, "edge_index", entities, origin),
        _labels(client, "edge_type", relations, origin),
        arrays,
    )
