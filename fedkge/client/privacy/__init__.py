"""Differential privacy for a client's confidential triples (Han et al., 2022), as printed and as it holds."""

from __future__ import annotations

from fedkge.client.privacy.plan import Plan, check_delta, delta_of
from fedkge.client.privacy.training import PrivateResult, train_privately

__all__ = ["Plan", "PrivateResult", "check_delta", "delta_of", "train_privately"]
