"""From a name or a path to a graph or a split."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from fedkge.datasets import spec
from fedkge.datasets.about import confirm
from fedkge.datasets.download import locate
from fedkge.datasets.formats.container import ARCHIVES, Member, members
from fedkge.datasets.formats.idform import ID_FORM, is_id_form, read_id_form
from fedkge.datasets.formats.pickles import COMPANIONS, companions, read_pickle
from fedkge.datasets.formats.rdf import RDF_SUFFIXES, read_rdf
from fedkge.datasets.formats.text import read_labels, read_triples
from fedkge.datasets.graph import SPLITS, KnowledgeGraph, LabelledTriples, require_train
from fedkge.datasets.registry import DATASETS, EMBEDDED, Dataset
from fedkge.datasets.split import Split
from fedkge.datasets.synthetic import Synthetic
from fedkge.errors import DataError, DownloadError, UnknownNameError

__all__ = ["load", "load_graph", "load_path"]

_TEXT_SUFFIXES = (".tsv", ".txt", ".csv")
_SPLIT_OF_STEM = {"train": "train", "valid": "valid", "dev": "valid", "validation": "valid", "test": "test"}
_VOCABULARIES = ("entities.tsv", "relations.tsv")

_log = logging.getLogger(__name__)


def load(
    source: str | Path, columns: str | None = None, header: bool | None = None
) -> KnowledgeGraph | Split:
    """A dataset by name, or from a file, folder or archive; already split ones come as a `Split`."""
    loaded = _load(str(source), columns, header)
    if isinstance(loaded, KnowledgeGraph):
        require_train(loaded, str(source))
    return loaded


def _load(text: str, columns: str | None, header: bool | None) -> KnowledgeGraph | Split:
    if _exists(text):
        return load_path(Path(text), columns, header)
    named = {_folded(name): name for name in (*DATASETS, *EMBEDDED)}
    if _folded(text) in named:
        name = named[_folded(text)]
        return _load_named(DATASETS[name]) if name in DATASETS else _load_embedded(name)
    if text.partition(":")[0].casefold() == "synthetic":
        return spec.construct("dataset", "synthetic", Synthetic, spec.parse(text)[1]).build()
    if "/" in text or Path(text).suffix in (*_TEXT_SUFFIXES, *RDF_SUFFIXES, *ARCHIVES, ".pkl", ".gz"):
        raise DataError(
            f"{text}: no such file or folder; give a path that exists, or a name from 'fedkge data list'"
        )
    return _load_from_pykeen(text)


def load_graph(source: str | Path, columns: str | None = None, header: bool | None = None) -> KnowledgeGraph:
    """Like `load`, where a whole graph is needed."""
    loaded = load(source, columns, header)
    if isinstance(loaded, Split):
        raise DataError(
            f"{source} is already split among {loaded.num_clients} clients; a whole graph is needed here"
        )
    return loaded


def load_path(path: Path, columns: str | None = None, header: bool | None = None) -> KnowledgeGraph | Split:
    """Read a file, folder or archive in any of the formats."""
    found = members(path)
    return _read(_bare_name(path), [*found, *_companions(path, found)], columns, header)


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{text}: neither a dataset's name nor a readable path ({reason})") from error


def _companions(path: Path, found: Sequence[Member]) -> list[Member]:
    """The files that belong to a lone pickle and lie beside it."""
    if not path.is_file() or len(found) != 1 or found[0].suffix != ".pkl":
        return []
    return [member for file in companions(path) if file.is_file() for member in members(file)]


def _read(
    name: str, found: Sequence[Member], columns: str | None, header: bool | None
) -> KnowledgeGraph | Split:
    pickled = [member for member in found if member.suffix == ".pkl"]
    if len(pickled) == 1:
        base = pickled[0].name[: -len(".pkl")]
        beside = {end: member for member in found for end in COMPANIONS if member.name == f"{base}.{end}"}
        if len(found) == 1 + len(beside):
            return read_pickle(pickled[0], beside)
    clients = _client_folders(found)
    if clients:
        return _read_split(name, found, clients, columns, header)
    return _read_graph(name, found, columns, header)


def _folded(name: str) -> str:
    """A name as people vary it: case and punctuation do not count."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _bare_name(path: Path) -> str:
    name = path.resolve().name
    for suffix in (".gz", *ARCHIVES, *_TEXT_SUFFIXES, *RDF_SUFFIXES, ".pkl"):
        name = name.removesuffix(suffix)
    return name


def _client_folders(found: Sequence[Member]) -> dict[int, list[Member]]:
    """Members by client number, where a folder is called client-N."""
    clients: dict[int, list[Member]] = {}
    for member in found:
        for part in PurePosixPath(member.name).parts[:-1]:
            number = part.removeprefix("client-")
            if number != part and number.isdecimal():
                clients.setdefault(int(number), []).append(member)
    return clients


def _read_split(
    name: str,
    found: Sequence[Member],
    clients: Mapping[int, list[Member]],
    columns: str | None,
    header: bool | None,
) -> Split:
    if sorted(clients) != list(range(len(clients))):
        raise DataError(
            f"{name}: client folders are {sorted(clients)}; expected 0 to {len(clients) - 1} without gaps"
        )
    graphs = [
        _read_graph(f"client-{n}", clients[n], columns, header, f"{name}/client-{n}") for n in sorted(clients)
    ]
    inside = {id(member) for group in clients.values() for member in group}
    outside = [member for member in found if id(member) not in inside]
    for member in outside:
        if member.suffix in _TEXT_SUFFIXES and member.stem.lower() in _SPLIT_OF_STEM:
            _log.warning("%s: left out, because it lies beside client folders", member.origin)
    files = _by_name(outside, (*_VOCABULARIES, "split.json"), name)
    split = Split.of(name, graphs, partition="given")
    if all(file in files for file in _VOCABULARIES):
        entities = dict.fromkeys([*read_labels(files["entities.tsv"]), *split.entity_labels])
        relations = dict.fromkeys([*read_labels(files["relations.tsv"]), *split.relation_labels])
        split = replace(split, entity_labels=tuple(entities), relation_labels=tuple(relations))
    return confirm(split, files["split.json"]) if "split.json" in files else split


def _by_name(found: Sequence[Member], names: Sequence[str], origin: str) -> dict[str, Member]:
    """The members with one of the names, which none may share."""
    files: dict[str, Member] = {}
    for member in found:
        name = PurePosixPath(member.name).name
        if name in files:
            raise DataError(f"{origin}: two files for {name}: {files[name].name} and {member.name}; keep one")
        if name in names:
            files[name] = member
    return files


def _read_graph(
    name: str, found: Sequence[Member], columns: str | None, header: bool | None, origin: str | None = None
) -> KnowledgeGraph:
    origin = origin or name
    files = _by_name(found, (*ID_FORM, *_VOCABULARIES), origin)
    if is_id_form(files):
        return read_id_form(name, files)
    splits: dict[str, LabelledTriples] = {}
    for split, member in _split_members(found, origin).items():
        if member.suffix in RDF_SUFFIXES:
            splits[split] = read_rdf(member, scope=split)
        else:
            splits[split] = read_triples(member, columns, header)
    vocabulary = [read_labels(files[file]) if file in files else [] for file in _VOCABULARIES]
    return KnowledgeGraph.from_labels(name, splits, *vocabulary)


def _split_members(found: Sequence[Member], origin: str) -> dict[str, Member]:
    """The member of each split; a lone file is all train."""
    readable = [member for member in found if member.suffix in (*_TEXT_SUFFIXES, *RDF_SUFFIXES)]
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
    names = ", ".join(sorted(member.name for member in found)[:5]) or "nothing"
    raise DataError(
        f"{origin}: no triples found (it holds {names}); expected train.tsv (and valid.tsv, test.tsv), "
        "train2id.txt, client-0/…, or one .tsv, .csv, .nt, .ttl or .pkl file"
    )


def _load_named(dataset: Dataset) -> KnowledgeGraph | Split:
    paths = [locate(file) for file in dataset.files]
    verified = [member for path in paths for member in members(path)]
    loaded = _read(_bare_name(paths[0]), verified, None, None)
    if isinstance(loaded, KnowledgeGraph):
        graph = dataset.renumber(loaded) if dataset.renumber else loaded
        return replace(graph, name=dataset.name)
    return loaded


def _load_embedded(name: str) -> KnowledgeGraph:
    """UMLS, Kinships and Nations, read out of PyKEEN's files without importing it."""
    found = find_spec("pykeen")
    if found is None or not found.submodule_search_locations:
        raise DataError(f"{name} ships inside PyKEEN, which is not installed; run 'pip install pykeen'")
    folder = Path(found.submodule_search_locations[0]) / "datasets" / name.lower()
    files = [member for member in members(folder) if member.name in ("train.txt", "valid.txt", "test.txt")]
    return _read_graph(name, files, None, None)


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
