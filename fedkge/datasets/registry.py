"""The datasets that fedkge knows by name: where they are, what they must hash to, what they contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.fedr import pathcon_numbering

__all__ = ["DATASETS", "EMBEDDED", "Dataset", "RemoteFile"]

_CONVE = "https://github.com/TimDettmers/ConvE/raw/master"
_PATHCON = "https://raw.githubusercontent.com/hwwang55/PathCon/master/data/DDB14"
_OPENKE = "https://raw.githubusercontent.com/thunlp/OpenKE/OpenKE-PyTorch/benchmarks/NELL-995"
_FEDR = "https://raw.githubusercontent.com/taokz/FedR/main/Fed_data"


@dataclass(frozen=True)
class RemoteFile:
    """A file by its path below the data folder, its address and its SHA-256."""

    path: str
    url: str
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """A named dataset; the counts are those of the whole, duplicates included."""

    name: str
    about: str
    licence: str
    files: tuple[RemoteFile, ...]
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    clients: int = 1  # more than one: already split
    renumber: Callable[[KnowledgeGraph], KnowledgeGraph] | None = None
    is_network: bool = False  # its files are edges, undirected, and the classes of vertices


def _folder(folder: str, base: str, sums: dict[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(f"{folder}/{name}", f"{base}/{name}", digest) for name, digest in sums.items())


def _fedr(clients: int, digest: str, train: int, valid: int, test: int) -> Dataset:
    name = f"DDB14-Fed{clients}"
    return Dataset(
        name=name,
        about=f"the FedR authors' own split of DDB14 among {clients} clients (corrupted: audit it)",
        licence="none stated",
        files=(RemoteFile(f"fedr/{name}.pkl", f"{_FEDR}/{name}.pkl", digest),),
        entities=9203,
        relations=14,
        train=train,
        valid=valid,
        test=test,
        clients=clients,
    )


_ALL = (
    Dataset(
        name="FB15k-237",
        about="Freebase without inverse relations (Toutanova and Chen, 2015), as ConvE distributes it",
        licence="Freebase data: CC BY 2.5",
        files=(
            RemoteFile(
                "FB15k-237.tar.gz",
                f"{_CONVE}/FB15k-237.tar.gz",
                "311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8",
            ),
        ),
        entities=14_541,
        relations=237,
        train=272_115,
        valid=17_535,
        test=20_466,
    ),
    Dataset(
        name="WN18RR",
        about="WordNet without inverse relations (Dettmers et al., 2018)",
        licence="WordNet licence",
        files=(
            RemoteFile(
                "WN18RR.tar.gz",
                f"{_CONVE}/WN18RR.tar.gz",
                "1eb9152f804c140d163462c0d49f65e5a0b30ab5fbb375c5e3353c11a6249060",
            ),
        ),
        entities=40_943,
        relations=11,
        train=86_835,
        valid=3_034,
        test=3_134,
    ),
    Dataset(
        name="DDB14",
        about="the Disease Database, 14 relations (Wang et al., PathCon, 2021)",
        licence="MIT (repository); Disease Database terms for the content",
        files=_folder(
            "DDB14",
            _PATHCON,
            {
                "train.txt": "dcac09d919908658886be4f723b319d2613fcf84336f98471a34a9ffcca0356f",
                "valid.txt": "4d76a950637da91cbf1154ffa959611d082db48cd41550a4f07dc524e593ae56",
                "test.txt": "f9e1fd3f5493985c11db2c93a236d538c4eb20fba3f488fc8016c80aa6adf84b",
            },
        ),
        entities=9_203,
        relations=14,
        train=36_561,
        valid=4_000,
        test=4_000,
        renumber=pathcon_numbering,
    ),
    Dataset(
        name="NELL-995",
        about="the 995th iteration of NELL, in OpenKE's id form",
        licence="MIT (repository); NELL terms for the content",
        files=_folder(
            "NELL-995",
            _OPENKE,
            {
                "entity2id.txt": "d4676c3efc7fd79c3d90bd4168c3f49493f96656afe1030a38fda5ba3f276df0",
                "relation2id.txt": "7acb7297c45d8e9721c3667a75e9ac47d687aa660d9ab6dc46490397d651c126",
                "train2id.txt": "db5a0d78d1871be461fa54ddd2df20b00122950689a787f9fe88477869b59b0d",
                "valid2id.txt": "c5a037af8b2de6f449ddffce0fc41ae5d7d1e221607a7c1e52ae4082a417db29",
                "test2id.txt": "e1f320710c74d3c166d5732066d44378f9d48ce0cd115c66d36681f09553f7dd",
            },
        ),
        entities=75_492,
        relations=200,
        train=149_678,
        valid=543,
        test=3_992,
    ),
    _fedr(5, "e568903d382fc488e43a3a78ad892c5be40e8fcc9bcc1ce2682780ea2fb256f2", 35_646, 4_455, 4_460),
    _fedr(10, "ab3623e10dd8330e6f0fb7a6168ad9981e0f54200e98ea7d23c411092283ee56", 36_290, 4_134, 4_137),
    _fedr(20, "712f5fa356626dff6aa5da2dd5cc0fdff6823c9470aee05ed685797b7fecad11", 39_312, 2_620, 2_629),
)

# Citation networks, and pages of Wikipedia; counts are of distinct edges without self-loops.
_NETWORKS = (
    Dataset(
        name="Cora",
        about="a network of 2,708 papers that cite each other, in 7 classes",
        licence="none stated",
        files=(
            RemoteFile(
                "networks/cora_edgelist.txt",
                "https://raw.githubusercontent.com/thunlp/OpenNE/master/data/cora/cora_edgelist.txt",
                "bdab43591bf44e2870280e36bd0f215f04cfcf019c08347d90da4a7a4f5c5775",
            ),
            RemoteFile(
                "networks/cora_labels.txt",
                "https://raw.githubusercontent.com/thunlp/OpenNE/master/data/cora/cora_labels.txt",
                "f6b5e9a0306dde91f56ce5bfa413b9d7afc7756590a8230f9e5a37ba2581299e",
            ),
        ),
        entities=2708,
        relations=1,
        train=5278,
        valid=0,
        test=0,
        is_network=True,
    ),
    Dataset(
        name="Citeseer",
        about="a network of 3,312 papers that cite each other, in 6 classes; 48 have no edge",
        licence="none stated",
        # The original is at this address, under other ids: it is refused by its digest. Our copy, renumbered,
        # has 4,714 of its 4,732 rows, and no public address that we know.
        files=(
            RemoteFile(
                "networks/citeseer.cites",
                "https://linqs-data.soe.ucsc.edu/public/lbc/citeseer.tgz",
                "0f1793d52eb49d893acd11be89a910c3347fe43e64551c84ee78ad88b748e9f4",
            ),
            RemoteFile(
                "networks/citeseer.labels",
                "https://linqs-data.soe.ucsc.edu/public/lbc/citeseer.tgz",
                "a103d4eba37eb47f6dbbb7bf624bfe16294bee4a9770c456063d0c366d811397",
            ),
        ),
        entities=3312,
        relations=1,
        train=4536,
        valid=0,
        test=0,
        is_network=True,
    ),
    Dataset(
        name="Wiki",
        about="a network of 2,405 Wikipedia pages with links, in 17 classes (papers say 19)",
        licence="none stated",
        files=(
            RemoteFile(
                "networks/Wiki_edgelist.txt",
                "https://raw.githubusercontent.com/shenweichen/GraphEmbedding/master/data/wiki/Wiki_edgelist.txt",
                "72fccd28e5a927a752b6fbf38c971884b0a783dd124c5e8e2c9e27ac7bdd84f5",
            ),
            RemoteFile(
                "networks/wiki_labels.txt",
                "https://raw.githubusercontent.com/shenweichen/GraphEmbedding/master/data/wiki/wiki_labels.txt",
                "600541ba4563097b1e1796b6b0ffa110f17a0e71b1ac7e5c66dc11c512077774",
            ),
        ),
        entities=2405,
        relations=1,
        train=11_596,
        valid=0,
        test=0,
        is_network=True,
    ),
)

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in (*_ALL, *_NETWORKS)}

EMBEDDED = ("UMLS", "Kinships", "Nations")  # shipped inside PyKEEN: no download
