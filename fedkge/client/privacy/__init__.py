"""Differential privacy for a client's confidential triples (Han et al., 2022), as printed and as it holds."""

from __future__ import annotations

from fedkge.client.privacy.account import PrivacyAccount, kept_secret, simulated_secret
from fedkge.client.privacy.plan import Plan, check_delta, delta_of
from fedkge.client.privacy.support import check_training
from fedkge.client.privacy.training import PrivateResult, train_privately

__all__ = [
    "Plan",
    "PrivacyAccount",
    "PrivateResult",
    "check_delta",
    "check_training",
    "delta_of",
    "kept_secret",
    "simulated_secret",
    "train_privately",
]
