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
from fedkge.exchange import Table, Upload
from fedkge.server.aggregation import mean_over_holders
from fedkge.server.secure import SecureFederation
from fedkge.server.sums import Total
from fedkge.simulations.runs import run as runs
from tests.simulations.secure.settings import FIVE, Make


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_masked_means_agree_with_plain_means_of_the_same_uploads(
    precision: str, secret: Make, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, move = SecureParticipant._write_delta, SecureFederation._move
    sent: dict[int, Upload] = {}
    moved: dict[int, dict[int, np.ndarray]] = {}  # client -> row -> how far it moved, exactly
    initial: dict[str, dict[int, np.ndarray]] = {"entity": {}, "relation": {}}
    encoding, rounding = [], []

    def sending(self: SecureParticipant, words: Any) -> None:
        tables = {}
        for name, holding in self.holdings.items():
            ids = self.tables[name].shared[holding.places]  # type: ignore[index]
            rows = self.model.tables[name][holding.local]
            tables[name] = Table(ids, rows)
            initial[name] |= dict(zip(ids.tolist(), self._initial(name), strict=True))
            if name == "entity":
                exact = rows.astype(np.float64) - self.reference[name]
                moved[self.client] = dict(zip(ids.tolist(), exact, strict=True))
        sent[self.client] = Upload(1, self.client, tables)
        write(self, words)

    def moving(self: SecureFederation, total: Total) -> None:
        move(self, total)
        first = self.tables["entity"]  # its sums come first in the vector
        sums = self.sums.plan.fixed_point.decode(total.words[: first.rows.size]).reshape(first.rows.shape)
        for row, mean in zip(
            first.ids.tolist(), sums / self.counts["entity"][first.ids][:, None], strict=True
        ):
            held = [own[row] for own in moved.values() if row in own]
            encoding.append(np.abs(mean - np.mean(held, axis=0)).max())
        for name, table in self.tables.items():
            plain = mean_over_holders(list(sent.values()), name)
            assert plain is not None
            assert plain.ids.tolist() == table.ids.tolist()
            masked = np.array([initial[name][row] for row in table.ids.tolist()], np.float64) + table.rows
            rounding.append(np.abs(masked - plain.rows).max())

    monkeypatch.setattr(SecureParticipant, "_write_delta", sending)
    monkeypatch.setattr(SecureFederation, "_move", moving)
    runs.run(secret("federation.strategy=FedER", f"federation.precision={precision}"), out)
    bound = FixedPoint(8.0, 3).error_bound
    assert bound == 2.0**-27
    assert 0 < max(encoding) <= bound + 1e-15
    assert len(rounding) == 4 * 2
    # Rows and offsets below 4 are rounded once more, as float32 or float16, on their way to the clients.
    assert max(rounding) <= bound + 2.0 ** (-22 if precision == "float32" else -10)


def test_scores_without_secure_aggregation_are_the_same_when_every_row_is_shared(
    secret: Make, tiny: Make, tmp_path: Path
) -> None:
    masked = runs.run(secret("privacy.min_holders=1"), tmp_path / "masked")
    plain = runs.run(tiny(), tmp_path / "plain")
    assert masked.summary["privacy"]["rows_not_shared"] == {"relation": 0}
    assert masked.test() == pytest.approx(plain.test(), abs=2e-3)  # rows differ in their last bits
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
