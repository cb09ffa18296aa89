"""The ε of Ghanvatkar and Wei (2021), table 2: as printed, as it was reached, and at the right sampling rate.

"Towards Privacy-Preserving and Domain-Aware Knowledge Graph Entity Representations". BLP's batches hold 64
triples, of which the inductive FB15k-237 has 215,082 to train on: a triple is in a batch with probability
64 / 215,082. The printed values follow from a batch that is divided by the number of entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb, log

import numpy as np

from fedkge.client.privacy.accountant import Event, epsilon
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["PRINTED", "READINGS", "Reading", "epsilon_of_texts", "printed_conversion"]

PRINTED = {1.0: 6.49, 1.2: 4.72}  # by σ, table 2
_BATCH, _TRIPLES = 64, 215_082
_EPOCHS = 15
_ORDERS = range(2, 65)  # "in range [1,64] with step size 1"; order 1 has no such bound


@dataclass(frozen=True)
class Reading:
    """What a batch is divided by, and for how many epochs."""

    name: str
    population: int
    epochs: int = _EPOCHS

    def event(self, sigma: float) -> Event:
        """Epochs are over triples, whatever the batch is divided by; the last, short batch is dropped."""
        return Event(sigma, _BATCH / self.population, self.epochs * (_TRIPLES // _BATCH))


READINGS = (
    Reading("by 14,541 entities, 14 epochs", 14_541, 14),  # those of FB15k-237; epochs counted from 0
    Reading("by 15,060 entities", 15_060),  # which meets both printed values
    Reading("by 215,082 triples", _TRIPLES),
)


def printed_conversion(event: Event, delta: float) -> float:
    """The paper's theorem 1 (Canonne et al., 2020) at its best whole order.

    Of equation 1 without its misprint: the exponent is (k² − k) / 2σ² (Mironov et al., 2019).
    """
    return min(_at(order, event, delta) for order in _ORDERS)


def _at(order: int, event: Event, delta: float) -> float:
    q, sigma = event.rate, event.sigma
    k = np.arange(order + 1)
    terms = [log(comb(order, int(i))) for i in k]
    exponents = terms + (order - k) * np.log1p(-q) + k * log(q) + (k * k - k) / (2 * sigma**2)
    tau = event.steps * float(np.logaddexp.reduce(exponents)) / (order - 1)
    return tau + (order * log(1 - 1 / order) - log(delta) - log(order - 1)) / (order - 1)


@study(
    (
        Quantity("theirs", "ε, the paper's conversion", "published"),
        Quantity("rdp", "ε, RDP"),
        Quantity("prv", "ε, PRV"),
    ),
    within=("batch_divided",),
    notes=(
        "The same noise in each line. What is printed was reached with a batch divided by about 15,000, the "
        "number of entities; with 64 of 215,082 triples, ε is about a tenth of it.",
        "None of these is a guarantee for training as published: negatives are entities of the batch's other "
        "triples, and batches are shuffled rather than sampled. `sound` has neither.",
    ),
)
def epsilon_of_texts(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """ε of Ghanvatkar and Wei (2021), table 2: as printed, and by the sampling rate of triples.

    δ is 1 / 215,082, and training takes 15 epochs. Quick: the same, since it trains nothing.
    """
    del scale, seeds  # formulas alone
    for sigma, printed in PRINTED.items():

        def measure(cache: StudyCache, sigma: float = sigma, printed: float = printed) -> Iterator[Row]:
            del cache
            for reading in READINGS:
                event, delta = reading.event(sigma), 1 / _TRIPLES
                yield {
                    "batch_divided": reading.name,
                    "published": printed,
                    "theirs": round(printed_conversion(event, delta), 3),
                    "rdp": round(epsilon([event], delta, "rdp"), 3),
                    "prv": round(epsilon([event], delta, "prv"), 3),
                }

        yield TableCell({"sigma": sigma}, measure)
