"""What the tests of secure runs share."""

from __future__ import annotations

import pytest

from fedkge.server.secure import SecureFederation
from fedkge.server.sums import Total


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> list[Total]:
    """Every sum of a round that the server got to see."""
    seen: list[Total] = []
    move = SecureFederation._move

    def recorded(self: SecureFederation, total: Total) -> None:
        seen.append(total)
        move(self, total)

    monkeypatch.setattr(SecureFederation, "_move", recorded)
    return seen
