"""The ε of the DPKGE paper: its own figures, its own conversion, and what a proven accountant says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor

from fedkge.client.privacy.accountant import epsilon
from fedkge.simulations.studies.cells import Row, TableCell, Workshop
from fedkge.simulations.studies.dpkge.dpkge_paper import EPSILONS, GRAPHS, SIGMAS, Graph
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["epsilon_by_share", "epsilon_over_epochs", "epsilon_tables"]

_SHARES = (0.25, 0.5, 0.75, 0.85, 0.95, 1.0)  # the r of figure 5


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
    for name, sigma in EPSILONS:
        proven = scale == "full" or (name, sigma) == ("FB15k-237", 1.0)

        def measure(
            workshop: Workshop, name: str = name, sigma: float = sigma, proven: bool = proven
        ) -> Iterator[Row]:
            del workshop
            graph = GRAPHS[name]
            for method, published in zip(("DPKGE", "FullDP"), EPSILONS[name, sigma], strict=True):
                spent = _spent(graph, method, sigma, proven)
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

        def measure(workshop: Workshop, name: str = name, sigma: float = sigma) -> Iterator[Row]:
            del workshop
            for place, method in enumerate(("DPKGE", "FullDP")):
                for epoch in range(10, 101, 10 if full else 30):
                    published = EPSILONS[name, sigma][place] if epoch == 100 else None
                    spent = _spent(GRAPHS[name], method, sigma, full, epoch)
                    yield {"method": method, "epoch": epoch, "published": published, **spent}

        yield TableCell({"dataset": name, "sigma": sigma}, measure)


@study([Quantity(each.measured, each.name) for each in _BY_ACCOUNTANT])
def epsilon_by_share(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """DPKGE figure 5a: ε when more of FB15k is confidential, σ = 0.7.

    Quick: without PRV. The paper prints no numbers.
    """
    del seeds  # nothing is drawn
    full = GRAPHS["FB15k"]
    for share in _SHARES:
        graph = Graph(full.num_train, round(share * full.num_train))

        def measure(workshop: Workshop, graph: Graph = graph) -> list[Row]:
            del workshop
            return [_spent(graph, "DPKGE", 0.7, scale == "full")]

        yield TableCell({"share": share}, measure)


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
