"""Open sums: each client's step arrives by name, and the server adds them up in float64, sorted by client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.crypto.union.listing import NameListing
from fedkge.errors import DropoutError, FederationError, MessageError
from fedkge.exchange import Download, Table, Upload
from fedkge.experiment import Experiment
from fedkge.metrics import MetricSums
from fedkge.server.messenger import Messenger
from fedkge.server.privacy import Privacy
from fedkge.server.sums.sums import (
    Final,
    Scores,
    Shape,
    Steps,
    Sums,
    Tables,
    Then,
    Training,
    check_number,
    check_scores,
    hello_of,
    shapes_of,
)
from fedkge.strategy import Strategy

__all__ = ["OpenSums", "mean_step"]


class OpenSums(Sums):
    """Knows every label and who holds it; a client that drops out is left out of the mean."""

    def __init__(self, experiment: Experiment, strategy: Strategy, messenger: Messenger) -> None:
        self.settings = experiment.federation
        self.strategy = strategy
        self.messenger = messenger
        self.shapes: Mapping[str, Shape] = {}
        self.listings: dict[str, NameListing] = {}
        self.rows: dict[str, dict[int, NDArray[np.int64]]] = {}  # parameter -> client -> its shared rows
        self.weights: dict[str, dict[int, NDArray[np.float64]]] = {}  # of those rows, in a mean
        self.delivered: dict[int, int] = {}  # client -> the round whose tables it has

    def join(self, num_clients: int, round: int, tables: Tables) -> Tables:
        hello = Download(round, metadata=hello_of(self.settings.strategy, self.strategy))
        uploads = self.messenger.meet(num_clients, hello)
        self.shapes = shapes_of(uploads)
        sizes = {name: self._unite(name, shape, uploads) for name, shape in self.shapes.items()}
        clients = self.messenger.clients
        assigned = {client: Download(round, self._rows_of(client)) for client in clients}
        if len(self.messenger.ask(assigned, "query.assign", "union", round)) < num_clients:
            raise FederationError(
                "a client vanished while rows were assigned; the reasons are in failures.csv"
            )
        if tables or round:
            return tables
        self.delivered = dict.fromkeys(clients, round)  # all start from the same rows
        return {
            name: Table(
                np.arange(sizes[name], dtype=np.int32), np.zeros((sizes[name], shape.width), dtype=np.float32)
            )
            for name, shape in self.shapes.items()
        }

    def steps(
        self, round: int, clients: Sequence[int], tables: Tables, metadata: Mapping[str, Any], then: Then
    ) -> Steps:
        del then  # nothing needs preparing
        self._check_present(round, clients)
        downloads = {
            client: Download(round, self._news(client, round - 1, tables), metadata) for client in clients
        }
        replies = self._usable(
            self.messenger.ask(downloads, "train", "train", round), "train", round, self._check_step
        )
        uploads = {name: {c: upload.tables[name] for c, upload in replies.items()} for name in tables}
        means = {
            name: mean_step(
                len(table), table.rows.shape[1], uploads[name], self.rows[name], self.weights[name]
            )
            for name, table in tables.items()
        }
        return Steps(means, _training([upload.metadata for upload in replies.values()], replies), uploads)

    def _check_present(self, round: int, clients: Sequence[int]) -> None:
        """Refuse a round that too few are drawn for; who is drawn is chance, and the same after a resume."""
        settings, known = self.messenger.settings, len(self.messenger.clients)
        if len(clients) < min(settings.min_clients, known):
            raise FederationError(
                f"round {round}: {len(clients)} of {known} clients take part, as federation.fraction = "
                f"{settings.fraction:g} and federation.dropout = {settings.dropout:g} drew them, but "
                f"federation.min_clients is {settings.min_clients}; change one of them, and run again"
            )

    def scores(self, round: int, tables: Tables, then: Then) -> Scores:
        del then
        downloads = {c: Download(round, self._news(c, round, tables)) for c in self.messenger.clients}
        replies = self._usable(
            self.messenger.ask(downloads, "evaluate", "evaluate", round), "evaluate", round, _check_valid
        )
        self.delivered.update(dict.fromkeys(replies, round))
        return _scores("valid", replies)

    def final(self, round: int, best: int) -> Final:
        messages = dict.fromkeys(self.messenger.clients, Download(round, metadata={"best": best}))
        replies = self._usable(
            self.messenger.ask(messages, "evaluate.test", "test", round), "test", round, _check_test
        )
        if len(replies) < len(messages):
            raise FederationError(
                f"{len(messages) - len(replies)} clients did not answer the final test (see failures.csv). "
                f"{self.messenger.records.remedy}"
            )
        digests = {client: str(upload.metadata["digest"]) for client, upload in sorted(replies.items())}
        test = _scores("test", replies)
        return Final(test, digests, test.said, _scores("valid", replies).by_client)

    def _usable(
        self, replies: Mapping[int, Upload], phase: str, round: int, check: Callable[[Upload], None]
    ) -> dict[int, Upload]:
        """The replies that say what they should; whoever sent another has dropped out."""
        usable = {}
        for client, upload in replies.items():
            try:
                check(upload)
                usable[client] = upload
            except MessageError as error:
                self.messenger.blame(client, error, phase, round)
        if not usable:
            raise DropoutError("no client sent anything that can be used")
        return usable

    def _check_step(self, upload: Upload) -> None:
        for name, shape in self.shapes.items():
            table, held = upload.tables[name], self.rows[name][upload.client]
            if table.rows.shape[1] != shape.width or not np.isin(table.ids, held).all():
                raise MessageError(f"a step of '{name}' rows that it does not hold, or of another width")
        metadata = upload.metadata
        if metadata["loss"] is not None:
            check_number(metadata, "loss", least=-np.inf)
        for key in ("seconds", "triples", "rss_mb"):
            check_number(metadata, key)

    def privacy(self, clip_rate: float) -> Privacy:
        del clip_rate  # nothing is clipped
        return Privacy.without_protection(self.shapes)

    def _unite(self, name: str, shape: Shape, uploads: Mapping[int, Upload]) -> int:
        """Give every label its row, sorted, so that the order of arrival does not matter; return how many."""
        if shape.kind == "weights":
            num_rows = shape.rows
            self.rows[name] = {client: np.arange(num_rows) for client in uploads}
        else:
            held = {client: _labels(upload, name) for client, upload in uploads.items()}
            listing = NameListing(()).append(label for labels in held.values() for label in labels)
            num_rows = listing.num_rows
            self.listings[name] = listing
            self.rows[name] = {client: listing.rows(labels) for client, labels in held.items()}
        self.weights[name] = {
            client: _weights(uploads[client], name, rows) for client, rows in self.rows[name].items()
        }
        return num_rows

    def _rows_of(self, client: int) -> Tables:
        blank = {name: rows[client] for name, rows in self.rows.items()}
        return {
            name: Table(ids.astype(np.int32), np.empty((len(ids), 0), dtype=np.float32))
            for name, ids in blank.items()
        }

    def _news(self, client: int, round: int, tables: Tables) -> Tables:
        """The rows that a client holds, as they are after a round, unless it has them already."""
        if self.delivered.get(client) == round:
            return {}
        return {
            name: table.pick(np.sort(self.rows[name][client]).astype(np.int32))
            for name, table in tables.items()
        }


def mean_step(
    num_rows: int,
    width: int,
    uploads: Mapping[int, Table],
    rows: Mapping[int, NDArray[np.int64]],
    weights: Mapping[int, NDArray[np.float64]],
) -> NDArray[np.float64]:
    """(num_rows, width) the mean step of each row over the clients that took part and hold it.

    Rows that a client holds and did not send count as unmoved. Clients are added up in ascending order:
    float sums depend on it.

    Args:
        uploads: client -> its step, for some of its rows.
        rows: client -> (k,) the shared rows that it holds.
        weights: client -> (k,) what each of them counts.
    """
    total = np.zeros((num_rows, width))
    weight = np.zeros(num_rows)
    for client in sorted(uploads):
        upload, count = uploads[client], np.zeros(num_rows)
        count[rows[client]] = weights[client]
        if upload.rows.shape[1] != width or not count[upload.ids].all():
            raise MessageError(f"client {client} sent rows that it does not hold, or of another width")
        total[upload.ids] += upload.rows * count[upload.ids][:, None]
        weight += count
    return total / np.maximum(weight, 1.0)[:, None]


def _weights(upload: Upload, name: str, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    table = upload.tables.get(name)
    if table is None or table.weights is None or len(table) != len(rows):
        return np.ones(len(rows))
    return np.maximum(table.weights.astype(np.float64), 1.0)


def _labels(upload: Upload, name: str) -> list[str]:
    labels = upload.metadata["labels"]
    found = labels.get(name) if isinstance(labels, dict) else None
    if not isinstance(found, list) or not all(isinstance(label, str) for label in found):
        raise FederationError(f"client {upload.client} does not say which labels of '{name}' it holds")
    if len(set(found)) < len(found):
        raise FederationError(f"client {upload.client} names a label of '{name}' twice")
    return found


def _check_valid(upload: Upload) -> None:
    check_scores(upload.metadata, "valid")


def _check_test(upload: Upload) -> None:
    check_scores(upload.metadata, "valid")
    check_scores(upload.metadata, "test")
    if not isinstance(upload.metadata["digest"], str):
        raise MessageError("a digest that is no text")


def _training(said: Sequence[Mapping[str, Any]], clients: Mapping[int, Upload]) -> Training:
    losses: dict[int | str, float] = {
        client: upload.metadata["loss"]
        for client, upload in sorted(clients.items())
        if upload.metadata["loss"] is not None
    }
    return Training(
        losses,
        sum(float(each["seconds"]) for each in said),
        sum(each["triples"] for each in said),
        max((float(each["rss_mb"]) for each in said), default=0.0),
    )


def _scores(split: str, replies: Mapping[int, Upload]) -> Scores:
    said = {client: upload.metadata for client, upload in sorted(replies.items())}
    by_client = {client: MetricSums.from_json(told[split]) for client, told in said.items()}
    seconds = sum(float(told[f"{split}_seconds"]) for told in said.values())
    return Scores(MetricSums.total(by_client.values()), seconds, by_client, said)
