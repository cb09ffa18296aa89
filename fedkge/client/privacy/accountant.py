"""What private training has cost: events say what happened, an accountant says what it amounts to.

An event is some steps of the Poisson-sampled Gaussian mechanism, or a release without δ, whose ε is added
(basic composition); ε compares a client's triples with the same triples less one. Two bounds on steps are
proven: RDP (Mironov et al., 2019, with the conversion of Balle et al., 2020) and PRV, the numerical
composition of Gopi et al. (2021), which is tighter. `classic` is how Han et al. (2022) turned RDP into the ε
of their tables. All these formulas are Opacus'. Steps that take every triple are Gaussian mechanisms without
sampling, whose composition is one such mechanism and has a formula (Balle and Wang, 2018). Gaussian DP for
sampled steps is not offered: its approximation comes out below PRV.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, isfinite, log, sqrt
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from scipy.optimize import brentq
from scipy.special import log_ndtr

from fedkge.errors import DataError, SettingError, UnknownNameError

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Event",
    "PrivacyLedger",
    "PureEvent",
    "Spent",
    "epsilon",
    "gaussian_sigma",
    "numbers_of",
    "sigma_for",
    "steps_within",
]

Accountant = Literal["prv", "rdp", "classic"]
Numbers = NDArray[np.float64]

_CLASSIC_ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(12, 64))
_ORDERS = (1.01, 1.02, 1.05, *_CLASSIC_ORDERS, 80, 128, 256, 512)  # the ends serve little and much noise
_MOST_STEPS = 10**9  # no run has more
_PRV_ERROR = 0.01  # added to ε by the discretisation, where the mesh can be so fine
_PRV_POINTS = 2**20  # a mesh of so many points takes about a second
_PRV_DIGITS = 1e9  # rounded up: the last bits of a Fourier transform depend on the number of threads
_PRV_REACH = 600.0  # e^ε overflows beyond
_PRV_DELTA = 1e-9  # below, rounding in the Fourier transform is no longer small beside δ
_MOST_SIGMA = 1e6


@dataclass(frozen=True)
class Event:
    """Steps that each took every triple with probability `rate` and added noise of σ times the clip."""

    sigma: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        if not (isfinite(self.sigma) and self.sigma > 0):
            raise SettingError(f"sigma = {self.sigma}: noise has a size above 0, such as 1.0")
        if not 0 < self.rate <= 1:
            raise SettingError(f"sampling rate {self.rate}: expected batch size / triples, above 0 up to 1")
        if self.steps < 0:
            raise SettingError(f"{self.steps} private steps: expected 0 or more")


@dataclass(frozen=True)
class PureEvent:
    """One release that is ε-DP with no δ, or that is claimed to be."""

    epsilon: float
    steps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not (isfinite(self.epsilon) and self.epsilon > 0):
            raise SettingError(f"epsilon = {self.epsilon}: a release costs a finite number above 0")


Spent = Event | PureEvent


@dataclass(frozen=True)
class PrivacyLedger:
    """All that one client's confidential triples went through, oldest first."""

    events: tuple[Spent, ...] = ()

    def add(self, event: Spent) -> PrivacyLedger:
        """The ledger with one more event; steps like the last ones join them."""
        if event.steps == 0:
            return self
        if self.events and isinstance(event, Event):
            *earlier, last = self.events
            if isinstance(last, Event) and (last.sigma, last.rate) == (event.sigma, event.rate):
                return PrivacyLedger((*earlier, Event(last.sigma, last.rate, last.steps + event.steps)))
        return PrivacyLedger((*self.events, event))

    @property
    def steps(self) -> int:
        return sum(event.steps for event in self.events)

    def to_json(self) -> str:
        """Steps as [σ, rate, steps], a release without δ as [ε]."""
        return json.dumps([numbers_of(event) for event in self.events])

    @classmethod
    def from_json(cls, text: str) -> PrivacyLedger:
        try:
            return cls(tuple(_event_of(numbers) for numbers in json.loads(text)))
        except (ValueError, TypeError, SettingError) as error:
            raise DataError(
                f"a privacy ledger cannot be read ({error}); what was spent is unknown, so start the run anew"
            ) from error


def numbers_of(event: Spent) -> list[float]:
    """An event as JSON has it."""
    return [event.epsilon] if isinstance(event, PureEvent) else [event.sigma, event.rate, event.steps]


def _event_of(numbers: Sequence[float]) -> Spent:
    if len(numbers) == 1:
        return PureEvent(float(numbers[0]))
    sigma, rate, steps = numbers
    return Event(float(sigma), float(rate), int(steps))


def epsilon(events: Iterable[Spent], delta: float, accountant: Accountant = "prv") -> float:
    """The ε that the events amount to at δ; no events cost nothing, and what has no δ adds its ε.

    δ may be 0 where nothing needs more.
    """
    if accountant not in ACCOUNTANTS:
        raise UnknownNameError("accountant", accountant, ACCOUNTANTS)
    events = tuple(events)
    pure, spent = _pure(events), _together(events)
    if spent or delta != 0:
        _check_delta(delta)
    return pure + (max(0.0, ACCOUNTANTS[accountant](spent, delta)) if spent else 0.0)


def sigma_for(target: float, delta: float, rate: float, steps: int) -> float:
    """About the least noise with which so many steps stay within ε = target; never too little."""
    _check_delta(delta)
    _check_budget(target)
    if steps <= 0:
        raise SettingError(f"{steps} private steps need no noise; plan at least 1")
    low, high = 0.25, 0.5

    def excess(sigma: float) -> float:
        return log(max(_tight((Event(sigma, rate, steps),), delta), 1e-9) / target)

    while _rdp((Event(high, rate, steps),), delta) > target:
        low, high = high / 2, 2 * high
        if high > _MOST_SIGMA:
            raise SettingError(
                f"ε = {target:g} at δ = {delta:g} is out of reach of {steps} steps; raise ε, or train less"
            )
    while excess(low) < 0:
        low /= 2
    sigma = float(brentq(excess, low, high, rtol=1e-3))
    while excess(sigma) > 0:
        sigma *= 1.001
    return sigma


def gaussian_sigma(target: float, delta: float) -> float:
    """The least noise with which one sum over all triples stays within ε = target, rounded up."""
    _check_delta(delta)
    _check_budget(target)

    def excess(mu: float) -> float:
        return _log_delta(target, mu) - log(delta)

    high = 1.0
    while excess(high) < 0:
        high *= 2
    low = high
    while excess(low) > 0:
        low /= 2
    return (1 + 1e-7) / float(brentq(excess, low, high, xtol=1e-12))


def steps_within(budget: float, delta: float, events: Iterable[Spent], sigma: float, rate: float) -> int:
    """How many more steps fit before ε by PRV exceeds the budget; at most a thousandth too few."""
    _check_delta(delta)
    _check_budget(budget)
    events = tuple(events)
    spent = _together(events)
    budget -= _pure(events)
    if budget <= 0:
        return 0
    if spent and _tight(spent, delta) > budget:
        return 0
    low, high = _rdp_steps(budget, delta, spent, sigma, rate), _MOST_STEPS
    last, tries = max(low, 1), 0
    while high - low > 1 + low // 1024:
        total = _together((*spent, Event(sigma, rate, last)))
        found = max(_tight(total, delta), 1e-9)
        low, high = (max(low, last), high) if found <= budget else (low, min(high, last))
        # PRV is an almost constant share of RDP, and RDP says how many steps it allows.
        aim = _rdp_steps(budget * _rdp(total, delta) / found, delta, spent, sigma, rate)
        margin = 1 + aim // 4096
        aim += margin if found <= budget else -margin
        tries += 1
        last = aim if low < aim < high and tries < 8 else (low + high) // 2
    return low


def _pure(events: Iterable[Spent]) -> float:
    """What releases without δ cost together."""
    return sum((event.epsilon for event in events if isinstance(event, PureEvent)), 0.0)


def _together(events: Iterable[Spent]) -> tuple[Event, ...]:
    """One event for all steps of a kind: the order of steps costs nothing."""
    steps: dict[tuple[float, float], int] = {}
    for event in events:
        if isinstance(event, PureEvent):
            continue
        kind = (event.sigma, event.rate)
        steps[kind] = steps.get(kind, 0) + event.steps
    return tuple(Event(*kind, count) for kind, count in sorted(steps.items()) if count)


def _classic(events: Sequence[Event], delta: float) -> float:
    """RDP + ln(1/δ) / (α − 1), over the orders of the DPKGE authors' accountant."""
    orders = np.array(_CLASSIC_ORDERS)
    return float(np.min(_rdp_curve(events, _CLASSIC_ORDERS) + log(1 / delta) / (orders - 1)))


def _rdp(events: Sequence[Event], delta: float) -> float:
    return float(np.min(_rdp_curve(events, _ORDERS) + _conversion(delta)))


def _conversion(delta: float) -> Numbers:
    """What the step from RDP to (ε, δ) adds at each order: theorem 21 of Balle et al. (2020)."""
    orders = np.array(_ORDERS)
    added: Numbers = np.log1p(-1 / orders) - (log(delta) + np.log(orders)) / (orders - 1)
    return added


def _rdp_curve(events: Sequence[Event], orders: tuple[float, ...]) -> Numbers:
    curve = np.zeros(len(orders))
    for event in events:
        curve += event.steps * _step_curve(event.sigma, event.rate, orders)
    return curve


@lru_cache(maxsize=256)
def _step_curve(sigma: float, rate: float, orders: tuple[float, ...]) -> Numbers:
    from opacus.accountants.analysis.rdp import compute_rdp  # seconds to import

    with np.errstate(all="ignore"):  # an order at which it overflows bounds nothing: ∞
        curve = np.array(
            [compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=[a])[0] for a in orders]
        )
    return np.where(np.isnan(curve), inf, np.maximum(curve, 0.0))


def _rdp_steps(budget: float, delta: float, spent: Sequence[Event], sigma: float, rate: float) -> int:
    """How many more steps RDP alone allows: linear in the steps at each order."""
    room = budget - _conversion(delta) - _rdp_curve(spent, _ORDERS)
    each = np.maximum(_step_curve(sigma, rate, _ORDERS), 1e-300)
    most = float(np.max(np.where(room >= 0, room / each, 0.0)))
    return int(min(most * (1 - 1e-12), _MOST_STEPS))


def _gaussian(events: Sequence[Event], delta: float) -> float:
    """Steps without sampling: 1 / σ² adds up, and one Gaussian mechanism has an exact ε."""
    mu = sqrt(sum(event.steps / event.sigma**2 for event in events))
    if _log_delta(0.0, mu) <= log(delta):
        return 0.0
    high = 1.0
    while _log_delta(high, mu) > log(delta):
        high *= 2
        if high > 1e6:
            return inf
    return float(brentq(lambda epsilon: _log_delta(epsilon, mu) - log(delta), 0.0, high, xtol=1e-12)) + 1e-9


def _log_delta(epsilon: float, mu: float) -> float:
    """ln δ of a Gaussian mechanism at ε: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), theorem 8 of Balle and Wang."""
    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return first + float(np.log1p(-np.exp(min(second - first, -1e-300)))) if second < first else -inf


def _tight(events: Sequence[Event], delta: float) -> float:
    """The lower of the two proven bounds: the mesh adds to PRV what few quiet steps do not cost."""
    if all(event.rate == 1 for event in events):
        return _gaussian(events, delta)
    loose = _rdp(events, delta)
    reach = _prv_reach(tuple(events), delta)
    if not reach < _PRV_REACH or delta < _PRV_DELTA:
        return loose
    return min(loose, _prv(tuple(events), delta, reach))


def _prv_reach(events: tuple[Event, ...], delta: float) -> float:
    """How far the privacy loss must be followed until the rest weighs nothing (remark 5.6 of Gopi et al.)."""
    error = delta / 1000
    steps = sum(event.steps for event in events)
    singles = [_rdp((Event(event.sigma, event.rate, 1),), error / (8 * steps)) for event in events]
    return max(_rdp(events, error / 4), *singles, _PRV_ERROR) + 3


@lru_cache(maxsize=256)
def _prv(events: tuple[Event, ...], delta: float, reach: float) -> float:
    """Opacus' numerical composition on a mesh that is coarser where it would be too large; ∞ if it fails."""
    from opacus.accountants.analysis import prv  # seconds to import

    error = delta / 1000
    fineness = sqrt(sum(event.steps for event in events) * log(12 / error) / 2)
    width = max(_PRV_ERROR / fineness, 2 * reach / _PRV_POINTS)
    if width * fineness > 1:  # too coarse for the analysis of its error to hold
        return inf
    half = int(next_fast_len(int(reach / width) + 2))
    # The composition asks for this alignment: zero on the mesh, one point more above than below.
    domain = prv.Domain(-(half - 1) * width, half * width, 2 * half)
    with np.errstate(all="ignore"):  # log 0 where every triple is in every step
        try:
            parts = [
                prv.discretize(
                    prv.TruncatedPrivacyRandomVariable(
                        prv.PoissonSubsampledGaussianPRV(event.rate, event.sigma), domain.t_min, domain.t_max
                    ),
                    domain,
                )
                for event in events
            ]
            whole = prv.compose_heterogeneous(parts, [event.steps for event in events])
            upper = whole.compute_epsilon(delta, error, width * fineness)[2]
        except (RuntimeError, ValueError):  # too coarse a mesh for these events
            return inf
    if not isfinite(upper):
        return inf
    return ceil(float(upper) * _PRV_DIGITS) / _PRV_DIGITS


ACCOUNTANTS = {"prv": _tight, "rdp": _rdp, "classic": _classic}


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise SettingError(f"delta = {delta}: expected between 0 and 1, below 1 / confidential triples")


def _check_budget(budget: float) -> None:
    if not budget > 0:
        raise SettingError(
            f"ε = {budget}: a budget is above 0; without confidential triples nothing is spent"
        )
