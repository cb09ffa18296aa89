"""Triples in RDF files (N-Triples, Turtle)."""

from __future__ import annotations

import logging

import pyoxigraph

from fedkge.datasets.formats.container import Member
from fedkge.datasets.formats.file_format import Layout, TripleFile
from fedkge.datasets.graph import LabelledTriples
from fedkge.datasets.labels import LOCAL, is_local
from fedkge.errors import DataError

__all__ = ["Rdf"]

_SYNTAXES = {".nt": pyoxigraph.RdfFormat.N_TRIPLES, ".ttl": pyoxigraph.RdfFormat.TURTLE}

_log = logging.getLogger(__name__)


class Rdf(TripleFile):
    """The statements between resources; those whose object is a literal are attributes, not links.

    A blank node has no name outside its file: it is numbered as it appears, within its split, and its label
    starts with `_:`, which no other party's label is taken for.
    """

    suffixes = tuple(_SYNTAXES)

    def read(self, member: Member, scope: str, layout: Layout) -> LabelledTriples:
        del layout
        heads, relations, tails = [], [], []
        blank: dict[str, str] = {}
        skipped = 0
        try:
            for quad in pyoxigraph.parse(input=member.read(), format=_SYNTAXES[member.suffix]):
                if isinstance(quad.object, pyoxigraph.Literal):
                    skipped += 1
                    continue
                heads.append(_label(quad.subject, blank, scope))
                relations.append(_label(quad.predicate, blank, scope))
                tails.append(_label(quad.object, blank, scope))
        except SyntaxError as error:
            raise DataError(f"{member.origin}: not valid RDF: {error.msg}") from error
        if skipped:
            _log.warning("%s: left out %d statements whose object is a literal", member.origin, skipped)
        return LabelledTriples(heads, relations, tails)


def _label(term: object, blank: dict[str, str], scope: str) -> str:
    if isinstance(term, pyoxigraph.NamedNode):
        return term.value
    if isinstance(term, pyoxigraph.BlankNode):
        return blank.setdefault(term.value, f"_:{scope}{len(blank)}")
    if isinstance(term, pyoxigraph.Triple):  # a statement about a statement
        parts = (term.subject, term.predicate, term.object)
        labels = [_label(part, blank, scope) for part in parts]
        return f"{LOCAL if any(map(is_local, labels)) else ''}<<{' '.join(labels)}>>"
    return str(term)
