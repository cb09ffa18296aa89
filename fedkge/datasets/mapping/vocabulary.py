"""The words of a mapping: those of R2RML (W3C, 2012), and a few annotations of ours."""

from __future__ import annotations

__all__ = [
    "FEDKGE",
    "OF_FEDKGE",
    "OF_R2RML",
    "RDF_TYPE",
    "RR",
    "XSD",
]

RR = "http://www.w3.org/ns/r2rml#"
FEDKGE = "urn:fedkge:mapping:"
XSD = "http://www.w3.org/2001/XMLSchema#"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"

OF_R2RML = frozenset(
    {
        "child",
        "class",
        "column",
        "constant",
        "datatype",
        "graph",
        "graphMap",
        "inverseExpression",
        "joinCondition",
        "language",
        "logicalTable",
        "object",
        "objectMap",
        "parent",
        "parentTriplesMap",
        "predicate",
        "predicateMap",
        "predicateObjectMap",
        "sqlQuery",
        "sqlVersion",
        "subject",
        "subjectMap",
        "tableName",
        "template",
        "termType",
    }
)
OF_FEDKGE = frozenset(
    {
        "confidential",  # of a predicate: its statements arrive marked
        "wholeNumber",  # of a logical table: columns that hold nothing else
        "absentTables",  # of the document: true if a source may lack some of its tables
        "unescaped",  # of the document: true if templates make IRIs as they are, as some published ones do
        "defect",  # of the document: a sentence about what is wrong with it
        "sample",  # of the document: how a part of the records is drawn
        "table",
        "key",
        "drawn",
        "day",
        "alsoBy",
    }
)
