"""Which column of a table holds what: an order of letters, names, positions, or words of the header."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fedkge.errors import SettingError

__all__ = ["SKIPPED", "TRIPLE", "Columns"]

TRIPLE = ("head", "relation", "tail")
SKIPPED = "_"
_INITIALS = {name[0]: name for name in TRIPLE}
_NAMES = (*TRIPLE, "confidential")


@dataclass(frozen=True)
class Columns:
    """The position of each named column, counted from 0; `width` is None where others may follow."""

    places: dict[str, int]
    width: int | None
    words: dict[str, str] = field(default_factory=dict)  # how the header calls each, in place of places

    @classmethod
    def parse(cls, text: str) -> Columns:
        """Read 'htr', 'hrt__', 'head,relation,tail,_,_' or '0,1,2' (head, relation and tail stand there)."""
        words = [word.strip().lower() for word in (text.split(",") if "," in text else text)]
        if "," in text and all(word.isdecimal() for word in words):
            return cls._at(text, [int(word) for word in words])
        if "," in text and not set(TRIPLE) <= set(words):
            return cls._called(text)
        names = words if "," in text else [_INITIALS.get(letter, letter) for letter in words]
        counts = Counter(name for name in names if name != SKIPPED)
        if not set(TRIPLE) <= set(counts) <= set(_NAMES) or max(counts.values()) > 1:
            raise _unclear(text)
        return cls({name: names.index(name) for name in counts}, len(names))

    @classmethod
    def _at(cls, text: str, positions: list[int]) -> Columns:
        if len(positions) != len(TRIPLE) or len(set(positions)) != len(TRIPLE):
            raise _unclear(text)
        return cls(dict(zip(TRIPLE, positions, strict=True)), None)

    @classmethod
    def _called(cls, text: str) -> Columns:
        """Head, relation and tail by words of the file's header."""
        words = [word.strip() for word in text.split(",")]
        if len(words) != len(TRIPLE) or not all(words) or len(set(words)) < len(words) or SKIPPED in words:
            raise _unclear(text)
        return cls({}, None, dict(zip(TRIPLE, words, strict=True)))

    def fits(self, width: int) -> bool:
        """Whether rows of so many columns can be read this way."""
        return max(self.places.values()) < width if self.width is None else width == self.width

    @property
    def wanted(self) -> str:
        """How many columns a row must have, in words."""
        return (
            f"{max(self.places.values()) + 1} columns or more"
            if self.width is None
            else f"{self.width} columns"
        )


def _unclear(text: str) -> SettingError:
    return SettingError(
        f"columns '{text}': expected an order such as 'htr', all columns by name, with _ for what is left "
        "out ('head,relation,tail,_,_'), the positions of head, relation and tail from 0 ('0,1,2'), or what "
        "the header calls these three ('x_name,relation,y_name')"
    )
