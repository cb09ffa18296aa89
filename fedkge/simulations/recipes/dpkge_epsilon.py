"""The ε of the DPKGE paper: its own figures, its own conversion, and what a proven accountant says."""

from __future__ import annotations

from math import floor

import pandas as pd

from fedkge.client.accounting import epsilon
from fedkge.simulations.recipes.dpkge_paper import EPSILONS, GRAPHS, SIGMAS, Graph
from fedkge.simulations.recipes.scale import Scale

__all__ = ["epsilon_by_share", "epsilon_over_epochs", "epsilon_tables"]

_SHARES = (0.25, 0.5, 0.75, 0.85, 0.95, 1.0)  # the r of figure 5


def epsilon_tables(scale: Scale = "full", seed: int = 0) -> pd.DataFrame:
    """ε of DPKGE tables 5–9 by the paper's conversion, RDP and PRV (quick: PRV at FB15k-237, σ = 1 only)."""
    del seed  # nothing is drawn
    rows = []
    for (name, sigma), published in EPSILONS.items():
        graph = GRAPHS[name]
        for method, value in zip(("DPKGE", "FullDP"), published, strict=True):
            events = [graph.event(method, sigma)]
            classic, rdp = (epsilon(events, graph.delta, by) for by in ("classic", "rdp"))
            shown = scale == "full" or (name, sigma) == ("FB15k-237", 1.0)
            rows.append(
                {
                    "dataset": name,
                    "sigma": sigma,
                    "method": method,
                    "published": value,
                    "classic": truncated(classic),
                    "rdp": round(rdp, 2),
                    "prv": round(epsilon(events, graph.delta, "prv"), 2) if shown else None,
                    "reproduced": truncated(classic) == value,
                }
            )
    return pd.DataFrame(rows)


def epsilon_over_epochs(scale: Scale = "full", seed: int = 0) -> pd.DataFrame:
    """ε as training goes on (DPKGE figure 4), on FB15k and YAGO3-10 (quick: without PRV)."""
    del seed  # nothing is drawn
    rows = []
    for name, sigma in [("FB15k", sigma) for sigma in SIGMAS] + [("YAGO3-10", 1.0)]:
        graph = GRAPHS[name]
        for place, method in enumerate(("DPKGE", "FullDP")):
            for epoch in range(10, 101, 10 if scale == "full" else 30):
                events = [graph.event(method, sigma, epoch)]
                rows.append(
                    {
                        "dataset": name,
                        "sigma": sigma,
                        "method": method,
                        "epoch": epoch,
                        "published": EPSILONS[name, sigma][place] if epoch == 100 else None,
                        "classic": epsilon(events, graph.delta, "classic"),
                        "rdp": epsilon(events, graph.delta, "rdp"),
                        "prv": epsilon(events, graph.delta, "prv") if scale == "full" else None,
                    }
                )
    return pd.DataFrame(rows)


def epsilon_by_share(scale: Scale = "full", seed: int = 0) -> pd.DataFrame:
    """ε when more of FB15k is confidential (DPKGE figure 5a), σ = 0.7 (quick: without PRV)."""
    del seed  # nothing is drawn
    full = GRAPHS["FB15k"]
    rows = []
    for share in _SHARES:
        graph = Graph(full.num_train, round(share * full.num_train))
        events = [graph.event("DPKGE", 0.7)]
        rows.append(
            {
                "share": share,
                "classic": epsilon(events, graph.delta, "classic"),
                "rdp": epsilon(events, graph.delta, "rdp"),
                "prv": epsilon(events, graph.delta, "prv") if scale == "full" else None,
            }
        )
    return pd.DataFrame(rows)


def truncated(value: float) -> float:
    """To two decimals, as the paper prints: 2.0594 is 2.05."""
    return floor(value * 100) / 100
