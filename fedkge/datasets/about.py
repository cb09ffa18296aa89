"""What a written split says of itself, so that a later change to its files is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedkge.datasets.formats.container import Member, read_text
from fedkge.datasets.split import Split
from fedkge.errors import DataError

__all__ = ["confirm", "write_about"]


def write_about(path: Path, split: Split) -> None:
    """A JSON file with the origin of a split, its size and its content hash."""
    about = {
        "name": split.name,
        "partition": split.partition,
        "seed": split.seed,
        "clients": split.num_clients,
        "triples": sum(graph.num_triples for graph in split.clients),
        "unassigned": split.unassigned,
        "held_out_unseen": split.unseen,
        "content_hash": split.content_hash,
    }
    path.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def confirm(split: Split, member: Member) -> Split:
    """The split with its recorded origin; refused when its files are no longer those that were recorded."""
    about = _read(member)
    for key, actual in (("clients", split.num_clients), ("content_hash", split.content_hash)):
        if about[key] != actual:
            raise DataError(
                f"{member.origin}: records {key.replace('_', ' ')} {about[key]}, but the files "
                f"have {actual}: they were changed or lost since; write the split again, or remove this file "
                "if that is meant"
            )
    return replace(split, partition=about["partition"], seed=about["seed"], unassigned=about["unassigned"])


def _read(member: Member) -> dict[str, Any]:
    kinds: dict[str, type | tuple[type, ...]] = {
        "partition": str,
        "seed": (int, type(None)),
        "unassigned": int,
        "clients": int,
        "content_hash": str,
    }
    try:
        about = json.loads(read_text(member))
    except ValueError as error:
        raise DataError(f"{member.origin}: not valid JSON ({error}); write the split again") from error
    for key, kind in kinds.items():
        if not isinstance(about, dict) or key not in about or not isinstance(about[key], kind):
            raise DataError(
                f"{member.origin}: no valid '{key}' in it; write the split again, or remove this file"
            )
    return dict(about)
