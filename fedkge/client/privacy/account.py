"""One client's private training over a run: its secret, what it has spent, and when it must stop.

Every release is charged before it leaves the client, on disk, under a digest of everything that it was made
from. The noise is drawn from the secret and that digest: asked again for the same release, the client gives
the same bits, at no further cost; asked for another, it draws fresh noise and pays. So a crash, a resume or a
server that repeats itself can neither cancel noise nor go unpaid.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.models.model import Model
from fedkge.client.privacy.accountant import Event, PrivacyLedger, epsilon, sigma_for, steps_within
from fedkge.client.privacy.normals import SECRET_BYTES, derived
from fedkge.client.privacy.plan import Plan, check_delta, delta_of
from fedkge.client.privacy.training import PrivateResult, train_privately
from fedkge.client.training.optimizers import State
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError
from fedkge.experiment import DPSettings, TrainingSettings
from fedkge.storage import staged

__all__ = ["PrivacyAccount", "kept_secret", "simulated_secret"]

_log = logging.getLogger(__name__)


def kept_secret(path: Path) -> bytes:
    """32 bytes from the operating system, drawn once and kept for the run."""
    if not path.exists():
        with staged(path, private=True) as partial:
            partial.write_bytes(os.urandom(SECRET_BYTES))
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise DataError(
            f"{path}: {len(secret)} bytes where a secret of {SECRET_BYTES} is kept; without it, releases "
            "that were made would be noised again: start the run anew"
        )
    return secret


def simulated_secret(seed: int, client: int) -> bytes:
    """A secret that whoever knows the seed knows too: for simulations that must repeat."""
    return hashlib.blake2b(f"simulated secret/{seed}/{client}".encode(), digest_size=SECRET_BYTES).digest()


@dataclass(frozen=True)
class Charge:
    """One release of the model: what it was made from, what it cost, and how it was noised."""

    digest: str
    events: tuple[Event, ...]
    noise: str = "none"  # as long as it is under way


class PrivacyAccount:
    """Trains privately, pays first, and leaves confidential triples alone once the budget is spent."""

    def __init__(
        self,
        path: Path,
        client: int,
        graph: KnowledgeGraph,
        settings: TrainingSettings,
        dp: DPSettings,
        rounds: int,
        secret: bytes,
        simulated: bool,
    ) -> None:
        self.path = path
        self.client = client
        self.graph = graph
        self.secret = secret
        self.simulated = simulated
        self.plan = Plan.of(graph, settings, dp)
        self.delta = delta_of(dp, graph)
        self.steps = settings.local_epochs * self.plan.confidential_steps  # in one round
        self._said: set[str] = set()
        self._say(check_delta(dp, graph))
        if dp.target_epsilon is not None:
            sigma = sigma_for(dp.target_epsilon, self.delta, self.plan.rate, rounds * self.steps)
            dp = dp.model_copy(update={"sigma": sigma})
        self.dp = dp
        self.charges = self._load()
        self._room: dict[PrivacyLedger, int] = {}
        if self.charges and not self._affords():
            self._say(self._why_spared())

    @property
    def ledger(self) -> PrivacyLedger:
        ledger = PrivacyLedger()
        for charge in self.charges:
            for event in charge.events:
                ledger = ledger.add(event)
        return ledger

    def train(
        self,
        model: Model,
        rng: np.random.Generator,
        settings: TrainingSettings,
        round: int,
        optimizer: State | None,
    ) -> PrivateResult:
        """One round; it is charged on disk before it starts, so that a round that fails is not free."""
        digest = self._digest(model, settings, round, optimizer)
        known = any(charge.digest == digest for charge in self.charges)
        spare = not known and not self._affords()
        secret = derived(self.secret, "round", bytes.fromhex(digest))
        charges = self.charges
        if not known and not spare:
            self._charge((*charges, Charge(digest, self._next)))
        result = train_privately(
            model, self.graph, rng, settings, self.dp, secret, optimizer=optimizer, spare=spare
        )
        self._say(self._why_spared() if spare else result.why)
        if not known and not spare:
            self._charge((*charges, Charge(digest, self._next, result.noise)))
        return result

    @property
    def _next(self) -> tuple[Event, ...]:
        """What a round costs."""
        return (Event(self.dp.sigma, self.plan.rate, self.steps),) if self.steps else ()

    def _charge(self, charges: tuple[Charge, ...]) -> None:
        self.charges = charges
        self._save()

    def spent(self) -> float:
        """ε so far: by PRV in `sound`; in `paper` by its own conversion, as it claims."""
        return epsilon(self.ledger.events, self.delta, "prv" if self.dp.mode == "sound" else "classic")

    def report(self) -> dict[str, Any]:
        """What anybody may know of it."""
        events, last = self.ledger.events, self.charges[-1] if self.charges else None
        return {
            "mode": self.dp.mode,
            "epsilon": self.spent(),
            "epsilon_rdp": epsilon(events, self.delta, "rdp"),
            "delta": self.delta,
            "budget": self.dp.budget,
            "budget_spent": not self._affords(),
            "events": [[event.sigma, event.rate, event.steps] for event in events],
            "noise": last.noise if last else "none",
            "clip": self.dp.bound,
            "simulated_secret": self.simulated,
            "validation": self.dp.validation,
        }

    def _affords(self) -> bool:
        """Whether one more round stays within the budget."""
        budget, ledger = self.dp.budget, self.ledger
        if budget is None:
            return True
        if budget == 0:
            return False
        following = ledger
        for event in self._next:
            following = following.add(event)
        if self.dp.mode == "paper":
            return epsilon(following.events, self.delta, "classic") <= budget
        if epsilon(following.events, self.delta, "rdp") <= budget:  # never below PRV, and quick
            return True
        kinds = {(event.sigma, event.rate) for event in ledger.events}
        if kinds <= {(self.dp.sigma, self.plan.rate)}:
            return following.steps <= self._steps_within(PrivacyLedger())
        return self.steps <= self._steps_within(ledger)

    def _steps_within(self, ledger: PrivacyLedger) -> int:
        assert self.dp.budget is not None
        if ledger not in self._room:
            self._room[ledger] = steps_within(
                self.dp.budget, self.delta, ledger.events, self.dp.sigma, self.plan.rate
            )
        return self._room[ledger]

    def _why_spared(self) -> str:
        if not self.dp.budget:
            return ""  # a budget of 0 was never meant to be spent
        return (
            f"another round would exceed privacy.dp.budget = {self.dp.budget:g} (ε = {self.spent():.3g} so "
            "far); from here on it trains on unrestricted triples alone"
        )

    def _say(self, what: str) -> None:
        """Once."""
        if what and what not in self._said:
            self._said.add(what)
            _log.warning("client %d: %s", self.client, what)

    def _digest(self, model: Model, settings: TrainingSettings, round: int, optimizer: State | None) -> str:
        """Everything that decides a release, besides the secret."""
        digest = hashlib.blake2b(digest_size=32)
        words = [str(round), settings.model_dump_json(), self.dp.model_dump_json(), repr(self.dp.bound)]
        words.append(model.settings.model_dump_json())
        arrays: Mapping[str, NDArray[Any]] = {
            **{f"table {name}": table for name, table in model.tables.items()},
            **{f"optimizer {name}": array for name, array in (optimizer or {}).items()},
            "triples": self.graph.train,
            "marks": self.graph.marks("train"),
        }
        for word in words:
            digest.update(len(word.encode()).to_bytes(8, "little") + word.encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _save(self) -> None:
        content = [
            {
                "digest": each.digest,
                "events": json.loads(PrivacyLedger(each.events).to_json()),
                "noise": each.noise,
            }
            for each in self.charges
        ]
        with staged(self.path, private=True) as path:
            path.write_text(json.dumps(content), encoding="utf-8")

    def _load(self) -> tuple[Charge, ...]:
        if not self.path.exists():
            return ()
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            return tuple(
                Charge(
                    str(each["digest"]),
                    PrivacyLedger.from_json(json.dumps(each["events"])).events,
                    str(each["noise"]),
                )
                for each in content
            )
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{self.path}: the privacy ledger cannot be read ({error}); what was spent is unknown, so "
                "start the run anew"
            ) from error
