"""The ε of the DPKGE paper: its own figures, its own conversion, and what a proven accountant says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, isqrt

from fedkge.client.privacy.accountant import Event, epsilon
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.dpkge.dpkge_cells import NUMBERS, SIGMAS
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["epsilon_by_share", "epsilon_over_epochs", "epsilon_tables"]

_SHARES = (0.25, 0.5, 0.75, 0.85, 0.95, 1.0)  # the r of figure 5
_PRIVATE = ("DPKGE", "FullDP")


@dataclass(frozen=True)
class Graph:
    """How many statements the paper trained on, and how many of them were confidential."""

    num_train: int
    num_confidential: int

    @classmethod
    def of(cls, dataset: str) -> Graph:
        """A graph of table 1."""
        counts = (NUMBERS.get("1", metric, dataset=dataset) for metric in ("train", "confidential"))
        return cls(*(int(count or 0) for count in counts))

    @property
    def batch(self) -> int:
        return isqrt(self.num_train)

    @property
    def delta(self) -> float:
        return 1 / self.num_train

    def event(self, method: str, sigma: float, epoch: int = 100) -> Event:
        """What the paper's accountant was told at the end of an epoch: it counted them from 0."""
        size = self.num_train if method == "FullDP" else self.num_confidential
        return Event(sigma, self.batch / size, (epoch - 1) * size // self.batch)


_BY_ACCOUNTANT = (
    Quantity("classic", "ε, the paper's conversion", "published"),
    Quantity("rdp", "ε, RDP"),
    Quantity("prv", "ε, PRV"),
)


@study(_BY_ACCOUNTANT, within=("method",))
def epsilon_tables(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """ε of DPKGE tables 5–9 by the paper's conversion, RDP and PRV.

    Quick: PRV at FB15k-237, σ = 1 only.
    """
    del seeds  # nothing is drawn
    for name, sigma in _settings():
        proven = scale == "full" or (name, sigma) == ("FB15k-237", 1.0)

        def measure(
            cache: StudyCache, name: str = name, sigma: float = sigma, proven: bool = proven
        ) -> Iterator[Row]:
            del cache
            for method in _PRIVATE:
                published = _published(name, method, sigma)
                spent = _spent(Graph.of(name), method, sigma, proven)
                classic = truncated(spent["classic"])
                yield {
                    "method": method,
                    "published": published,
                    "classic": classic,
                    "rdp": round(spent["rdp"], 2),
                    "prv": round(spent["prv"], 2) if proven else None,
                    "reproduced": classic == published,
                }

        yield TableCell({"dataset": name, "sigma": sigma}, measure)


@study(_BY_ACCOUNTANT, within=("method", "epoch"), over="epoch")
def epsilon_over_epochs(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE figure 4: ε as training goes on, on FB15k and YAGO3-10.

    Quick: without PRV. The paper prints the values of the last epoch.
    """
    del seeds  # nothing is drawn
    full = scale == "full"
    for name, sigma in [("FB15k", sigma) for sigma in SIGMAS] + [("YAGO3-10", 1.0)]:

        def measure(cache: StudyCache, name: str = name, sigma: float = sigma) -> Iterator[Row]:
            del cache
            for method in _PRIVATE:
                for epoch in range(10, 101, 10 if full else 30):
                    published = _published(name, method, sigma) if epoch == 100 else None
                    spent = _spent(Graph.of(name), method, sigma, full, epoch)
                    yield {"method": method, "epoch": epoch, "published": published, **spent}

        yield TableCell({"dataset": name, "sigma": sigma}, measure)


@study([Quantity(quantity.measured, quantity.name) for quantity in _BY_ACCOUNTANT])
def epsilon_by_share(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE figure 5a: ε when more of FB15k is confidential, σ = 0.7.

    Quick: without PRV. The paper prints no numbers.
    """
    del seeds  # nothing is drawn
    full = Graph.of("FB15k")
    for share in _SHARES:
        graph = Graph(full.num_train, round(share * full.num_train))

        def measure(cache: StudyCache, graph: Graph = graph) -> list[Row]:
            del cache
            return [_spent(graph, "DPKGE", 0.7, scale == "full")]

        yield TableCell({"share": share}, measure)


def _settings() -> list[tuple[str, float]]:
    """The dataset and σ of every row of tables 5 to 9."""
    rows = [(row["dataset"], float(row["sigma"])) for row in NUMBERS.rows if row["table"] == "5-9"]
    return list(dict.fromkeys(rows))


def _published(dataset: str, method: str, sigma: float) -> float | None:
    return NUMBERS.get("5-9", "epsilon", dataset=dataset, method=method, sigma=sigma)


def _spent(graph: Graph, method: str, sigma: float, proven: bool, epoch: int = 100) -> Row:
    """ε by each accountant; PRV takes long, and is left out unless asked for."""
    events = [graph.event(method, sigma, epoch)]
    return {
        "classic": epsilon(events, graph.delta, "classic"),
        "rdp": epsilon(events, graph.delta, "rdp"),
        "prv": epsilon(events, graph.delta, "prv") if proven else None,
    }


def truncated(value: float) -> float:
    """To two decimals, as the paper prints: 2.0594 is 2.05."""
    return floor(value * 100) / 100
