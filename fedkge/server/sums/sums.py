"""The contract of sums: what the loop asks of all clients together, whoever adds it up."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import FederationError, MessageError
from fedkge.exchange import Table, Upload
from fedkge.metrics import SCORES, MetricSums
from fedkge.server.messenger import Messenger
from fedkge.server.privacy import Privacy
from fedkge.strategy import Strategy

__all__ = [
    "Final",
    "Scores",
    "Shape",
    "Steps",
    "Sums",
    "Tables",
    "Then",
    "Training",
    "check_number",
    "check_scores",
    "hello_of",
    "shapes_of",
]

_FIXED = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
_LARGEST_NUMBER = 1e18  # squares of a million ranks of a hundred thousand entities stay below
_WIDEST = 2**20
_MOST_ROWS = 2**31

Then = Literal["train", "evaluate", "test"]  # what the loop will ask for next, so that it can be prepared
Metadata = Mapping[int, Mapping[str, Any]]  # client -> what it said in the open
Tables = Mapping[str, Table]


@dataclass(frozen=True)
class Training:
    """What clients say about a round of training, summed over them."""

    losses: Mapping[int | str, float]  # by client, or of "all"
    seconds: float
    triples: int
    rss_mb: float
    crypto: float = 0.0  # seconds of cryptography
    clipped: float = 0.0
    values: float = 0.0  # numbers that went through the clip


@dataclass(frozen=True, eq=False)
class Steps:
    """A round's outcome: how far each shared row moved, the mean over the clients that hold it."""

    means: Mapping[str, NDArray[np.float64]]  # parameter -> (n, w) in the order of its table
    training: Training
    uploads: Mapping[str, Mapping[int, Table]] = field(default_factory=dict)  # parameter -> client -> step


@dataclass(frozen=True)
class Scores:
    """What all clients' triples of a split score."""

    total: MetricSums
    seconds: float  # of ranking
    by_client: Mapping[int, MetricSums] = field(default_factory=dict)
    said: Metadata = field(default_factory=dict)


@dataclass(frozen=True)
class Final:
    """The test triples under the rows of the best round, and digests of the clients' parameters."""

    test: Scores
    digests: Mapping[int, str]
    said: Metadata
    valid: Mapping[int, MetricSums] = field(default_factory=dict)  # by client, where each shows its own


@dataclass(frozen=True)
class Shape:
    """A shared parameter as clients describe it."""

    kind: Literal["table", "weights"]
    width: int
    rows: int = 0  # of weights; the rows of a table are what the union finds


class Sums(ABC):
    """All that the loop learns of clients."""

    messenger: Messenger

    @abstractmethod
    def join(self, num_clients: int, round: int, tables: Tables) -> Tables:
        """Meet the clients and lay out the shared parameters; `tables` are those of a checkpoint, if any."""

    @abstractmethod
    def steps(
        self, round: int, clients: Sequence[int], tables: Tables, metadata: Mapping[str, Any], then: Then
    ) -> Steps:
        """Broadcast the tables, let clients train, and take the mean of their steps.

        A DropoutError means that nothing was summed, here and in `scores`.
        """

    @abstractmethod
    def scores(self, round: int, tables: Tables, then: Then) -> Scores:
        """Broadcast the tables and let all clients rank their validation triples."""

    @abstractmethod
    def final(self, round: int, best: int) -> Final:
        """Every client goes back to the best round and ranks; a FederationError if one does not answer."""

    @abstractmethod
    def privacy(self, clip_rate: float) -> Privacy:
        """What the server learned on the way."""

    @property
    def fewest(self) -> int:
        """With fewer clients no steps can be summed."""
        return 1

    @property
    def seconds(self) -> float:
        """Of cryptography, on the server."""
        return 0.0

    @property
    def holders(self) -> Mapping[str, NDArray[Any]]:
        """How many clients hold each shared row, where that is all the server knows."""
        return {}

    def outcome(self, tables: Tables) -> Tables:
        """The tables in an order that does not differ from run to run."""
        return tables

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What a checkpoint holds beside the tables."""
        return {}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `arrays` gave."""
        del arrays


def hello_of(name: str, strategy: Strategy) -> dict[str, Any]:
    """What a client must agree with before it joins."""
    return {"strategy": name, "shared": list(strategy.shared), "verbs": strategy.verbs()}


def shapes_of(uploads: Mapping[int, Upload]) -> dict[str, Shape]:
    """The shared parameters, by name, as all clients describe them alike."""
    told = {client: _parameters(upload) for client, upload in sorted(uploads.items())}
    first = next(iter(told))
    for client, parameters in told.items():
        if parameters != told[first]:
            raise FederationError(
                f"client {client} has {parameters} to share, and client {first} {told[first]}; do all use "
                "the same model and model.dim?"
            )
    return {name: Shape(*shape) for name, shape in sorted(told[first].items())}


def _parameters(upload: Upload) -> Mapping[str, list[Any]]:
    parameters = upload.metadata.get("parameters")
    if not isinstance(parameters, dict) or not all(map(_is_shape, parameters.values())):
        raise FederationError(f"client {upload.client} does not say what it has to share")
    return parameters


def _is_shape(shape: Any) -> bool:
    match shape:
        case ["table", int(width)]:
            return 0 <= width < _WIDEST
        case ["weights", int(width), int(rows)]:
            return 0 <= width < _WIDEST and 0 <= rows < _MOST_ROWS
    return False


def check_number(metadata: Mapping[str, Any], key: str, least: float = 0.0) -> None:
    """Raise unless this is a number that can be added to others, or seconds as text of a fixed length."""
    said = metadata[key]
    number: float | None = said if type(said) in (int, float) else None
    if isinstance(said, str) and _FIXED.fullmatch(said):
        number = float(said)
    if number is None or not least <= number <= _LARGEST_NUMBER:
        raise MessageError(f"{key} is {said!r:.40}, and no number that can be added up")


def check_scores(metadata: Mapping[str, Any], split: str) -> None:
    """Raise unless these are the sums of a split's scores."""
    check_number(metadata, f"{split}_seconds")
    scores = metadata[split]
    if not isinstance(scores, dict) or set(scores) != {"count", "unseen", "sums", "squares"}:
        raise MessageError(f"no scores of the split '{split}'")
    for key in ("count", "unseen"):
        if type(scores[key]) is not int:
            raise MessageError(f"{key} is {scores[key]!r:.40}, and no whole number")
        check_number(scores, key)
    for part in (scores["sums"], scores["squares"]):
        if not isinstance(part, dict) or set(part) != set(SCORES):
            raise MessageError(f"no scores of the split '{split}'")
        for name in part:
            check_number(part, name)
