"""Files of texts and vectors: `label⇥text`, Wikidata's descriptions in JSON, `.npz` with labels and rows."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.datasets.download import obtain
from fedkge.datasets.features.known_texts import KNOWN_TEXTS
from fedkge.datasets.formats.container import Member, members, read_text
from fedkge.datasets.formats.npz import read_npz
from fedkge.datasets.formats.text import ESCAPED, unescaped
from fedkge.datasets.graph import LONGEST_TEXT
from fedkge.datasets.labels import respelt
from fedkge.errors import DataError

__all__ = ["FeatureFile", "feature_files", "find", "is_feature_file", "read_features"]

_KINDS = ("entity", "relation")
# Beside a graph, by the start of their names; of two texts of a label, the earlier file's counts.
_BESIDE = ("2textlong", "2text", "2wikidata", "-texts", "-features")


@dataclass(frozen=True)
class FeatureFile:
    """The texts or the vectors of one file, by label."""

    kind: str  # "entity" or "relation"
    origin: str
    texts: Mapping[str, str]
    vectors: Mapping[str, NDArray[np.float32]]

    @property
    def labels(self) -> set[str]:
        return {*self.texts, *self.vectors}


def is_feature_file(member: Member) -> bool:
    """Whether a file beside triples holds features, by its name: entity2text.txt, relation-texts.tsv."""
    return any(member.stem == kind + name for kind in _KINDS for name in (*_BESIDE, "-classes"))


def feature_files(contents: Sequence[Member]) -> list[FeatureFile]:
    """The features among the files of a graph, those of long texts first."""
    beside = [
        (place, kind, member)
        for member in contents
        for kind in _KINDS
        for place, name in enumerate(_BESIDE)
        if member.stem == kind + name
    ]
    return [read_features(member, kind) for _, kind, member in sorted(beside, key=lambda each: each[:2])]


def find(given: str) -> FeatureFile:
    """A file as the user names it, `PATH` or `relation:PATH`, also below the folder FEDKGE_DATA.

    A published one that is known by this path is downloaded if it is not there.
    """
    kind, colon, path = given.partition(":")
    if not colon or kind not in _KINDS:
        kind, path = "entity", given
    folder = os.environ.get("FEDKGE_DATA")
    places = [Path(path), *([Path(folder) / path, Path(folder) / f"{path}.gz"] if folder else [])]
    for place in places:
        if place.is_file():
            return read_features(members(place)[0], kind)
    if path in KNOWN_TEXTS:
        return read_features(obtain(KNOWN_TEXTS[path])[0], kind)
    raise DataError(
        f"data.features: no file {' or '.join(map(str, places[:2]))}; give a path, or one below FEDKGE_DATA, "
        "with 'relation:' before it if its labels are relations. Downloaded are "
        f"{', '.join(KNOWN_TEXTS)}"
    )


def read_features(member: Member, kind: str) -> FeatureFile:
    """The features of a file, by its ending."""
    if member.suffix == ".npz":
        return FeatureFile(kind, member.origin, {}, _vectors(member))
    pairs = _from_json(member) if member.suffix == ".json" else _from_lines(member)
    texts: dict[str, str] = {}
    for place, label, text in pairs:
        if len(text) > LONGEST_TEXT:
            raise DataError(
                f"{member.origin}, {place}: the text of '{label}' has {len(text):,} characters, and a "
                f"description at most {LONGEST_TEXT:,}; shorten it, or give the file with one text for "
                "each label"
            )
        if texts.setdefault(label, text) != text:
            raise DataError(f"{member.origin}, {place}: '{label}' has another text above; keep one")
    return FeatureFile(kind, member.origin, {label: text for label, text in texts.items() if text}, {})


def _from_lines(member: Member) -> Iterator[tuple[str, str, str]]:
    """Where it stands, label, text; names such as Gary_Rydstrom are words."""
    content = read_text(member)
    if "\0" in content:
        raise DataError(f"{member.origin}: has zero bytes; is it binary, or UTF-16? convert it to UTF-8")
    lines = content.replace("\r\n", "\n").split("\n")
    escaped = lines[0] == ESCAPED
    for number, line in enumerate(lines, start=1):
        if not line or (escaped and number == 1):
            continue
        label, tab, text = line.partition("\t")
        if not tab:
            raise DataError(
                f"{member.origin}, line {number}: expected a label, a tab and a text; found no tab"
            )
        if escaped:
            label, text = unescaped(label), unescaped(text)
        text = text.strip()
        yield f"line {number}", respelt(label), text if " " in text else text.replace("_", " ").strip()


def _from_json(member: Member) -> Iterator[tuple[str, str, str]]:
    """An object by label, of texts or of objects with a `label` and a `description`."""
    try:
        entries: Any = json.loads(read_text(member), object_pairs_hook=_once)
    except _RepeatedError as error:
        raise DataError(f"{member.origin}: '{error}' stands there twice, differently; keep one") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{member.origin}: not JSON ({error}); is it cut?") from error
    except ValueError as error:  # Python reads no number of thousands of digits
        raise DataError(f"{member.origin}: a number of too many digits; give texts, in quotes") from error
    if not isinstance(entries, dict):
        raise DataError(f"{member.origin}: expected an object that has a text for each label")
    for label, entry in entries.items():
        parts: list[Any] = [entry] if isinstance(entry, str) else []
        if isinstance(entry, dict):
            parts = [entry.get("label"), entry.get("description")]
        elif not parts:
            raise DataError(
                f"{member.origin}, '{label}': expected a text, or an object with 'label' and 'description'"
            )
        yield (
            f"'{label}'",
            respelt(label),
            ", ".join(part for part in parts if isinstance(part, str) and part),
        )


class _RepeatedError(ValueError):
    """A key of a JSON object that has two values."""


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if entries.setdefault(key, value) != value:
            raise _RepeatedError(key)
    return entries


def _vectors(member: Member) -> dict[str, NDArray[np.float32]]:
    """Arrays `labels` (n,) and `rows` (n, w)."""
    what = "an .npz with arrays 'labels' (n,) and 'rows' (n, width)"
    labels, rows = read_npz(member.read(), member.origin, ("labels", "rows"), what)
    if labels.ndim != 1 or labels.dtype.kind != "U" or rows.ndim != 2 or len(rows) != len(labels):
        raise DataError(
            f"{member.origin}: 'labels' are {labels.dtype} of shape {labels.shape}, 'rows' of shape "
            f"{rows.shape}; expected texts (n,) and numbers (n, width)"
        )
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite then
        vectors = rows.astype(np.float32) if rows.dtype.kind in "fiu" else None
    if vectors is None or not np.isfinite(vectors).all():
        raise DataError(f"{member.origin}: 'rows' hold something other than finite numbers; remove it")
    names = [respelt(label) for label in labels.tolist()]
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise DataError(f"{member.origin}: '{repeated}' has more than one row; keep one")
    return dict(zip(names, vectors, strict=True))
