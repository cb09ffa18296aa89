"""The datasets that fedkge knows by name: where they are, what they must hash to, what they contain.

An entry that has only a git blob id was never held in hand: the id is what public repositories list for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedkge.datasets.graph import KnowledgeGraph
from fedkge.datasets.partition.exchange import by_exchange
from fedkge.datasets.partition.fedr import pathcon_numbering
from fedkge.datasets.split import Split

__all__ = ["DATASETS", "EMBEDDED", "Dataset", "RemoteFile"]

_CONVE = "https://github.com/TimDettmers/ConvE/raw/master"
_PATHCON = "https://raw.githubusercontent.com/hwwang55/PathCon/master/data/DDB14"
_OPENKE = "https://raw.githubusercontent.com/thunlp/OpenKE/OpenKE-PyTorch/benchmarks"
_HETIONET = "https://github.com/hetio/hetionet/raw/38873689199f81b0e6e11554d9803b94f0c4a12c/hetnet/tsv"
_FEDR = "https://raw.githubusercontent.com/taokz/FedR/main/Fed_data"


@dataclass(frozen=True)
class RemoteFile:
    """A file by its path below the data folder, its address, and its SHA-256 or its git blob id."""

    path: str
    url: str  # "": no public address serves these bytes, as far as we know
    sha256: str = ""
    git_blob: str = ""  # SHA-1 of "blob SIZE\0" and the bytes, where nobody could hash them otherwise
    packed: str = ""  # an archive below the data folder that may have it instead


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
    divide: Callable[[KnowledgeGraph], Split] | None = None
    is_network: bool = False  # its files are edges, undirected, and the classes of vertices


def _folder(folder: str, base: str, sums: dict[str, str], packed: str = "") -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"{folder}/{name}", f"{base}/{name}" if base else "", digest, packed=packed)
        for name, digest in sums.items()
    )


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


_STOCKS = _folder(
    "stock-kg",
    "",
    {
        "stock_concept.csv": "cf092c2220a555feb40d6a64571c6d38047862f1edc558e9f3d0ca9b139f4364",
        "stock_industry.csv": "f7212018bb9431cf68e722440ace86d96c77862b37f066ec3c456b130e64cf0f",
        "executive_stock.csv": "8f91ea704be67c7bf8995b1ce8145c61506e40eca038628863d3d30858ed9619",
        "concept.csv": "5f98f01e32fcafbdc6e77e70a43b3f5af10e4aa2b8a1c0dde1faa142669f0cb3",
        "industry.csv": "5970396e5938d767126e3c2c606ddff6c436599d74ef55d1a3434b05fa59e646",
    },
)

_ALL = (
    Dataset(
        name="FB15k",
        about="Freebase with inverse relations, which give test triples away (Bordes et al., 2013): audit it",
        licence="Freebase data: CC BY 2.5",
        files=_folder(
            "FB15k",
            f"{_OPENKE}/FB15K",
            {
                "train2id.txt": "5db905046f3e598cf56e5adf579f02d0ad718ea5bf8dbad04c421da11545ac7a",
                "valid2id.txt": "9c628f1e18240a183a2e93e9019721ddd0c8129e93bbdfafe905a737b0cbefb8",
                "test2id.txt": "2a23d06e5f9b801154456c8a7d972a92f40185abc3311a420284f103b02f211b",
                "entity2id.txt": "41c4cd91e81351d7e90a2e21a8ed69522b2296c57971ba6dab2677e8436e3285",
                "relation2id.txt": "00d3bf88fe86537279117d499a3cbd492932f58f51fbb3abda8f3786b87e63b0",
            },
            packed="fb15k/FB15k-openke.tar.gz",
        ),
        entities=14_951,
        relations=1_345,
        train=483_142,
        valid=50_000,
        test=59_071,
    ),
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
        name="YAGO3-10",
        about="what YAGO3 says of entities with ten relations or more, as ConvE distributes it",
        licence="CC BY 3.0",
        # No copy of the whole was at hand to be hashed: the blob id is that of two public repositories.
        files=(
            RemoteFile(
                "YAGO3-10.tar.gz",
                f"{_CONVE}/YAGO3-10.tar.gz",
                git_blob="be63d16955e1951cb6539710204af43cb38da7d9",
            ),
        ),
        entities=123_182,
        relations=37,
        train=1_079_040,
        valid=5_000,
        test=5_000,
    ),
    Dataset(
        name="Hetionet",
        about="biology, drugs and diseases of 29 sources (Himmelstein et al., 2017); nothing is held out",
        licence="CC0 1.0, and the terms of its sources",
        # The SHA-256 is that of the pointer (Git LFS) in the repository; counts are as published.
        files=(
            RemoteFile(
                "hetionet-v1.0-edges.sif.gz",
                f"{_HETIONET}/hetionet-v1.0-edges.sif.gz",
                "611f0411ac666be4e0270e54bbca67407e14720bfc3099311f0f5eec25c5a947",
            ),
        ),
        entities=45_158,
        relations=24,
        train=2_250_197,
        valid=0,
        test=0,
    ),
    Dataset(
        name="StockKG",
        about="companies of two exchanges, who directs them, concepts, industries; nothing is held out",
        licence="MIT",
        files=_STOCKS,
        entities=24_272,
        relations=14,
        train=41_423,
        valid=0,
        test=0,
    ),
    Dataset(
        name="StockKG-Exchanges",
        about="StockKG as two clients, the exchanges of Shanghai and of Shenzhen",
        licence="MIT",
        files=_STOCKS,
        entities=24_272,
        relations=14,
        train=33_137,
        valid=4_143,
        test=4_143,
        clients=2,
        divide=by_exchange,
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
            f"{_OPENKE}/NELL-995",
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
