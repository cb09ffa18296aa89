"""What differential privacy a run can vouch for, client by client, and what it does not cover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["guarantees"]

Account = Mapping[str, Any]  # what a client says of its private training

_GUARANTEED = "guaranteed"
_SIMULATED = "guaranteed if the client secrets are secret; in this simulation they come from the seed"
_CLAIMED = "claimed"

_ASSUMED = (
    "assumed to be public: the vocabulary (every row of it is noised), and how many triples are confidential",
    "ε is per triple and of this run: several triples of one person add up, and so do a triple that is "
    "listed twice or held by several clients, and other runs on the same triples",
    "test scores: computed over confidential triples, without noise",
)
_VALIDATED = "validation scores, and so the choice of the best round and the stop: confidential triples enter"
_WHY_CLAIMED = (
    "why a claim: only the rows of a batch are noised, so which rows moved is visible",
    "why a claim: batches are drawn without replacement, but accounted for as Poisson samples",
    "why a claim: a triple and its negatives are clipped apart, so one triple can move more than the bound",
    "why a claim: negatives are filtered by confidential triples, and losses over them are told",
    "why a claim: the bound is a percentile of norms of confidential triples",
)


def guarantees(accounts: Mapping[int, Account]) -> dict[str, Any]:
    """The keys of the section `privacy` that concern ε; without private training they are null."""
    if not accounts:
        return {"epsilon": None, "delta": None, "claimed_or_guaranteed": None}
    return {
        "epsilon": {str(client): each["epsilon"] for client, each in sorted(accounts.items())},
        "delta": {str(client): each["delta"] for client, each in sorted(accounts.items())},
        "claimed_or_guaranteed": {str(client): _standing(each) for client, each in sorted(accounts.items())},
        "outside_epsilon": _outside(accounts),
        "differential_privacy": {str(client): dict(each) for client, each in sorted(accounts.items())},
    }


def _standing(account: Account) -> str:
    if account["mode"] == "paper":
        return _CLAIMED
    return _SIMULATED if account["simulated_secret"] else _GUARANTEED


def _outside(accounts: Mapping[int, Account]) -> list[str]:
    """What reached confidential triples without noise."""
    modes = {account["mode"] for account in accounts.values()}
    validated = "paper" in modes or any(each["validation"] == "all" for each in accounts.values())
    return [*_ASSUMED, *([_VALIDATED] if validated else []), *(_WHY_CLAIMED if "paper" in modes else ())]
