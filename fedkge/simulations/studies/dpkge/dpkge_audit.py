"""What an attacker who sees every iterate proves about ε, for training as printed and for sound training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedkge.attacks.canaries.privacy_audit import CanaryAudit, audit
from fedkge.client.privacy import MECHANISMS
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from fedkge.simulations.studies.cells import Row, StudyCache, TableCell
from fedkge.simulations.studies.dpkge.dpkge_cells import Mode, graph_of
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Quantity, study

__all__ = ["BOUNDS", "audit_row", "privacy_audit"]

_ALL = 10**9  # a batch that holds every confidential triple
_WAYS: tuple[tuple[Mode, int], ...] = (("paper", 0), ("sound", 64), ("sound", _ALL))
_MODEL = ModelSettings(
    name="TransE", dim=16, margin=0.0
)  # no margin: a canary's own score leads its gradient


BOUNDS = (Quantity("epsilon", "ε claimed or guaranteed"), Quantity("at_least", "ε at least"))


@study(BOUNDS, within=("attacker",), seeds={"quick": 1, "full": 1})
def privacy_audit(scale: Scale, seeds: Sequence[int]) -> Iterator[TableCell]:
    """Lower bounds on ε (95 % confidence) beside what is claimed or guaranteed, from planted canaries.

    The canaries enter the confidential half of UMLS. With all confidential triples in every step an attack
    finds most: those rows show that the attacker is able. Quick: 600 canaries
    and σ = 1, 10. Full: 2,000 canaries.
    """
    canaries, sigmas = (2000, (0.7, 1.0, 2.0, 10.0)) if scale == "full" else (600, (1.0, 10.0))
    for mode, batch in _WAYS:
        for sigma in sigmas:
            for seed in seeds:
                yield _audited(mode, batch, sigma, canaries, seed)


def _audited(mode: Mode, batch: int, sigma: float, canaries: int, seed: int) -> TableCell:
    training = TrainingSettings(
        local_epochs=1,
        batch_size=max(batch, 1),  # mode paper takes √N
        negatives=1,
        learning_rate=0.01,
        optimizer="SGD",
        loss="logistic",
    )
    dp = DPSettings(mode=mode, sigma=sigma, clip=1.0, delta=1e-5)

    def measure(cache: StudyCache) -> list[Row]:
        del cache
        graph = graph_of("UMLS", 0.5)
        audits = audit(graph, _MODEL, training, dp, rounds=4, num_canaries=canaries, seed=seed)
        return [audit_row(one) for one in audits]

    name = {0: "√N", _ALL: "all"}.get(batch, str(batch))
    return TableCell({"mode": mode, "batch": name, "sigma": sigma, "seed": seed}, measure, f"{canaries}")


def audit_row(audited: CanaryAudit) -> Row:
    return {
        "attacker": audited.attacker,
        "epsilon": audited.claimed,
        "epsilon_is": MECHANISMS[audited.mode].standing(),
        "at_least": audited.bound.epsilon,
        "correct": audited.bound.correct,
        "guesses": audited.bound.guesses,
        "verdict": "refuted" if audited.refuted else "stands",
    }
