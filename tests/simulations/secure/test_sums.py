"""What secure aggregation adds up is what plain aggregation adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedkge.client.secure import SecureParticipant
from fedkge.crypto import FixedPoint
from fedkge.datasets import load_graph
from fedkge.exchange import Table
from fedkge.server.loop import Federation
from fedkge.server.sums import SecureSums, Steps
from fedkge.server.sums.open import mean_step
from fedkge.simulations.runs import run as runs
from tests.simulations.secure.settings import FIVE, Make


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_masked_means_agree_with_plain_means_of_the_same_uploads(
    precision: str, secret: Make, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, apply = SecureParticipant._write_delta, Federation.apply
    sent: dict[str, dict[int, Table]] = {"entity": {}, "relation": {}}  # each client's step, as in the open
    encoding, rounding = [], []

    def sending(self: SecureParticipant, words: Any) -> None:
        for name, holding in self.holdings.items():
            sent[name][self.client] = Table(holding.places.astype(np.int32), self.step(name))
        write(self, words)

    def applying(self: Federation, steps: Steps) -> None:
        assert isinstance(self.sums, SecureSums)
        before = dict(self.tables)
        apply(self, steps)
        for name, table in self.tables.items():
            rows = {client: step.ids.astype(np.int64) for client, step in sent[name].items()}
            ones = {client: np.ones(len(ids)) for client, ids in rows.items()}
            plain = mean_step(*table.rows.shape, sent[name], rows, ones)
            encoding.append(np.abs(steps.means[name] - plain).max())
            rounding.append(np.abs(before[name].rows + plain - table.rows).max())

    monkeypatch.setattr(SecureParticipant, "_write_delta", sending)
    monkeypatch.setattr(Federation, "apply", applying)
    runs.run(secret("federation.strategy=FedER", f"federation.precision={precision}"), out)
    bound = FixedPoint(8.0, 3).error_bound
    assert bound == 2.0**-27
    steps = 2.0**-26  # of less than 2, that are rounded to float32 here, and not where they are encoded
    assert 0 < max(encoding) <= bound + steps
    assert len(rounding) == 4 * 2
    # Offsets below 4 are rounded once more, as float32 or float16, on their way to the clients.
    assert max(rounding) <= bound + 2.0 ** (-22 if precision == "float32" else -10)


def test_scores_without_secure_aggregation_are_the_same_when_every_row_is_shared(
    secret: Make, tiny: Make, tmp_path: Path
) -> None:
    masked = runs.run(secret("privacy.min_holders=1", "privacy.rows_from_seed=true"), tmp_path / "masked")
    plain = runs.run(tiny(), tmp_path / "plain")
    assert masked.summary["privacy"]["rows_not_shared"] == {"relation": 0}
    assert masked.test() == pytest.approx(plain.test(), abs=1e-6)  # rows differ in their last bits
    own, known = (each.summary["utility"]["per_client"] for each in (masked, plain))
    assert {c: own[c]["test"]["count"] for c in own} == {c: known[c]["test"]["count"] for c in known}


def test_rows_with_too_few_holders_stay_at_home(secret: Make, out: Path) -> None:
    result = runs.run(secret(FIVE), out)
    graphs = [load_graph(out / "data" / f"client-{number}") for number in range(5)]
    holders = pd.Series([label for graph in graphs for label in graph.relation_labels]).value_counts()
    assert result.summary["privacy"]["rows_not_shared"] == {"relation": int((holders < 3).sum())}


def test_values_beyond_the_clip_are_counted(secret: Make, tmp_path: Path) -> None:
    assert runs.run(secret(), tmp_path / "wide").summary["privacy"]["clip_rate"] == 0.0
    narrow = runs.run(secret("privacy.clip=0.001"), tmp_path / "narrow").summary["privacy"]["clip_rate"]
    assert 0.5 < narrow <= 1.0
