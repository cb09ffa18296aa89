"""Labels as terms of RDF: IRIs stay what they are, all others get one that can be read back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal as OneOf
from urllib.parse import quote, unquote

import pyoxigraph
from pyoxigraph import BlankNode, NamedNode

from fedkge.datasets.labels import is_local
from fedkge.errors import DataError, SettingError

__all__ = ["BASE", "Kind", "Terms", "is_iri"]

BASE = "http://fedkge.example/"  # a name that nobody can own (RFC 2606)
Kind = OneOf["entity", "relation"]

# CURIEs such as GO:0006915 have the syntax of IRIs: what has no authority needs a scheme that is none.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.|(?:urn|mailto|tel|tag|info|did|ni|data|doi):.")


def is_iri(label: str) -> bool:
    """Whether a label names a thing by itself, and is not minted."""
    if not _SCHEME.match(label):
        return False
    try:
        NamedNode(label)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Terms:
    """The terms of one client's labels, below a base IRI."""

    base: str
    client: int

    def __post_init__(self) -> None:
        if not is_iri(self.base) or self.base[-1] not in "/#:":
            raise SettingError(
                f"base '{self.base}': expected an absolute IRI that ends with /, # or :, such as "
                "https://data.hospital.example/kg/"
            )

    def entity(self, label: str) -> NamedNode | BlankNode:
        """A blank node stays one: of the file, as before of its party."""
        if is_local(label):
            return BlankNode(f"b{label.encode('utf-8', 'surrogatepass').hex()}")
        return self._named("entity", label)

    def relation(self, label: str) -> NamedNode:
        """Predicates are no blank nodes: one of a party's own is minted below its client."""
        return self._named(f"client-{self.client}/relation" if is_local(label) else "relation", label)

    def is_minted(self, label: str) -> bool:
        """Whether the term does not show the label."""
        return not is_iri(_bare(label))

    def below(self, *path: str) -> NamedNode:
        """Something of this project's own, below the base."""
        return NamedNode(self.base + "/".join(quote(part, safe="-._~") for part in path))

    def _named(self, place: str, label: str) -> NamedNode:
        bare = _bare(label)
        if is_iri(bare):
            return NamedNode(bare)
        try:
            return NamedNode(f"{self.base}{place}/{quote(label, safe='-._~')}")
        except UnicodeEncodeError as error:
            raise DataError(
                f"label {label!r} has a character that UTF-8 cannot hold, and RDF needs UTF-8; rename it "
                "in the data"
            ) from error

    def label_of(self, term: pyoxigraph.NamedNode) -> str:
        """The label that a term was made of."""
        place, _, quoted = term.value.removeprefix(self.base).rpartition("/")
        own = term.value.startswith(self.base) and place.rpartition("/")[2] in ("entity", "relation")
        return unquote(quoted) if own else term.value


def _bare(label: str) -> str:
    """An IRI as N-Triples write it, <…>, is that IRI."""
    return label[1:-1] if label.startswith("<") and label.endswith(">") else label
