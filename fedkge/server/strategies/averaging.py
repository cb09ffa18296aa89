"""The mean over holders, of entity rows, relation rows, both or none."""

from __future__ import annotations

from fedkge.strategy import Strategy

__all__ = ["Central", "FedE", "FedER", "FedR", "Local"]


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


class Central(Local):
    """One client that holds all triples: the upper bound, without privacy."""
