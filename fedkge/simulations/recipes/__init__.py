"""Studies of published papers, by name: each returns a tidy frame with the published figures beside ours.

A recipe is called with a scale and a seed; the first line of its docstring says what it is.
"""

from __future__ import annotations

from typing import Protocol

import pandas as pd

from fedkge.simulations.recipes.dpkge_attacker import attacker_ranks, neighbouring_graphs
from fedkge.simulations.recipes.dpkge_audit import privacy_audit
from fedkge.simulations.recipes.dpkge_clusters import clustering
from fedkge.simulations.recipes.dpkge_epsilon import epsilon_by_share, epsilon_over_epochs, epsilon_tables
from fedkge.simulations.recipes.dpkge_utility import clip_study, link_prediction, loss_curves, share_sweep
from fedkge.simulations.recipes.scale import Scale

__all__ = ["RECIPES", "Recipe", "Scale"]


class Recipe(Protocol):
    """A study that can be run by name."""

    def __call__(self, scale: Scale = ..., seed: int = ...) -> pd.DataFrame: ...


RECIPES: dict[str, Recipe] = {
    "dpkge-epsilon": epsilon_tables,
    "dpkge-epsilon-epochs": epsilon_over_epochs,
    "dpkge-epsilon-share": epsilon_by_share,
    "dpkge-link-prediction": link_prediction,
    "dpkge-clip": clip_study,
    "dpkge-loss": loss_curves,
    "dpkge-share": share_sweep,
    "dpkge-clustering": clustering,
    "dpkge-attacker": attacker_ranks,
    "dpkge-neighbours": neighbouring_graphs,
    "dpkge-audit": privacy_audit,
}
