"""What a request must have before a participant reads it: the keys of its verb, each of its kind and size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedkge.errors import MessageError
from fedkge.exchange import Download

__all__ = ["check_request"]

_MOST = 2**31  # of rounds, and of all numbers that name one
_MOST_ATTEMPTS = 2**32

# verb -> keys that its metadata, and its protocol messages, must have
_REQUIRED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "join": (("strategy", "shared", "verbs"), ()),
    "advertise": (("next",), ()),
    "share": (("next",), ("keys",)),
    "train": (("keep", "settled"), ()),
    "consent": (("sum",), ("survivors",)),
    "unmask": (("sum",), ("survivors",)),
    "test": (("best",), ()),
}


def check_request(download: Download, verb: str) -> None:
    """Refuse a request that lacks something, or has something of another kind."""
    metadata, protocol = _REQUIRED.get(verb, ((), ()))
    if not _is_round(download.round) or not isinstance(download.metadata, dict):
        raise MessageError(f"'{verb}' of round {download.round!r:.40}: no round and metadata")
    if "keys" in download.protocol:
        metadata = (*metadata, "next")
    missing = [key for key in metadata if download.metadata.get(key) is None]
    missing += [key for key in protocol if key not in download.protocol]
    if "sum" in download.metadata and verb in ("count", "train", "evaluate", "test"):
        missing += [key for key in ("delivery",) if key not in download.protocol]
    if missing:
        raise MessageError(f"'{verb}' lacks '{missing[0]}'; do both sides run the same version?")
    for key, value in download.metadata.items():
        if key in _KINDS and not _KINDS[key](value):
            raise MessageError(f"'{verb}' has {key} = {value!r:.40}, which it cannot be")


def _is_round(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_sum(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("purpose"), str)
        and "round" in value
        and (value["round"] is None or _is_round(value["round"]))
        and type(value.get("attempt")) is int
        and 0 <= value["attempt"] < _MOST_ATTEMPTS
    )


def _is_rounds(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_round, value))


_KINDS: dict[str, Callable[[Any], bool]] = {
    "sum": _is_sum,
    "next": lambda value: value is None or _is_sum(value),
    "keep": _is_rounds,
    "settled": _is_round,
    "best": _is_round,
}
