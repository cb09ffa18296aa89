"""The pickle in which FedE, FedR and their successors exchange splits, read without executing it.

A list with one dict per client: `train | valid | test` -> `edge_index` (2, n) and `edge_type` (n,) in local
ids, `edge_index_ori` and `edge_type_ori` in global ids. It carries no labels: they lie beside it, in
`NAME.entities.tsv` and `NAME.relations.tsv`; where these are absent, a global id is its own label.

Where no client has the `_ori` arrays, the ids must be global, and the file has to show it: labels lie beside
it, or some client's ids leave gaps, which local ids never do. Local ids alone do not tell what clients share.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.about import confirm, write_about
from fedkge.datasets.formats.container import Member
from fedkge.datasets.formats.file_format import SplitFiles
from fedkge.datasets.formats.pickle_reader import Admitted, PickleReader, next_pickle
from fedkge.datasets.formats.text import read_labels, write_labels
from fedkge.datasets.graph import SPLITS, KnowledgeGraph
from fedkge.datasets.split import Split
from fedkge.errors import DataError
from fedkge.storage import staged

__all__ = ["FedEPickle", "companions", "write_pickle"]

_COMPANIONS = ("entities.tsv", "relations.tsv", "split.json")  # beside NAME.pkl, as NAME.entities.tsv, …

Client = dict[str, dict[str, NDArray[np.int64]]]

_SHAPES = {"edge_index": (2, -1), "edge_type": (-1,)}
_WORDS = {"edge_index": ("entities", "entities.tsv"), "edge_type": ("relations", "relations.tsv")}

_ORDER = ("train", "test", "valid")  # as the published files have it
_NUMBERS = {f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)} - {"f1"}
_MOST_IDS = 10_000_000  # every id up to the largest gets a label, so that the file's numbering is kept


def companions(path: Path) -> list[Path]:
    """The files that belong to a pickle and lie beside it: two vocabularies, and what it is."""
    stem = path.name.removesuffix(".gz").removesuffix(".pkl")
    return [path.with_name(f"{stem}.{ending}") for ending in _COMPANIONS]


class FedEPickle(SplitFiles):
    """The split in a FedE pickle, its numbering kept."""

    suffixes = (".pkl",)

    def recognises(self, members: Sequence[Member]) -> bool:
        pickled = [member for member in members if member.suffix == ".pkl"]
        return len(pickled) == 1 and len(members) == 1 + len(_beside(pickled[0], members))

    def companions(self, path: Path) -> list[Path]:
        return companions(path)

    def read(self, members: Sequence[Member]) -> Split:
        member = next(member for member in members if member.suffix == ".pkl")
        beside = _beside(member, members)
        clients = _checked(_load(member), member.origin)
        if not _has_global_ids(clients):
            _require_global(clients, beside, member.origin)
            clients = [_numbered_by_client(client) for client in clients]
        entities = _vocabulary(clients, "edge_index_ori", beside.get("entities.tsv"), member.origin)
        relations = _vocabulary(clients, "edge_type_ori", beside.get("relations.tsv"), member.origin)
        graphs = [
            _graph(client, f"client-{number}", entities, relations, f"{member.origin}, client {number}")
            for number, client in enumerate(clients)
        ]
        split = Split(member.stem, tuple(graphs), entities, relations, partition="given")
        return confirm(split, beside["split.json"]) if "split.json" in beside else split


def _beside(pickled: Member, members: Sequence[Member]) -> dict[str, Member]:
    """The companions of a pickle among some files, by ending."""
    base = pickled.name[: -len(".pkl")]
    return {end: member for member in members for end in _COMPANIONS if member.name == f"{base}.{end}"}


def write_pickle(path: Path, split: Split) -> None:
    """Write a split in the FedE format; global ids number the labels, which are written beside it."""
    for graph in split.clients:
        _refuse_what_is_lost(graph)
    records = _records(split)
    entities, relations, about = companions(path)
    with (
        staged(path) as pickled,
        staged(entities) as entity_file,
        staged(relations) as relation_file,
        staged(about) as about_file,
    ):
        write_labels(entity_file, split.entity_labels)
        write_labels(relation_file, split.relation_labels)
        write_about(about_file, split)
        with pickled.open("wb") as file:
            pickle.dump(records, file, protocol=4)


def _refuse_what_is_lost(graph: KnowledgeGraph) -> None:
    if any(graph.marks(name).any() for name in SPLITS):
        raise DataError("a FedE .pkl cannot carry confidential marks; write a folder instead")
    held = np.zeros(graph.num_entities, dtype=bool)
    held[graph.triples[:, [0, 2]]] = True
    stated = np.zeros(graph.num_relations, dtype=bool)
    stated[graph.triples[:, 1]] = True
    for used, labels in ((held, graph.entity_labels), (stated, graph.relation_labels)):
        if not used.all():
            raise DataError(
                f"{graph.name}: '{labels[int(used.argmin())]}' is in no triple, and a FedE .pkl cannot carry "
                "it; write a folder instead"
            )


def _records(split: Split) -> list[Client]:
    clients: list[Client] = []
    for graph, entity, relation in zip(split.clients, split.entity_ids, split.relation_ids, strict=True):
        record: Client = {}
        for name in _ORDER:
            head, rel, tail = graph[name].astype(np.int64).T
            record[name] = {
                "edge_index": np.stack([head, tail]),
                "edge_type": rel.copy(),
                "edge_index_ori": np.stack([entity[head], entity[tail]]),
                "edge_type_ori": relation[rel],
            }
        clients.append(record)
    return clients


def _vocabulary(clients: list[Client], key: str, file: Member | None, origin: str) -> tuple[str, ...]:
    """The label of every global id."""
    most = max(int(_both(client, key).max(initial=-1)) for client in clients)
    if file is not None:
        labels = tuple(read_labels(file))
        if most >= len(labels):
            raise DataError(
                f"{origin}: '{key}' has id {most}, but {file.origin} has only {len(labels)} labels; "
                "remove it and the other files beside the pickle if they belong to another one"
            )
        return labels
    if most >= _MOST_IDS:
        raise DataError(
            f"{origin}: '{key}' has id {most}; number entities and relations from 0, below {_MOST_IDS:,}"
        )
    return tuple(map(str, range(most + 1)))


def _latin1(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("an encoding other than latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""  # how old protocols write the contents of an empty array


class _Dtype:
    """Stands in for numpy's own, whose state in a damaged or hostile file can break the interpreter."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in _NUMBERS:
            raise pickle.UnpicklingError(f"it holds arrays of '{code}'")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands in for numpy's own, and holds the array once its state has been read."""

    value: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(raw, bytes | bytearray):
            raise pickle.UnpicklingError("an array without bytes")
        self.value = np.frombuffer(bytes(raw), kind.dtype).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _frombuffer(raw: bytes, kind: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, kind, order == "F", raw))
    return array


_ADMITTED = Admitted(
    {
        **{
            (f"numpy.{core}.{module}", name): stand_in
            for core in ("core", "_core")
            for module, name, stand_in in (
                ("multiarray", "_reconstruct", _reconstruct),
                ("numeric", "_frombuffer", _frombuffer),
            )
        },
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _latin1,
        ("__builtin__", "bytes"): _no_bytes,
        ("builtins", "bytes"): _no_bytes,
    },
    {_Dtype: _Dtype.__setstate__, _Array: _Array.__setstate__},
)


def _load(member: Member) -> object:
    try:
        content: object = PickleReader(next_pickle(io.BytesIO(member.read())), _ADMITTED).load()
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{member.origin}: not a FedE split: {error}; only lists, dicts and numpy arrays are admitted, "
            "because a pickle can execute code"
        ) from error
    except DataError:
        raise
    except Exception as error:  # damaged opcodes raise anything
        raise DataError(
            f"{member.origin}: a damaged or truncated pickle ({error}); fetch it again"
        ) from error
    return content


def _checked(data: object, origin: str) -> list[Client]:
    if not isinstance(data, list) or not data:
        raise DataError(f"{origin}: expected a list with one dict per client, found {type(data).__name__}")
    keys = _keys(data)
    return [_checked_client(client, keys, f"{origin}, client {number}") for number, client in enumerate(data)]


def _keys(data: list[object]) -> dict[str, tuple[int, ...]]:
    """The arrays that every client must have, with their shapes; global ids if any client has some."""
    clients = [client for client in data if isinstance(client, dict)]
    parts = [part for client in clients for part in client.values() if isinstance(part, dict)]
    if not any(f"{key}_ori" in part for part in parts for key in _SHAPES):
        return _SHAPES
    return {f"{key}{ending}": shape for key, shape in _SHAPES.items() for ending in ("", "_ori")}


def _checked_client(client: object, keys: dict[str, tuple[int, ...]], origin: str) -> Client:
    if not isinstance(client, dict):
        raise DataError(f"{origin}: expected a dict, found {type(client).__name__}")
    checked: Client = {}
    for split in SPLITS:
        part = client.get(split)
        if not isinstance(part, dict):
            raise DataError(f"{origin}: no '{split}' in it; known: {', '.join(map(str, client))}")
        checked[split] = {
            key: _checked_array(part.get(key), shape, f"{origin}: '{split}' needs '{key}'")
            for key, shape in keys.items()
        }
        if len({array.shape[-1] for array in checked[split].values()}) != 1:
            raise DataError(f"{origin}: the arrays of '{split}' have different lengths")
        if any(len(array) != 2 for key, array in checked[split].items() if key.startswith("edge_index")):
            raise DataError(f"{origin}: 'edge_index' of '{split}' needs two rows, heads and tails")
        if any(array.min(initial=0) < 0 for array in checked[split].values()):
            raise DataError(f"{origin}: a negative id in '{split}'")
    return checked


def _checked_array(held: object, shape: tuple[int, ...], need: str) -> NDArray[np.int64]:
    array = held.value if isinstance(held, _Array) else None
    if array is not None and array.size == 0:  # numpy calls an empty list float
        array = np.zeros([max(size, 0) for size in shape], dtype=np.int64)
    if array is None or array.dtype.kind not in "iu" or array.ndim != len(shape):
        raise DataError(f"{need}, an integer array of shape {shape}")
    return array.astype(np.int64)


def _has_global_ids(clients: list[Client]) -> bool:
    return "edge_index_ori" in clients[0]["train"]


def _require_global(clients: list[Client], beside: dict[str, Member], origin: str) -> None:
    """Refuse ids that may be local: those of every client run from 0 without a gap, and no labels tell."""
    if len(clients) == 1:
        return  # with nobody to share with, local ids are global ones
    gapless = {key: [_is_gapless(_both(client, key)) for client in clients] for key in _SHAPES}
    for key, (things, file) in _WORDS.items():
        if file in beside or not all(gapless[key]):
            continue
        counts = {int(_both(client, key).max(initial=-1)) + 1 for client in clients}
        if key == "edge_type" and len(counts) == 1:
            continue  # every client has every relation, of which the entities' ids tell that they are global
        stem = PurePosixPath(origin).name.removesuffix(".gz").removesuffix(".pkl")
        raise DataError(
            f"{origin}: '{key}' may be local ids (each client's run from 0 without a gap), and these do "
            f"not tell which {things} clients share; add 'edge_index_ori' and 'edge_type_ori' with global "
            f"ids to every part, or, if these are global, a file {stem}.{file} with "
            "the label of each id, one a line"
        )


def _is_gapless(ids: NDArray[np.int64]) -> bool:
    distinct = np.unique(ids)
    return len(distinct) == 0 or int(distinct[-1]) == len(distinct) - 1


def _numbered_by_client(client: Client) -> Client:
    """A client that has global ids only, with local ones beside them."""
    own = {key: np.unique(_both(client, key)) for key in _SHAPES}
    return {
        split: {
            **{key: np.searchsorted(own[key], part[key]) for key in _SHAPES},
            **{f"{key}_ori": part[key] for key in _SHAPES},
        }
        for split, part in client.items()
    }


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
