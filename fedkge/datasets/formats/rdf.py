"""Triples in RDF files (N-Triples, Turtle)."""

from __future__ import annotations

import logging

import pyoxigraph

from fedkge.datasets.formats.container import Member
from fedkge.datasets.graph import LabelledTriples
from fedkge.errors import DataError

__all__ = ["RDF_SUFFIXES", "read_rdf"]

RDF_SUFFIXES = {".nt": pyoxigraph.RdfFormat.N_TRIPLES, ".ttl": pyoxigraph.RdfFormat.TURTLE}

_log = logging.getLogger(__name__)


def read_rdf(member: Member, scope: str = "") -> LabelledTriples:
    """The statements between resources; those whose object is a literal are attributes, not links.

    A blank node has no name outside its file: it is numbered as it appears, within `scope`.
    """
    heads, relations, tails = [], [], []
    blank: dict[str, str] = {}
    skipped = 0
    try:
        for quad in pyoxigraph.parse(input=member.read(), format=RDF_SUFFIXES[member.suffix]):
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
        return f"<<{' '.join(_label(part, blank, scope) for part in parts)}>>"
    return str(term)
