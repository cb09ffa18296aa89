"""Which values of a mechanism's options are tried: one option at a time, around what is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedkge.client.privacy import mechanism_of
from fedkge.client.training.optimizers import OPTIMIZERS
from fedkge.errors import SettingError
from fedkge.experiment import DPSettings

__all__ = ["CANDIDATES", "Candidate", "candidates_of"]

Values = Mapping[str, Sequence[Any]]  # by option

CANDIDATES: Mapping[str, Values] = {
    "hubs": {
        "steps": (30, 60, 120),
        "learning_rate": (0.01, 0.03, 0.1),
        "negatives": (16, 64, 128),
        "least": (20.0, 40.0, 80.0),
        "choice": (0.05, 0.1, 0.2),
        "start": (0.1, 0.2, 0.4),
    },
    "sound": {
        "noise_share": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
        "gradient_share": (0.03, 0.1, 0.3, 1.0, 3.0),
        "phase": (0.2, 0.5, 1.0),
        "average": (0.0, 0.4),
    },
}
_OF_SGD = {"noise_share": True, "gradient_share": False}  # the rule that bounds a gradient has one of these


@dataclass(frozen=True)
class Candidate:
    """Settings that differ from those given in one option, or in none."""

    dp: DPSettings
    option: str = ""
    value: Any = None


def candidates_of(dp: DPSettings, optimizer: str, values: Values | None = None) -> list[Candidate]:
    """What is given first, then each other value of each option; all are checked before any is tried."""
    given = mechanism_of(dp).options
    values = _known(dp, optimizer) if values is None else values
    candidates = [Candidate(dp)]
    for option, tried in values.items():
        for value in tried:
            changed = dp.model_copy(update={"options": {**dp.options, option: value}})
            mechanism_of(changed)  # refuses an option or value that the mechanism does not take
            if value != getattr(given, option):
                candidates.append(Candidate(changed, option, value))
    if len(candidates) == 1:
        raise SettingError(f'privacy.dp.mode "{dp.mode}": no other value of any option to try; give some')
    return candidates


def _known(dp: DPSettings, optimizer: str) -> Values:
    if dp.mode not in CANDIDATES:
        raise SettingError(
            f'privacy.dp.mode "{dp.mode}": no values to try are known; give them by option, or set mode to '
            f"{' or '.join(CANDIDATES)}"
        )
    plain = not OPTIMIZERS[optimizer].moments
    bounded = dp.clip is not None  # then neither share has an effect
    return {
        option: tried
        for option, tried in CANDIDATES[dp.mode].items()
        if option not in _OF_SGD or (_OF_SGD[option] == plain and not bounded)
    }
