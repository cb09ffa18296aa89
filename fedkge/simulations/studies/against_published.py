"""What was published and what was measured, line by line: means over seeds, intervals, differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from fedkge.simulations.runs.rows import interval_over_seeds
from fedkge.simulations.studies.study import Quantity, Recipe

__all__ = ["COLUMNS", "OLDER", "line_up", "summit"]

COLUMNS = ("published", "measured", "low", "high", "difference", "seeds", "older")
OLDER = "of older code"  # a column of rows, where their origin is known


def line_up(recipe: Recipe, frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One line for each quantity of each cell, over its seeds; keys with a single value are left out."""
    parts = [pd.DataFrame(_lines(recipe, quantity, frame, keys)) for quantity in recipe.quantities]
    filled = [part for part in parts if len(part)]
    lined = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=["metric", *COLUMNS])
    names = [name for name in lined.columns if name not in ("metric", *COLUMNS)]
    varied = [name for name in names if lined[name].nunique(dropna=False) > 1]
    return lined[[*varied, "metric", *COLUMNS]].astype(dict.fromkeys(COLUMNS[:-2], float))


def summit(recipe: Recipe, lined: pd.DataFrame) -> pd.DataFrame:
    """Of each curve its last point: what fits a table."""
    if recipe.over is None or recipe.over not in lined:
        return lined
    groups = [name for name in lined.columns if name not in (recipe.over, *COLUMNS)]
    return lined.groupby(groups, dropna=False, sort=False, as_index=False).tail(1)


def _lines(
    recipe: Recipe, quantity: Quantity, frame: pd.DataFrame, keys: Sequence[str]
) -> Iterator[dict[str, Any]]:
    within = recipe.within if quantity.within is None else quantity.within
    names = list(dict.fromkeys([*(key for key in keys if key != "seed"), *within]))
    if quantity.measured not in frame:
        return
    for values, group in frame.groupby(names, dropna=False, sort=False):
        told = dict(zip(names, values, strict=True))
        line = _line(quantity, group.drop_duplicates("seed") if "seed" in group else group.head(1))
        if line["published"] is not None or line["measured"] is not None:
            yield {**told, "metric": f"{told.get('metric', '')}{quantity.name}", **line}


def _line(quantity: Quantity, seeds: pd.DataFrame) -> dict[str, Any]:
    """A mean only where every seed has a value: a target that one never reached has no honest mean."""
    published = _first(seeds, quantity.published)
    values = [_number(value) for value in seeds[quantity.measured]]
    known = [value for value in values if value is not None]
    measured = sum(known) / len(known) if len(known) == len(values) else None
    low, high = _first(seeds, quantity.low), _first(seeds, quantity.high)
    if len(values) > 1:
        low, high = (None, None) if measured is None else interval_over_seeds(known)
    gap = None if published is None or measured is None else measured - published
    return {
        "published": published,
        "measured": measured,
        "low": low,
        "high": high,
        "difference": gap,
        "seeds": len(values),
        "older": int(seeds[OLDER].sum()) if OLDER in seeds else 0,
    }


def _first(seeds: pd.DataFrame, column: str | None) -> float | None:
    return None if column is None or column not in seeds else _number(seeds[column].iloc[0])


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
