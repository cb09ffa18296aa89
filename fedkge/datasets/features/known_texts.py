"""Published descriptions that fedkge knows by their path: where they are, and what they must hash to."""

from __future__ import annotations

from fedkge.datasets.registry import RemoteFile

__all__ = ["KNOWN_TEXTS"]

_KG_BERT = "https://github.com/yao8839836/kg-bert/raw/62b76ed5652bf3da5a355cbe9c1109f58290756f/data"
_VILLMOW = "https://raw.githubusercontent.com/villmow/datasets_knowledge_embedding/master"

_ALL = (
    RemoteFile(
        "FB15k-237-entity2wikidata.json",
        f"{_VILLMOW}/FB15k-237/entity2wikidata.json",
        "80e74bb002fb9ca0ecd3d63879a3a51121db855d312a101917a1ffb6aed2fea9",
    ),
    RemoteFile(
        "text/FB15k_mid2name.txt",
        f"{_KG_BERT}/FB15k-237/FB15k_mid2name.txt",
        "4da94b8059a83bc7e08c832f573d34221d38e85030576e332a0d0e9726d13d73",
    ),
    RemoteFile(
        "text/WN18RR-entity2text.txt",
        f"{_KG_BERT}/WN18RR/entity2text.txt",
        "8f5c6f11753dafa879917b9bdf73d398ceb3bd4bed8d5553177e1e0f2c37521f",
    ),
    RemoteFile(
        "text/UMLS-entity2text.txt",
        f"{_KG_BERT}/umls/entity2text.txt",
        "c6438aafd894917cefe73ea75fc20743d18f4226ebc85a2f43758ff3f77330b9",
    ),
    RemoteFile(
        "text/UMLS-entity2textlong.txt",
        f"{_KG_BERT}/umls/entity2textlong.txt",
        "cb4eccdebf5bfc73adc2db0fc582d215256aa11d789d3a16a6c0649f338f5fe3",
    ),
)

KNOWN_TEXTS: dict[str, RemoteFile] = {file.path: file for file in _ALL}
