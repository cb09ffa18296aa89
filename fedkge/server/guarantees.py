"""What differential privacy a run can vouch for, client by client, and what it does not cover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["guarantees"]

Account = Mapping[str, Any]  # what a client says of its private training: "standing" and "outside" in words


def guarantees(accounts: Mapping[int, Account]) -> dict[str, Any]:
    """The keys of the section `privacy` that concern ε; without private training they are null."""
    if not accounts:
        return {"epsilon": None, "delta": None, "claimed_or_guaranteed": None}
    told = {str(client): account for client, account in sorted(accounts.items())}
    return {
        "epsilon": {client: account["epsilon"] for client, account in told.items()},
        "delta": {client: account["delta"] for client, account in told.items()},
        "claimed_or_guaranteed": {client: account["standing"] for client, account in told.items()},
        "outside_epsilon": list(dict.fromkeys(line for each in told.values() for line in each["outside"])),
        "differential_privacy": {
            client: {key: value for key, value in account.items() if key not in ("standing", "outside")}
            for client, account in told.items()
        },
    }
