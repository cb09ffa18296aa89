"""Differential privacy for a client's confidential triples, by mechanisms with a name."""

from __future__ import annotations

from fedkge.client.privacy.account import PrivacyAccount, kept_secret, simulated_secret
from fedkge.client.privacy.epoch_plan import EpochPlan
from fedkge.client.privacy.mechanism import MECHANISMS, Mechanism, mechanism_of
from fedkge.client.privacy.mode import DPMode
from fedkge.client.privacy.private_result import PrivateResult
from fedkge.client.privacy.training import train_privately

__all__ = [
    "MECHANISMS",
    "DPMode",
    "EpochPlan",
    "Mechanism",
    "PrivacyAccount",
    "PrivateResult",
    "kept_secret",
    "mechanism_of",
    "simulated_secret",
    "train_privately",
]
