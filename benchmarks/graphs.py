"""The graphs that benchmarks measure on, read from the folder FEDKGE_DATA."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pykeen.datasets

from fedkge.datasets.graph import SPLITS, KnowledgeGraph, LabelledTriples


def load(name: str) -> KnowledgeGraph:
    if name == "UMLS":
        folder = Path(pykeen.datasets.__file__).parent / "umls"
        texts = {split: (folder / f"{split}.txt").read_text() for split in SPLITS}
    elif name == "DDB14":
        texts = {split: (data_folder() / "DDB14" / f"{split}.txt").read_text() for split in SPLITS}
    else:
        texts = archived(data_folder() / f"{name}.tar.gz")
    return KnowledgeGraph.from_labels(name, {split: parse(texts[split]) for split in SPLITS})


def data_folder() -> Path:
    if "FEDKGE_DATA" not in os.environ:
        raise SystemExit(
            "set FEDKGE_DATA to the folder that holds FB15k-237.tar.gz, WN18RR.tar.gz and DDB14/"
        )
    return Path(os.environ["FEDKGE_DATA"])


def archived(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            Path(member.name).stem: archive.extractfile(member).read().decode()
            for member in archive.getmembers()
            if Path(member.name).stem in SPLITS
        }


def parse(text: str) -> LabelledTriples:
    return LabelledTriples(*zip(*(line.split("\t") for line in text.splitlines()), strict=True))
