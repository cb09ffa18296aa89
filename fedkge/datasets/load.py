"""From a name or a path to a graph or a split."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TypeVar

from fedkge.datasets import spec
from fedkge.datasets.about import confirm
from fedkge.datasets.download import is_here, obtain
from fedkge.datasets.features import attach, feature_files
from fedkge.datasets.features.feature_file import is_feature_file
from fedkge.datasets.formats import FORMATS, Format, GraphFiles, Layout, SplitFiles, TripleFile
from fedkge.datasets.formats.container import ARCHIVES, Member, members
from fedkge.datasets.formats.text import read_labels
from fedkge.datasets.graph import SPLITS, KnowledgeGraph, require_train
from fedkge.datasets.labels import normalised, respelt
from fedkge.datasets.mapping.mapped_source import MappedSource
from fedkge.datasets.networks.edge_list import classes_beside, counts_beside, read_network
from fedkge.datasets.networks.network import as_network
from fedkge.datasets.networks.source import NetworkSource
from fedkge.datasets.registry import DATASETS, EMBEDDED, Dataset
from fedkge.datasets.split import Split
from fedkge.datasets.synthetic import Synthetic
from fedkge.errors import DataError, DownloadError, UnknownNameError

__all__ = ["at_hand", "load", "load_graph"]

_SPLIT_OF_STEM = {
    "train": "train",
    "valid": "valid",
    "dev": "valid",
    "validation": "valid",
    "test": "test",
    "train_sample": "train",  # of OpenBioLink
    "val_sample": "valid",
    "test_sample": "test",
}
_VOCABULARIES = ("entities.tsv", "relations.tsv")

Kind = TypeVar("Kind", bound=Format)

_log = logging.getLogger(__name__)


def load(
    source: str | Path, columns: str | None = None, header: bool | None = None
) -> KnowledgeGraph | Split:
    """A dataset by name, or from a file, folder or archive; already split ones come as a `Split`.

    Args:
        source: the name or path.
        columns: what the columns of text files hold: 'htr', 'head,relation,tail,_,_' or '0,1,2'.
        header: whether text files have a header; None looks.
    """
    loaded = _load(str(source), Layout(columns, header))
    if isinstance(loaded, Split):
        return _normalised_split(loaded)
    require_train(loaded, str(source))
    return normalised(loaded)


def _normalised_split(split: Split) -> Split:
    clients = tuple(map(normalised, split.clients))
    return replace(
        split,
        clients=clients,
        entity_labels=tuple(dict.fromkeys(map(respelt, split.entity_labels))),
        relation_labels=tuple(dict.fromkeys(map(respelt, split.relation_labels))),
        merged_labels=sum(graph.merged_labels for graph in clients),
    )


def _load(text: str, layout: Layout) -> KnowledgeGraph | Split:
    if _exists(text):
        return _load_path(Path(text), layout)
    named = {_folded(name): name for name in (*DATASETS, *EMBEDDED)}
    origin = f"'{text}', a dataset by name,"
    if _folded(text) in named:
        layout.refuse(origin)
        name = named[_folded(text)]
        return _load_named(DATASETS[name]) if name in DATASETS else _load_embedded(name)
    if text.partition(":")[0].casefold() == "synthetic":
        layout.refuse(origin)
        return spec.construct("dataset", "synthetic", Synthetic, spec.parse(text)[1]).build()
    if text.partition(":")[0].casefold() == "network":
        layout.refuse(origin)
        return _load_network(spec.construct("dataset", "network", NetworkSource, spec.parse(text)[1]))
    if text.partition(":")[0].casefold() == "mapped":
        layout.refuse(origin)
        return spec.construct("dataset", "mapped", MappedSource, spec.parse(text)[1]).read()
    if "/" in text or Path(text).suffix in (*_suffixes(), *ARCHIVES, ".gz"):
        raise DataError(
            f"{text}: no such file or folder; give a path that exists, or a name from 'fedkge data list'"
        )
    loaded = _load_from_pykeen(text)
    layout.refuse(origin)
    return loaded


def at_hand(name: str) -> bool:
    """Whether a dataset of the registry needs no download."""
    return all(map(is_here, DATASETS[name].files))


def _load_network(source: NetworkSource) -> KnowledgeGraph:
    if not source.graph:
        return source.read()
    return as_network(load_graph(source.graph), bool(source.directed))


def load_graph(source: str | Path, columns: str | None = None, header: bool | None = None) -> KnowledgeGraph:
    """Like `load`, where a whole graph is needed."""
    loaded = load(source, columns, header)
    if isinstance(loaded, Split):
        raise DataError(
            f"{source} is already split among {loaded.num_clients} clients; a whole graph is needed here"
        )
    return loaded


def _load_path(path: Path, layout: Layout) -> KnowledgeGraph | Split:
    """Read a file, folder or archive in any of the formats."""
    contents = members(path)
    return _read(_bare_name(path), [*contents, *_companions(path, contents)], layout)


def _formats(kind: type[Kind]) -> list[Kind]:
    """The formats of a kind, in the order of the registry."""
    return [format() for format in FORMATS.values() if issubclass(format, kind)]


def _readers() -> dict[str, TripleFile]:
    """What reads a file of triples, by the file's ending."""
    return {suffix: format for format in _formats(TripleFile) for suffix in format.suffixes}


def _suffixes() -> tuple[str, ...]:
    return tuple(suffix for format in FORMATS.values() for suffix in format.suffixes)


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{text}: neither a dataset's name nor a readable path ({reason})") from error


def _companions(path: Path, contents: Sequence[Member]) -> list[Member]:
    """The files that belong to a lone file and lie beside it."""
    if not path.is_file() or len(contents) != 1:
        return []
    formats = [format for format in _formats(SplitFiles) if contents[0].suffix in format.suffixes]
    files = [file for format in formats for file in format.companions(path) if file.is_file()]
    return [member for file in files for member in members(file)]


def _read(name: str, contents: Sequence[Member], layout: Layout) -> KnowledgeGraph | Split:
    for format in _formats(SplitFiles):
        if format.recognises(contents):
            layout.refuse(name)
            return format.read(contents)
    clients = _client_folders(name, contents)
    if clients:
        return _read_split(name, contents, clients, layout)
    return _read_graph(name, contents, layout)


def _folded(name: str) -> str:
    """A name as people vary it: case and punctuation do not count."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _bare_name(path: Path) -> str:
    name = path.resolve().name
    for suffix in (".gz", *ARCHIVES, *_suffixes()):
        name = name.removesuffix(suffix)
    return name


def _client_folders(name: str, contents: Sequence[Member]) -> dict[int, list[Member]]:
    """Members by client number, where folders are called client-N, or N as in FedLU's archives."""
    clients = _called_client(contents)
    inside = {id(member) for group in clients.values() for member in group}
    readers = _readers()
    numbered = _numbered_folders(
        [member for member in contents if id(member) not in inside and member.suffix in readers]
    )
    if clients and numbered:
        folder = PurePosixPath(numbered[min(numbered)][0].name).parent
        raise DataError(
            f"{name}: clients are in folders called client-N ({_listed(clients)}) and called N "
            f"({_listed(numbered)}, such as {folder}); keep one kind, and rename the others"
        )
    return clients or numbered


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _called_client(contents: Sequence[Member]) -> dict[int, list[Member]]:
    """Members by the number in client-N, which one of their folders is called."""
    clients: dict[int, list[Member]] = {}
    for member in contents:
        for part in PurePosixPath(member.name).parts[:-1]:
            number = part.removeprefix("client-")
            if number != part and number.isdecimal():
                clients.setdefault(int(number), []).append(member)
    return clients


def _numbered_folders(contents: Sequence[Member]) -> dict[int, list[Member]]:
    """Members by the number that their folder is called; a single folder such as 2019 is nobody's client."""
    clients: dict[int, list[Member]] = {}
    for member in contents:
        folder = PurePosixPath(member.name).parent.name
        if folder.isdecimal():
            clients.setdefault(int(folder), []).append(member)
    return clients if len(clients) > 1 or 0 in clients else {}


def _read_split(
    name: str, contents: Sequence[Member], clients: Mapping[int, list[Member]], layout: Layout
) -> Split:
    if sorted(clients) != list(range(len(clients))):
        raise DataError(
            f"{name}: client folders are {sorted(clients)}; expected 0 to {len(clients) - 1} without gaps; "
            "rename them"
        )
    graphs = [_read_graph(f"client-{n}", clients[n], layout, f"{name}/client-{n}") for n in sorted(clients)]
    readers = _readers()
    inside = {id(member) for group in clients.values() for member in group}
    outside = [member for member in contents if id(member) not in inside]
    for member in outside:
        if member.suffix in readers and member.stem.lower() in _SPLIT_OF_STEM:
            _log.warning("%s: left out, because it lies beside client folders", member.origin)
    files = _by_name(outside, (*_VOCABULARIES, "split.json"), name)
    split = Split.of(name, graphs, partition="given")
    if all(file in files for file in _VOCABULARIES):
        entities = dict.fromkeys([*read_labels(files["entities.tsv"]), *split.entity_labels])
        relations = dict.fromkeys([*read_labels(files["relations.tsv"]), *split.relation_labels])
        split = replace(split, entity_labels=tuple(entities), relation_labels=tuple(relations))
    return confirm(split, files["split.json"]) if "split.json" in files else split


def _by_name(contents: Sequence[Member], names: Sequence[str], origin: str) -> dict[str, Member]:
    """The members with one of the names, which none may share."""
    files: dict[str, Member] = {}
    for member in contents:
        name = PurePosixPath(member.name).name
        if name in files:
            raise DataError(f"{origin}: two files for {name}: {files[name].name} and {member.name}; keep one")
        if name in names:
            files[name] = member
    return files


def _read_graph(
    name: str, contents: Sequence[Member], layout: Layout, origin: str | None = None
) -> KnowledgeGraph:
    origin = origin or name
    for format in _formats(GraphFiles):
        files = _by_name(contents, format.names, origin)
        if format.recognises(files):
            layout.refuse(origin)
            return attach(format.read(name, files), feature_files(contents))
    readers = _readers()
    chosen = _split_members(contents, readers, origin)
    for member in chosen.values():
        if not readers[member.suffix].has_columns:
            layout.refuse(member.origin)
    splits = {split: readers[member.suffix].read(member, split, layout) for split, member in chosen.items()}
    files = _by_name(contents, _VOCABULARIES, origin)
    vocabulary = [read_labels(files[file]) if file in files else [] for file in _VOCABULARIES]
    graph = KnowledgeGraph.from_labels(name, splits, *vocabulary)
    graph = replace(graph, classes=classes_beside(graph, contents), edge_list=counts_beside(contents))
    return attach(graph, feature_files(contents))


def _split_members(
    contents: Sequence[Member], readers: Mapping[str, TripleFile], origin: str
) -> dict[str, Member]:
    """The member of each split; a lone file is all train."""
    readable = [member for member in contents if member.suffix in readers and not is_feature_file(member)]
    by_split: dict[str, Member] = {}
    for member in readable:
        split = _SPLIT_OF_STEM.get(member.stem.lower())
        if split is None:
            continue
        if split in by_split:
            raise DataError(
                f"{origin}: two files for {split}: {by_split[split].name} and {member.name}; keep one"
            )
        by_split[split] = member
    if "train" in by_split:
        return {split: by_split[split] for split in SPLITS if split in by_split}
    if len(readable) == 1 and not by_split:
        return {"train": readable[0]}
    names = ", ".join(sorted(member.name for member in contents)[:5]) or "nothing"
    endings = [suffix for suffix in _suffixes() if suffix != ".txt"]  # which many other files have
    raise DataError(
        f"{origin}: no triples found (it holds {names}); expected train.tsv (and valid.tsv, test.tsv), "
        f"train2id.txt, client-0/… or 0/…, or one {', '.join(endings[:-1])} or {endings[-1]} file"
    )


def _load_named(dataset: Dataset) -> KnowledgeGraph | Split:
    verified = [member for file in dataset.files for member in obtain(file)]
    if dataset.is_network:
        edges, classes = verified
        return read_network(dataset.name, edges, classes)
    loaded = _read(dataset.name, verified, Layout())
    if isinstance(loaded, KnowledgeGraph):
        graph = dataset.renumber(loaded) if dataset.renumber else loaded
        return replace(dataset.divide(graph) if dataset.divide else graph, name=dataset.name)
    return loaded


def _load_embedded(name: str) -> KnowledgeGraph:
    """UMLS, Kinships and Nations, read out of PyKEEN's files without importing it."""
    package = find_spec("pykeen")
    if package is None or not package.submodule_search_locations:
        raise DataError(f"{name} ships inside PyKEEN, which is not installed; run 'pip install pykeen'")
    folder = Path(package.submodule_search_locations[0]) / "datasets" / name.lower()
    files = [member for member in members(folder) if member.name in ("train.txt", "valid.txt", "test.txt")]
    return _read_graph(name, files, Layout())


def _load_from_pykeen(name: str) -> KnowledgeGraph:
    """Any other dataset that PyKEEN can download."""
    from pykeen.datasets import dataset_resolver, get_dataset  # takes seconds to import

    if dataset_resolver.normalize(name) not in dataset_resolver.lookup_dict:
        ours = (*DATASETS, *EMBEDDED, "synthetic")
        theirs = set(dataset_resolver.lookup_dict) - set(map(_folded, ours))
        raise UnknownNameError("dataset", name, {*ours, *theirs})
    try:
        dataset = get_dataset(dataset=name)
    except Exception as error:  # whatever its loaders and the network raise
        raise DownloadError(
            f"PyKEEN could not load '{name}' ({error}); download it yourself and give its path"
        ) from error
    entities = sorted(dataset.entity_to_id, key=dataset.entity_to_id.__getitem__)
    relations = sorted(dataset.relation_to_id, key=dataset.relation_to_id.__getitem__)
    factories = {"train": dataset.training, "valid": dataset.validation, "test": dataset.testing}
    arrays = {
        split: factory.mapped_triples.numpy() for split, factory in factories.items() if factory is not None
    }
    return KnowledgeGraph.from_ids(name, entities, relations, arrays)
