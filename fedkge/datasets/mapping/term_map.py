"""Term maps: how a row becomes a subject, a predicate or an object."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import pyoxigraph

from fedkge.datasets.mapping.document import Document, Node, Place
from fedkge.datasets.mapping.template import Template, column_name
from fedkge.datasets.mapping.vocabulary import RR
from fedkge.errors import DataError

__all__ = ["Kind", "TermMap", "only", "text_of"]

_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")
_FORMS = ("constant", "column", "template")


class Kind(Enum):
    """What a term is."""

    IRI = "IRI"
    BLANK = "BlankNode"
    LITERAL = "Literal"


@dataclass(frozen=True)
class TermMap:
    """A constant term, a column or a template; exactly one of the three is there."""

    kind: Kind
    constant: Node | None = None
    column: str | None = None
    template: Template | None = None
    language: str | None = None
    datatype: str | None = None

    @classmethod
    def of_constant(cls, value: Node) -> TermMap:
        """The same term for every row."""
        return cls(Kind.LITERAL if isinstance(value, pyoxigraph.Literal) else Kind.IRI, constant=value)

    @classmethod
    def read(cls, document: Document, node: Node, place: Place, role: str) -> TermMap:
        """Read a subject, predicate or object map, and check that a term of its role can be so."""
        forms = {form: only(document, node, form, place) for form in _FORMS}
        given = {form: value for form, value in forms.items() if value is not None}
        if len(given) != 1:
            raise DataError(
                f"{place.of(f'{role}Map')}: a {role} map has {' and '.join(given) or 'no form'}; give one of "
                f"rr:constant, rr:column, rr:template"
            )
        constant = forms["constant"]
        if constant is not None:
            made = cls.of_constant(constant)
        else:
            language, datatype = (only(document, node, name, place) for name in ("language", "datatype"))
            column, template = forms["column"], forms["template"]
            made = cls(
                _kind(document, node, place, role, column is not None, bool(language or datatype)),
                column=None if column is None else column_name(text_of(column)),
                template=None if template is None else Template.parse(text_of(template), place),
                language=None if language is None else text_of(language),
                datatype=None if datatype is None else text_of(datatype),
            )
        made.check(place, role)
        return made

    def check(self, place: Place, role: str) -> None:
        """Refuse what a term of that role cannot be."""
        allowed = {
            "subject": (Kind.IRI, Kind.BLANK),
            "predicate": (Kind.IRI,),
            "object": (Kind.IRI, Kind.BLANK, Kind.LITERAL),
        }[role]
        if self.kind not in allowed:
            raise DataError(
                f"{place.of(f'{role}Map')}: a {role} cannot be a {self.kind.value}; "
                f"expected {' or '.join(kind.value for kind in allowed)}"
            )
        if (self.language or self.datatype) and self.kind is not Kind.LITERAL:
            raise DataError(f"{place.of(f'{role}Map')}: only a literal has a language or a datatype")
        if self.language and self.datatype:
            raise DataError(f"{place.of(self.language)}: a literal has a language or a datatype, not both")
        if self.language and not _LANGUAGE.fullmatch(self.language):
            raise DataError(f"{place.of(self.language)}: '{self.language}' is no language tag; such as 'en'")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose fields it needs."""
        if self.template is not None:
            return self.template.columns
        return () if self.column is None else (self.column,)


def only(document: Document, node: Node, word: str, place: Place) -> Node | None:
    """The value of a property of R2RML that stands once, if it stands."""
    values = document.values(node, RR + word)
    if len(values) > 1:
        raise DataError(f"{place.of(word)}: rr:{word} stands {len(values)} times; once is meant")
    return values[0] if values else None


def text_of(node: Node) -> str:
    """The text of a literal, or the IRI of a name."""
    return node.value if isinstance(node, pyoxigraph.Literal | pyoxigraph.NamedNode) else str(node)


def _kind(document: Document, node: Node, place: Place, role: str, is_column: bool, is_typed: bool) -> Kind:
    named = only(document, node, "termType", place)
    if named is None:
        return Kind.LITERAL if role == "object" and (is_column or is_typed) else Kind.IRI
    word = text_of(named).removeprefix(RR)
    if word not in {kind.value for kind in Kind}:
        known = ", ".join(f"rr:{kind.value}" for kind in Kind)
        raise DataError(f"{place.of(word)}: unknown term type '{word}'; known: {known}")
    return Kind(word)
