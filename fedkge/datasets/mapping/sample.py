"""Drawing a part of the records: some patients at random, or the admissions of a month."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fedkge.datasets.mapping.document import Document, Node
from fedkge.datasets.mapping.term_map import text_of
from fedkge.datasets.mapping.vocabulary import FEDKGE
from fedkge.errors import DataError, SettingError

__all__ = ["Draw", "Sampling"]


@dataclass(frozen=True)
class Sampling:
    """How a mapping's records can be drawn from.

    Rows of `table` are drawn by the value of `drawn`; other tables keep the rows that have the `key` of a
    drawn row, or where they lack that column, its `also_by`.
    """

    table: str
    key: str
    drawn: str
    day: str | None = None  # a column of dates, for the records of a month
    also_by: str | None = None

    @classmethod
    def read(cls, document: Document) -> Sampling | None:
        """What a document says under `fedkge:sample`."""
        nodes = [value for _, name, value in document.statements if name == FEDKGE + "sample"]
        if not nodes:
            return None
        table, key = (_word(document, nodes[0], word) for word in ("table", "key"))
        if table is None or key is None:
            raise DataError(
                f"{document.line_with('sample')}: fedkge:sample names a fedkge:table and a fedkge:key"
            )
        drawn, day, also_by = (_word(document, nodes[0], word) for word in ("drawn", "day", "alsoBy"))
        return cls(table, key, drawn or key, day, also_by)


@dataclass(frozen=True)
class Draw:
    """A share of the records, or a month of them: what the user asks for."""

    share: float | None = None
    month: str | None = None
    seed: int = 0

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Draw:
        """Read '0.006', or '2150-01'."""
        if re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", text):
            return cls(month=text, seed=seed)
        try:
            share = float(text)
        except ValueError:
            share = math.nan
        if not 0 < share <= 1:
            raise SettingError(
                f"sample '{text}': expected a share of the patients such as 0.006, or a month such as 2150-01"
            )
        return cls(share=share, seed=seed)

    def query(self, sampling: Sampling, relation: str) -> str:
        """SQL for the keys of the rows that are drawn."""
        key, drawn = _quoted(sampling.key), _quoted(sampling.drawn)
        chosen = f'CAST({key} AS VARCHAR) AS "key"' + (
            f', CAST({_quoted(sampling.also_by)} AS VARCHAR) AS "also"' if sampling.also_by else ""
        )
        if self.month is not None:
            if sampling.day is None:
                raise SettingError(
                    f"sample '{self.month}': this mapping names no column of dates to find a month by; "
                    "give a share, such as 0.006"
                )
            day = _quoted(sampling.day)
            return f"SELECT {chosen} FROM {relation} WHERE CAST({day} AS VARCHAR) LIKE '{self.month}-%'"
        order = f"md5('{self.seed}:' || CAST({drawn} AS VARCHAR)), {drawn}"
        distinct = f"(SELECT DISTINCT {drawn} FROM {relation} WHERE {drawn} IS NOT NULL)"
        number = f"CAST(ceil({self.share!r} * (SELECT count(*) FROM {distinct})) AS BIGINT)"
        inside = f"SELECT {drawn} FROM {distinct} ORDER BY {order} LIMIT ({number})"
        return f"SELECT {chosen} FROM {relation} WHERE {drawn} IN ({inside})"


def _word(document: Document, node: Node, word: str) -> str | None:
    values = document.values(node, FEDKGE + word)
    return text_of(values[0]) if values else None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
