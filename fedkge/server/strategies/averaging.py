"""The mean over holders: of entity rows, relation rows, both, weights, or of nothing."""

from __future__ import annotations

from fedkge.strategy import WEIGHTS, Strategy

__all__ = ["Central", "FedAvg", "FedE", "FedER", "FedR", "Local"]


class Local(Strategy):
    """Nothing is shared: every client for itself."""


class FedE(Strategy):
    """Entity rows are averaged over the clients that hold them (Chen et al., 2021)."""

    shared = ("entity",)


class FedR(Strategy):
    """Relation rows are averaged over holders; entity rows never leave a client (Zhang et al., 2022)."""

    shared = ("relation",)


class FedER(Strategy):
    """Both tables are averaged over the clients that hold each row."""

    shared = ("entity", "relation")


class FedAvg(Strategy):
    """The model's own weights are averaged, as of an encoder; rows stay at home (McMahan et al., 2017)."""

    shared = (WEIGHTS,)


class Central(Local):
    """One client that holds all triples: the upper bound, without privacy."""
