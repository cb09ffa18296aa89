"""How much better one setting is than another: over the same triples of one seed, or over the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedkge.metrics import NORMAL_95
from fedkge.simulations.runs.metadata import Metadata
from fedkge.simulations.runs.rows import interval_over_seeds
from fedkge.simulations.runs.run_folder import RunFolder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Difference", "client_difference", "difference"]


@dataclass(frozen=True)
class Difference:
    """A difference of test MRRs with its 95 % interval; `basis` says over what."""

    value: float
    interval: tuple[float, float]
    basis: str

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:+.4f} ± {(high - low) / 2:.4f}"


def difference(first: Sequence[RunFolder], second: Sequence[RunFolder], filter: str) -> Difference | None:
    """The second's test MRR less the first's, under one filter; None where one of them has no such score.

    With one seed the interval is over the triples, paired where both ranked the same ones. With several it
    is over the seeds that both have, Student's t.
    """
    pairs = _by_seed(first, second)
    values = [(_score(one, filter), _score(other, filter)) for one, other in pairs]
    known = [(a.number("value"), b.number("value")) for a, b in values]
    gaps = [b - a for a, b in known if a is not None and b is not None]
    if not gaps or len(gaps) < len(pairs):
        return None
    if len(gaps) > 1:
        return Difference(sum(gaps) / len(gaps), interval_over_seeds(gaps), f"{len(gaps)} seeds")
    half, basis = _over_triples(*pairs[0], *values[0], filter)
    return Difference(gaps[0], (gaps[0] - half, gaps[0] + half), basis)


def client_difference(first: RunFolder, second: RunFolder, client: int) -> Difference | None:
    """One client's test MRR in the second run less that in the first, by its own answers."""
    before, after = _reciprocal_ranks(first, "own", [client]), _reciprocal_ranks(second, "own", [client])
    if before is None or after is None or before.shape != after.shape or not len(before):
        return None
    if not _same(first, second, [client]):
        return None
    gaps = after - before
    value, half = float(gaps.mean()), NORMAL_95 * float(gaps.std()) / len(gaps) ** 0.5
    return Difference(value, (value - half, value + half), "paired triples")


def _by_seed(first: Sequence[RunFolder], second: Sequence[RunFolder]) -> list[tuple[RunFolder, RunFolder]]:
    others = {run.experiment.text("seed"): run for run in second}
    return [(run, others[seed]) for run in first if (seed := run.experiment.text("seed")) in others]


def _score(run: RunFolder, filter: str) -> Metadata:
    place = ("utility", "filters", filter, "test", "mrr")
    return run.summary.part(*place) if run.summary.at(*place) else _told(run, filter)


def _told(run: RunFolder, filter: str) -> Metadata:
    """What clients told, where nobody looked into them."""
    return run.summary.part("utility", "test", "mrr") if filter == "own" else Metadata({})


def _over_triples(
    first: RunFolder, second: RunFolder, one: Metadata, other: Metadata, filter: str
) -> tuple[float, str]:
    clients = range(first.num_clients)
    before = _reciprocal_ranks(first, filter, clients)
    after = _reciprocal_ranks(second, filter, range(second.num_clients))
    if (
        before is not None
        and after is not None
        and before.shape == after.shape
        and _same(first, second, clients)
    ):
        gaps = after - before
        return NORMAL_95 * float(gaps.std()) / len(gaps) ** 0.5, "paired triples"
    halves = [(high - low) / 2 for low, high in (one.listed("interval"), other.listed("interval"))]
    return float((halves[0] ** 2 + halves[1] ** 2) ** 0.5), "unpaired triples"


def _reciprocal_ranks(run: RunFolder, filter: str, clients: Sequence[int]) -> NDArray[np.float64] | None:
    """(n,) of each test triple, averaged over its sides, client by client."""
    import numpy as np  # reports that compare nothing do without
    from safetensors.numpy import load_file

    if not run.ranks.exists():
        return None
    ranks = load_file(run.ranks)
    names = [f"client-{client}/{filter}" for client in clients]
    if not all(name in ranks for name in names):
        return None
    return np.concatenate([(1 / ranks[name].astype(np.float64)).mean(axis=1) for name in names])


def _same(first: RunFolder, second: RunFolder, clients: Sequence[int]) -> bool:
    """Whether both tested the same triples in the same order, on the same sides."""
    sides = ("evaluation", "sides")
    return first.experiment.text(*sides) == second.experiment.text(*sides) and all(
        _test_file(first, client) == _test_file(second, client) for client in clients
    )


def _test_file(run: RunFolder, client: int) -> bytes:
    path = run.data(client) / "test.tsv"
    return path.read_bytes() if path.exists() else b""
