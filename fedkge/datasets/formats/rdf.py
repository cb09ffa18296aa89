"""Triples in RDF files (N-Triples, Turtle)."""

from __future__ import annotations

import logging

import pyoxigraph

from fedkge.datasets.formats.container import Member
from fedkge.datasets.formats.file_format import Layout, TripleFile
from fedkge.datasets.graph import LONGEST_TEXT, LabelledTriples
from fedkge.datasets.labels import LOCAL, is_local
from fedkge.errors import DataError

__all__ = ["Rdf"]

# The properties whose literals describe their subject, a name first.
DESCRIBED = (
    "http://www.w3.org/2000/01/rdf-schema#label",
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://www.w3.org/2000/01/rdf-schema#comment",
    "http://www.w3.org/2004/02/skos/core#definition",
    "http://schema.org/description",
    "https://schema.org/description",
    "http://purl.org/dc/terms/description",
)
_SYNTAXES = {".nt": pyoxigraph.RdfFormat.N_TRIPLES, ".ttl": pyoxigraph.RdfFormat.TURTLE}

_log = logging.getLogger(__name__)


class Rdf(TripleFile):
    """The statements between resources; those whose object is a literal are attributes, not links.

    A label, a comment or a description is a text of its subject, in English where there are several.

    A blank node has no name outside its file: it is numbered as it appears, within its split, and its label
    starts with `_:`, which no other party's label is taken for.
    """

    suffixes = tuple(_SYNTAXES)

    def read(self, member: Member, scope: str, layout: Layout) -> LabelledTriples:
        del layout
        heads, relations, tails = [], [], []
        blank: dict[str, str] = {}
        described = Described()
        skipped = 0
        try:
            for quad in pyoxigraph.parse(input=member.read(), format=_SYNTAXES[member.suffix]):
                if isinstance(quad.object, pyoxigraph.Literal):
                    if not described.take(
                        _label(quad.subject, blank, scope), quad.predicate.value, quad.object
                    ):
                        skipped += 1
                    continue
                heads.append(_label(quad.subject, blank, scope))
                relations.append(_label(quad.predicate, blank, scope))
                tails.append(_label(quad.object, blank, scope))
        except SyntaxError as error:
            raise DataError(f"{member.origin}: not valid RDF: {error.msg}") from error
        if skipped:
            _log.warning("%s: left out %d statements whose object is a literal", member.origin, skipped)
        texts = described.texts
        for subject, text in texts.items():
            if len(text) > LONGEST_TEXT:
                raise DataError(
                    f"{member.origin}: the literals that describe '{subject}' have {len(text):,} "
                    f"characters, and a description at most {LONGEST_TEXT:,}; shorten them"
                )
        return LabelledTriples(heads, relations, tails, texts=texts)


class Described:
    """The literals that describe things, by subject and property."""

    def __init__(self) -> None:
        self._literals: dict[str, dict[int, tuple[tuple[bool, str, str], str]]] = {}

    def take(self, subject: str, predicate: str, literal: pyoxigraph.Literal) -> bool:
        """Whether it describes the subject; of several languages, none or English comes first."""
        if predicate not in DESCRIBED:
            return False
        language = literal.language or ""
        order = (language != "" and not language.startswith("en"), language, literal.value)
        kept = self._literals.setdefault(subject, {})
        place = DESCRIBED.index(predicate)
        kept[place] = min(kept.get(place, (order, literal.value)), (order, literal.value))
        return True

    @property
    def texts(self) -> dict[str, str]:
        """By subject, its name, then what is said of it; the same words once."""
        return {
            subject: ", ".join(dict.fromkeys(text for _, (_, text) in sorted(kept.items())))
            for subject, kept in self._literals.items()
        }


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
