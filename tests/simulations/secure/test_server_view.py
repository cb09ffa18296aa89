"""What the server gets to see: sums, and nothing of any one client."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.participant import Participant
from fedkge.client.secure import SecureParticipant
from fedkge.datasets import load_graph
from fedkge.exchange import Download, decode
from fedkge.metrics import TRAINING
from fedkge.simulations.runs import run as runs
from tests.simulations.secure.settings import Carried, Make


def in_every_encoding(secret: bytes) -> set[bytes]:
    found = {secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret)}
    return found | {base64.urlsafe_b64encode(secret), base64.b32encode(secret), secret[::-1]}


def traces_of_label(label: str) -> Iterator[bytes]:
    """The label, and every hash of it that anybody could compute."""
    for text in (label.encode(), label.encode("utf-16-le"), label.encode("utf-32-le")):
        yield from in_every_encoding(text)
    for kind in ("sha256", "sha1", "md5", "sha512", "blake2b", "blake2s", "sha3_256"):
        digest = hashlib.new(kind, label.encode()).digest()
        yield from in_every_encoding(digest)
        yield from in_every_encoding(digest[:12])


def traces_of_row(row: np.ndarray) -> Iterator[bytes]:
    for kind in ("<f4", ">f4", "<f8", "<f2"):
        yield from in_every_encoding(row.astype(kind).tobytes())


def traces(wire: bytes, labels: set[str], rows: list[np.ndarray], words: list[bytes]) -> set[str]:
    """What of a client's secrets is in these bytes."""
    found = {f"label {label}" for label in labels if any(trace in wire for trace in traces_of_label(label))}
    found |= {f"row {i}" for i, row in enumerate(rows) if any(trace in wire for trace in traces_of_row(row))}
    return found | {f"words {i}" for i, own in enumerate(words) if own in wire}


@pytest.mark.parametrize(("strategy", "union"), [("FedR", "private"), ("FedE", "private"), ("FedR", "oprf")])
def test_no_label_hash_or_row_of_any_client_reaches_the_server(
    strategy: str,
    union: str,
    secret: Make,
    tiny: Make,
    tmp_path: Path,
    carried: Carried,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = {"FedR": "relation", "FedE": "entity"}[strategy]
    rows: list[np.ndarray] = []
    steps: list[np.ndarray] = []
    words: list[bytes] = []
    trained, write = Participant._train, SecureParticipant._write_delta

    def training(self: Participant, round: int) -> None:
        trained(self, round)
        rows.extend(self.model.tables[name].copy())
        steps.extend(step for step in self.step(name).astype(np.float32) if step.any())

    def encoding(self: SecureParticipant, vector: Any) -> None:
        write(self, vector)
        words.extend(block.tobytes() for block in vector[: -TRAINING.num_words].reshape(-1, 8) if block.any())
        words.append(vector[-TRAINING.num_words :].tobytes())  # the scalars

    monkeypatch.setattr(Participant, "_train", training)
    monkeypatch.setattr(SecureParticipant, "_write_delta", encoding)
    settings = (f"federation.strategy={strategy}", "federation.rounds=2")
    runs.run(secret(*settings, f"privacy.union={union}", "privacy.query_budget=64"), tmp_path / "secret")
    graphs = [load_graph(tmp_path / "secret" / "data" / f"client-{number}") for number in range(3)]
    labels = {label for graph in graphs for label in (*graph.relation_labels, *graph.entity_labels)}
    labels = {label for label in labels if len(label) > 5} - {"entity"}  # shorter ones turn up in noise
    received = b"".join(payload or b"" for _, payload in carried)
    assert len(rows) > 100
    assert len(words) > 100
    assert len(steps) > 100
    assert traces(received, labels, [*rows, *steps], words) == set()

    carried.clear()
    steps.clear()
    runs.run(tiny(*settings), tmp_path / "plain")
    received = b"".join(payload or b"" for _, payload in carried)
    held = {label for graph in graphs for label in getattr(graph, f"{name}_labels")} & labels
    found = traces(received, labels, steps, [])
    assert {f"label {label}" for label in held} <= found
    assert sum(trace.startswith("row") for trace in found) == len(steps)
    for kind in ("sha256", "md5", "blake2b"):  # the search knows a hash when it sees one
        planted = hashlib.new(kind, b"isolated_label").digest()
        for wire in (planted, planted.hex().encode(), base64.b64encode(planted)):
            assert traces(b"...." + wire + b"....", {"isolated_label"}, [], []) == {"label isolated_label"}


def test_every_byte_is_counted_and_the_table_is_sent_once(secret: Make, out: Path, carried: Carried) -> None:
    result = runs.run(secret("federation.strategy=FedE"), out)
    cost = result.summary["communication"]
    assert cost["bytes_down"] == sum(len(letter) for letter, _ in carried)
    assert cost["bytes_up"] == sum(len(payload or b"") for _, payload in carried)
    phases = {phase.split()[0] for phase in cost["by_phase"]}
    assert phases == {"setup", "union", "train", "unmask", "evaluate", "test"}
    kinds = [letter.kind for letter, _ in carried]
    assert kinds.count("query.unmask") == 3 * (1 + 4 + 2 + 1)  # holders, rounds, evaluations, test
    assert kinds.count("query.advertise") == 3 * 2  # all other sums were prepared on the way
    told = [letter for letter, _ in carried if letter.kind == "train" and letter.group == "2"]
    assert len(told) == 3
    assert all(letter.payload is told[0].payload for letter in told)
    shared = decode(told[0].payload, Download).tables["entity"]
    assert len(shared) == 135 - result.summary["privacy"]["rows_not_shared"]["entity"]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("plain", ["all 46 labels", "which client holds which label"]),
        ("hashed", ["46 pseudonyms", "which client holds which pseudonym"]),
        ("private", ["46 pseudonyms", "who holds what: nothing"]),
        ("oprf", ["46 pseudonyms", "no client can compute alone", "who holds what: nothing"]),
    ],
)
def test_the_summary_says_what_the_server_learned(
    mode: str, words: list[str], secret: Make, out: Path
) -> None:
    result = runs.run(secret(f"privacy.union={mode}", "privacy.query_budget=64", "federation.rounds=1"), out)
    privacy = result.summary["privacy"]
    text = "; ".join(privacy["what_the_server_learned"])
    assert all(each in text for each in [*words, "per-client rows: none"])
    assert (privacy["union"], privacy["secure_aggregation"]) == (mode, True)
    assert json.loads((out / "summary.json").read_text()) == result.summary
    told = result.metrics[~result.metrics["split"].str.contains("filter=")]  # others are the simulation's own
    assert set(told["client"]) == {"all"}
    assert not (out / "clients").exists()  # no key stays behind
