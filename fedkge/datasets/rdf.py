"""Triples in RDF files (N-Triples, Turtle)."""

from __future__ import annotations

import logging

import pyoxigraph

from fedkge.datasets.container import Member
from fedkge.datasets.graph import LabelledTriples
from fedkge.errors import DataError

__all__ = ["RDF_SUFFIXES", "read_rdf"]

RDF_SUFFIXES = {".nt": pyoxigraph.RdfFormat.N_TRIPLES, ".ttl": pyoxigraph.RdfFormat.TURTLE}

_log = logging.getLogger(__name__)


def read_rdf(member: Member, literals: bool = False) -> LabelledTriples:
    """The statements between resources; those whose object is a literal are attributes, not links."""
    heads, relations, tails = [], [], []
    skipped = 0
    try:
        for quad in pyoxigraph.parse(input=member.read(), format=RDF_SUFFIXES[member.suffix]):
            if isinstance(quad.object, pyoxigraph.Literal) and not literals:
                skipped += 1
                continue
            heads.append(_label(quad.subject))
            relations.append(_label(quad.predicate))
            tails.append(_label(quad.object))
    except SyntaxError as error:
        raise DataError(f"{member.origin}: not valid RDF: {error.msg}") from error
    if skipped:
        _log.warning("%s: left out %d statements whose object is a literal", member.origin, skipped)
    return LabelledTriples(heads, relations, tails)


def _label(term: object) -> str:
    return term.value if isinstance(term, pyoxigraph.NamedNode) else str(term)
