"""Terms as SQL: what DuckDB computes for each row, in the order and form that R2RML prescribes.

A term is a text: an IRI as it is, a blank node from `_:` on, a literal as N-Triples writes it, from its quote
on. It is NULL where a column that it needs is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyoxigraph

from fedkge.datasets.mapping.term_map import Kind, TermMap
from fedkge.datasets.mapping.vocabulary import XSD
from fedkge.errors import DataError

__all__ = ["MACROS", "Columns", "identifier", "text"]

_PLANES = "".join(rf"\x{{{plane:X}0000}}-\x{{{plane:X}FFFD}}" for plane in range(1, 15))
_UNRESERVED = rf"A-Za-z0-9\-._~\x{{A0}}-\x{{D7FF}}\x{{F900}}-\x{{FDCF}}\x{{FDF0}}-\x{{FFEF}}{_PLANES}"

# The functions that expressions use: RFC 3987's percent-encoding; names of blank nodes, one for each text;
# the canonical form of a double; the escapes of N-Triples.
MACROS = (
    rf"""CREATE MACRO iri_safe(x) AS CASE WHEN regexp_full_match(x, '[{_UNRESERVED}]*') THEN x ELSE
    array_to_string(list_transform(string_split(x, ''), lambda c:
    CASE WHEN regexp_full_match(c, '[{_UNRESERVED}]') THEN c ELSE url_encode(c) END), '') END""",
    r"""CREATE MACRO blank_safe(x) AS CASE WHEN regexp_full_match(x, '[A-Za-z0-9]*') THEN x ELSE
    array_to_string(list_transform(string_split(x, ''), lambda c:
    CASE WHEN regexp_full_match(c, '[A-Za-z0-9]') THEN c ELSE '_' || hex(c) || '_' END), '') END""",
    r"""CREATE MACRO escaped(x) AS replace(replace(replace(replace(x, '\', '\\'), '"', '\"'), chr(10), '\n'),
    chr(13), '\r')""",
    """CREATE MACRO scientific(sign, whole, part, e) AS sign || CASE WHEN ltrim(whole || part, '0') = ''
    THEN '0.0E0' ELSE ltrim(whole || part, '0')[1] || '.' ||
    coalesce(nullif(rtrim(ltrim(whole || part, '0')[2:], '0'), ''), '0') || 'E' ||
    CAST(length(ltrim(whole || part, '0')) - length(part) - 1 + e AS VARCHAR) END""",
    r"""CREATE MACRO canonical_double(x) AS CASE WHEN isnan(x) THEN 'NaN' WHEN isinf(x) THEN
    CASE WHEN x > 0 THEN 'INF' ELSE '-INF' END ELSE scientific(
    regexp_extract(CAST(x AS VARCHAR), '^-?'), regexp_extract(CAST(x AS VARCHAR), '^-?(\d+)', 1),
    regexp_extract(CAST(x AS VARCHAR), '\.(\d+)', 1),
    CAST(coalesce(nullif(regexp_extract(CAST(x AS VARCHAR), 'e([-+]?\d+)', 1), ''), '0') AS INTEGER)) END""",
    r"""CREATE MACRO whole_iri(x, base, what) AS CASE WHEN x IS NULL THEN NULL
    WHEN regexp_matches(x, '[\x00-\x20<>"{}|\\^`]') THEN
    error(what || ': ''' || x || ''' is no IRI: a template percent-encodes what a column cannot')
    WHEN regexp_matches(x, '^[A-Za-z][A-Za-z0-9+.\-]*:') THEN x ELSE base || x END""",
    r"""CREATE MACRO fitting(x, pattern, what, kind) AS CASE WHEN x IS NULL OR regexp_full_match(x, pattern)
    THEN x ELSE error(what || ': ''' || x || ''' is no ' || kind) END""",
)

_NATURAL = {  # XSD types of SQL types; what is not here is text
    **dict.fromkeys(
        (
            "TINYINT",
            "SMALLINT",
            "INTEGER",
            "BIGINT",
            "HUGEINT",
            "UTINYINT",
            "USMALLINT",
            "UINTEGER",
            "UBIGINT",
        ),
        "integer",
    ),
    "DECIMAL": "decimal",
    "FLOAT": "double",
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "dateTime",
    "TIMESTAMP WITH TIME ZONE": "dateTime",
    "BLOB": "hexBinary",
}
_TEXTS = ("VARCHAR", "UUID", "ENUM", "JSON")
_FORMS: dict[str, Callable[[str], str]] = {
    "double": lambda x: f"canonical_double({x})",
    "dateTime": lambda x: rf"regexp_replace(replace(CAST({x} AS VARCHAR), ' ', 'T'), '([+-]\d\d)$', '\1:00')",
    "hexBinary": lambda x: f"hex({x})",
    "decimal": lambda x: rf"rtrim(regexp_replace(CAST({x} AS VARCHAR), '(\.\d*?)0*$', '\1'), '.')",
}
_LEXICAL = {
    "integer": r"[+-]?[0-9]+",
    "decimal": r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)",
    "double": r"([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([Ee][+-]?[0-9]+)?|-?INF|NaN)",
    "boolean": r"true|false|0|1",
    "date": r"-?\d{4,}-\d\d-\d\d(Z|[+-]\d\d:\d\d)?",
    "dateTime": r"-?\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?",
}


@dataclass(frozen=True)
class Columns:
    """The columns of a logical table under an alias, with their types as DuckDB names them."""

    alias: str
    types: Mapping[str, str]  # lower-cased name -> type
    origin: str  # what messages call the table
    base: str = ""  # of relative IRIs in columns
    escapes: bool = True  # whether templates percent-encode

    def natural(self, name: str) -> tuple[str, str]:
        """A column's text in its natural form, and its XSD type, or ''."""
        declared = self.types[name.lower()].partition("(")[0]
        kind = _NATURAL.get(declared, "")
        if not kind and declared not in _TEXTS:
            raise DataError(
                f"{self.origin}: column '{name}' is {declared}, which has no form in RDF; cast it in a query"
            )
        column = f"{self.alias}.{identifier(name)}"
        form = _FORMS.get(kind)
        return form(column) if form else f"CAST({column} AS VARCHAR)", kind

    def term(self, term: TermMap) -> str:
        """SQL for a term."""
        if term.constant is not None:
            return text(_written(term.constant))
        if term.template is not None:
            return self._template(term)
        assert term.column is not None
        value, kind = self.natural(term.column)
        if term.kind is Kind.LITERAL:
            return self._literal(value, term, kind, term.column)
        if term.kind is Kind.BLANK:
            return f"('_:' || blank_safe({value}))"
        return f"whole_iri({value}, {text(self.base)}, {text(f'{self.origin}, column {term.column}')})"

    def _template(self, term: TermMap) -> str:
        assert term.template is not None
        safe = {Kind.IRI: "iri_safe" if self.escapes else "", Kind.BLANK: "blank_safe", Kind.LITERAL: ""}
        pieces = [text(term.template.texts[0])] if term.template.texts[0] else []
        for column, after in zip(term.template.columns, term.template.texts[1:], strict=True):
            pieces.append(f"{safe[term.kind]}({self.natural(column)[0]})")
            pieces += [text(after)] if after else []
        whole = " || ".join(pieces) or "''"
        if term.kind is Kind.LITERAL:
            return self._literal(f"({whole})", term, "", "its template")
        if term.kind is Kind.BLANK:
            return f"('_:' || {whole})"
        first = term.template.texts[0]
        is_absolute = ":" in first or not first  # a template that begins with a column may hold a whole IRI
        return f"({whole})" if is_absolute else f"({text(self.base)} || {whole})"

    def _literal(self, value: str, term: TermMap, natural: str, column: str) -> str:
        if term.language is not None:
            return f"""('"' || escaped({value}) || '"@{term.language.lower()}')"""
        datatype = term.datatype or (XSD + natural if natural else XSD + "string")
        kind = datatype.removeprefix(XSD)
        if term.datatype is not None and kind in _LEXICAL and kind != natural:
            what = text(f"{self.origin}, column {column}")
            value = f"fitting({value}, '{_LEXICAL[kind]}', {what}, {text('xsd:' + kind)})"
        suffix = "" if datatype == XSD + "string" else f"^^<{datatype}>"
        return f"""('"' || escaped({value}) || {text('"' + suffix)})"""


def identifier(name: str) -> str:
    """A name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as SQL quotes it."""
    return "'" + value.replace("'", "''") + "'"


def _written(term: object) -> str:
    if isinstance(term, pyoxigraph.NamedNode):
        return term.value
    return str(term)
