"""String templates such as `http://hospital.example/Patient-{id}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedkge.datasets.mapping.document import Place
from fedkge.errors import DataError

__all__ = ["Template", "column_name"]

_PIECE = re.compile(r"\\([\\{}])|\{((?:\\[\\{}]|[^{}\\])+)\}|([^\\{}])")


@dataclass(frozen=True)
class Template:
    """Texts with a column's name after each but the last: n + 1 texts, n columns."""

    texts: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def parse(cls, source: str, place: Place) -> Template:
        """Read a template; a backslash keeps a brace, or itself, as it is."""
        texts, columns, position = [""], [], 0
        while position < len(source):
            piece = _PIECE.match(source, position)
            if piece is None:
                raise DataError(
                    f"{place.of(source)}: template '{source}': no column can be read from "
                    f"'{source[position:]}'; write {{column}}, and \\{{ or \\}} for a brace that is meant"
                )
            escaped, column, plain = piece.groups()
            if column is None:
                texts[-1] += escaped or plain
            else:
                columns.append(column_name(re.sub(r"\\([\\{}])", r"\1", column)))
                texts.append("")
            position = piece.end()
        return cls(tuple(texts), tuple(columns))


def column_name(identifier: str) -> str:
    """A column's name as SQL writes it: quotes belong to the identifier, not to the name."""
    if len(identifier) > 1 and identifier[0] == identifier[-1] == '"':
        return identifier[1:-1].replace('""', '"')
    return identifier
