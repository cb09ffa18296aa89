"""What differential privacy a run can vouch for, client by client, and what it does not cover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["guarantees"]

Account = Mapping[str, Any]  # what a client says of its private training


def guarantees(accounts: Mapping[int, Account]) -> dict[str, Any]:
    """The keys of the section `privacy` that concern ε; without private training they are null."""
    if not accounts:
        return {"epsilon": None, "delta": None, "claimed_or_guaranteed": None}
    reports = {str(client): dict(account) for client, account in sorted(accounts.items())}
    outside = dict.fromkeys(line for report in reports.values() for line in report.pop("outside"))
    return {
        "epsilon": {client: report["epsilon"] for client, report in reports.items()},
        "delta": {client: report["delta"] for client, report in reports.items()},
        "claimed_or_guaranteed": {client: report["standing"] for client, report in reports.items()},
        "outside_epsilon": list(outside),
        "differential_privacy": reports,
    }
