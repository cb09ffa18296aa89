"""What the tests of secure runs share."""

from __future__ import annotations

from typing import Any

import pytest

from fedkge.server.sums import SecureSums
from fedkge.server.sums.sessions import Total


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> list[Total]:
    """Every sum of a round that the server got to see."""
    seen: list[Total] = []
    means = SecureSums._means

    def recorded(self: SecureSums, total: Total, tables: Any) -> Any:
        seen.append(total)
        return means(self, total, tables)

    monkeypatch.setattr(SecureSums, "_means", recorded)
    return seen
