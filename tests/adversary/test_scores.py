"""A server that subtracts two sums of scores, one of which lacks a client."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.client.secure import SecureParticipant
from fedkge.crypto import SecureAggregationServer
from fedkge.errors import DropoutError
from fedkge.exchange import Download
from fedkge.metrics import RANKING, MetricSums
from fedkge.server.sums import SecureSums
from fedkge.server.sums.sessions import Sessions, Sum, Total
from tests.adversary.deployment import Deployment, small
from tests.simulations.mishaps import failing, failures

VICTIM = 4
Seen = list[tuple[Sum, np.ndarray]]
Own = dict[str, MetricSums]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Every sum of scores that the server got to see."""
    sums: Seen = []
    give = Sessions.sum

    def recorded(self: Sessions, wanted: Sum, *arguments: Any) -> Total:
        total = give(self, wanted, *arguments)
        if wanted.purpose in ("valid", "test"):
            sums.append((wanted, total.words.copy()))
        return total

    monkeypatch.setattr(Sessions, "sum", recorded)
    return sums


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Own:
    """What the victim's triples scored last, by split."""
    scores: Own = {}
    measure = SecureParticipant.measure

    def measuring(self: SecureParticipant, split: str) -> dict[str, Any]:
        measured = measure(self, split)
        if self.client == VICTIM:
            scores[split] = MetricSums.from_json(measured[split])
        return measured

    monkeypatch.setattr(SecureParticipant, "measure", measuring)
    return scores


def scores_in(words: np.ndarray) -> list[MetricSums]:
    """All scores that a sum holds, one after the other."""
    blocks = len(words) // RANKING.num_words
    parts = words[: blocks * RANKING.num_words].reshape(blocks, -1)
    return [MetricSums.from_scalars(RANKING.decode(part)) for part in parts]


def differ_by(more: MetricSums, less: MetricSums, by: MetricSums) -> bool:
    """Whether subtracting two sums gives these scores."""
    found = more.sums["mrr"] - less.sums["mrr"]
    return more.count - less.count == by.count and found == pytest.approx(by.sums["mrr"], abs=1e-3)


def test_the_final_test_adds_up_no_validation_scores(
    tmp_path: Path, seen: Seen, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test's sum held the best round's validation scores of everybody, and the sum of that round those of
    everybody but the victim, which had missed it."""
    failing(monkeypatch, "evaluate", {VICTIM}, {1})
    deployment = Deployment(tmp_path, small("federation.rounds=1", "federation.evaluate_every=1"))
    summary = deployment.serve(tmp_path / "server", "trial")
    (validated, valid), (tested, test) = seen
    assert (validated.purpose, tested.purpose) == ("valid", "test")
    (others,) = scores_in(valid)
    exposed = [scores for scores in scores_in(test) if differ_by(scores, others, own["valid"])]
    assert exposed == []
    assert summary["utility"]["valid"]["count"] == others.count
    assert summary["utility"]["test"]["count"] == scores_in(test)[-1].count


def test_a_test_is_over_all_clients_or_none(
    tmp_path: Path, seen: Seen, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best round tested again under the next round's number, without the victim, by a server that
    does not mind how few vectors come."""
    final, require = SecureSums.final, SecureAggregationServer._require

    def lax(self: SecureAggregationServer, stage: Any, count: int, what: str) -> None:
        if what != "sent a masked vector":
            require(self, stage, count, what)

    def twice(self: SecureSums, round: int, best: int) -> Any:
        outcome = final(self, round, best)
        others = [client for client in self.messenger.clients if client != VICTIM]
        again = Download(round + 1, metadata={"best": best})
        with suppress(DropoutError):
            self.sessions.sum(Sum("test", round + 1), others, again, "evaluate.test", "test")
        return outcome

    monkeypatch.setattr(SecureAggregationServer, "_require", lax)
    monkeypatch.setattr(SecureSums, "final", twice)
    deployment = Deployment(tmp_path, small("federation.rounds=1", "federation.evaluate_every=1"))
    deployment.serve(tmp_path / "server", "trial")
    everybody, *without = (scores_in(words)[-1] for wanted, words in seen if wanted.purpose == "test")
    assert [scores for scores in without if differ_by(everybody, scores, own["test"])] == []
    reasons = str(failures(tmp_path / "server"))
    assert reasons.count("4 clients sent a masked vector, fewer than the threshold of 5") == 4
