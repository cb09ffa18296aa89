"""One client's private training over a run: its secret, what it has spent, and when it must stop.

Every release is charged before it leaves the client, on disk, under a digest of everything that it was made
from, and with the key of its noise. Asked again for the same release, the client gives the same bits, at no
further cost; asked for another, it draws fresh noise from the operating system and pays. So a crash, a resume
or a server that repeats itself can neither cancel noise nor go unpaid. Simulations derive keys from the seed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.client.ledger_file import LedgerFile
from fedkge.client.models.model import Model
from fedkge.client.privacy.accountant import (
    Event,
    PrivacyLedger,
    PureEvent,
    Spent,
    epsilon,
    numbers_of,
    steps_within,
)
from fedkge.client.privacy.epoch_plan import Stretch
from fedkge.client.privacy.mechanism import mechanism_of
from fedkge.client.privacy.mode import DPMode
from fedkge.client.privacy.networks.release import Release
from fedkge.client.privacy.normals import SECRET_BYTES, derived
from fedkge.client.privacy.training import PrivateResult, train_privately
from fedkge.client.training.optimizers import State
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, SettingError
from fedkge.experiment import DPSettings, ModelSettings, TrainingSettings
from fedkge.storage import staged
from fedkge.strategy import Term

__all__ = ["PrivacyAccount", "kept_secret", "simulated_secret"]

_log = logging.getLogger(__name__)
_VERSION = str(sys.modules["fedkge"].__version__)  # by its name: the package itself knows all rooms


def kept_secret(path: Path) -> bytes:
    """32 bytes from the operating system, drawn once and kept for the run."""
    if not path.exists():
        with staged(path, private=True, durable=True) as partial:
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
    """One release of the model: what it was made from, what it cost, and how it was noised.

    A key that is not written down follows from the digest and the secret of a simulation.
    """

    digest: str
    events: tuple[Spent, ...]
    noise: str = "none"  # as long as it is under way
    key: str = ""
    run: str = ""
    unit: str = "triple"  # what its ε is per

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Charge:
        events = PrivacyLedger.from_json(json.dumps(content["events"])).events
        words = {key: str(content[key]) for key in ("digest", "noise", "key", "run")}
        return cls(events=events, unit=str(content.get("unit", "triple")), **words)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "events": json.loads(PrivacyLedger(self.events).to_json())}


class PrivacyAccount:
    """Trains privately, pays first, and leaves confidential triples alone once a budget is spent.

    Args:
        path: of the ledger; in a deployment, of all runs on these triples.
        secret: what the keys of a simulation come from; without effect in a deployment.
        run: the run that charges are made for, and that `privacy.dp.budget` is for.
        lifetime: the ε of all runs together, as the operator says.
    """

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
        run: str = "",
        lifetime: float | None = None,
    ) -> None:
        self.file = LedgerFile(path, durable=not simulated)
        self.run = run
        self.lifetime = lifetime
        self.client = client
        self.graph = graph
        self.secret = secret
        self.simulated = simulated
        mechanism = mechanism_of(dp)
        self.plan = mechanism.plan(graph, settings)
        self.delta = mechanism.delta(graph)
        self.epochs = settings.local_epochs  # in one round
        self._said: set[str] = set()
        self._say(mechanism.check_delta(graph))
        self.sigma = dp.sigma  # noise per sensitivity
        if dp.target_epsilon is not None:
            self.sigma = mechanism.sigma_within(
                dp.target_epsilon, self.plan, rounds * self.epochs, self.delta
            )
            budget = dp.target_epsilon if dp.budget is None else min(dp.budget, dp.target_epsilon)
            changes = (
                {"budget": budget} if mechanism.released_once else {"sigma": self.sigma, "budget": budget}
            )
            dp = dp.model_copy(update=changes)
        self.dp = dp
        self.mechanism = mechanism_of(dp)
        self.rounds = rounds
        self.charges = self._load()
        self._check_units()
        if self.delta == 0 and any(isinstance(event, Event) for event in self.ledger.events):
            self.delta = DPMode.default_delta(mechanism, graph)  # earlier runs need one
        self._room: dict[tuple[PrivacyLedger, float], int] = {}
        if self.charges and not self._affords(self._last_round()):
            self._say(self._why_spared(self._last_round()))

    def _check_units(self) -> None:
        """Refuse to add what single triples cost to what is per vertex; the other way round it holds."""
        units = {charge.unit for charge in self.charges if charge.events}
        if self.mechanism.unit == "vertex" and units - {"vertex"}:
            raise SettingError(
                f'privacy.dp.mode: "{self.dp.mode}" counts ε per vertex, and {self.file.path} has releases '
                f"whose ε is per {min(units - {'vertex'})}, which says nothing of all edges of a vertex; "
                "go on with a mode whose ε is per edge"
            )

    @property
    def ledger(self) -> PrivacyLedger:
        """All that these triples went through."""
        return _added(PrivacyLedger(), (event for charge in self.charges for event in charge.events))

    @property
    def ledger_of_run(self) -> PrivacyLedger:
        charges = (charge for charge in self.charges if charge.run == self.run)
        return _added(PrivacyLedger(), (event for charge in charges for event in charge.events))

    def stretch(self, round: int) -> Stretch:
        """The epochs of one round."""
        return Stretch((round - 1) * self.epochs, self.epochs, self.rounds * self.epochs)

    def cost(self, round: int, memory: State) -> tuple[Spent, ...]:
        """What a round spends, after what the mechanism keeps of earlier ones."""
        return self.mechanism.cost(self.plan, self.stretch(round), memory)

    def complete(self, round: int) -> bool:
        """Whether a run that ends with this round has trained on confidential triples as it should."""
        return self.mechanism.complete(self.plan, self.stretch(round))

    def train(
        self,
        model: Model,
        rng: np.random.Generator,
        settings: TrainingSettings,
        round: int,
        optimizer: State | None,
        term: Term | None = None,
        term_arrays: Mapping[str, NDArray[Any]] | None = None,
        memory: State | None = None,
    ) -> PrivateResult:
        """One round; it is charged on disk before it starts, so that a round that fails is not free.

        Args:
            term: what the strategy adds to local training.
            term_arrays: everything that decides the term, by name: rows as last broadcast, what was kept. A
                release with another term is another release, and must not get the same noise.
            memory: what the mechanism keeps of earlier rounds.
        """
        if term is not None and term_arrays is None:
            raise TypeError("a term needs `term_arrays`: what decides it decides the release")
        memory = memory or {}
        digest = (
            self._digest_of_network(model.settings)
            if isinstance(self.mechanism, Release)
            else self._digest(model, rng, settings, round, optimizer, term_arrays or {}, memory)
        )
        cost = self.cost(round, memory)
        charge = self._charged(digest, cost) if cost else Charge(digest, ())
        result = train_privately(
            model,
            self.graph,
            rng,
            settings,
            self.dp,
            self._key(charge or Charge(digest, ())),
            optimizer=optimizer,
            spare=charge is None,
            term=term,
            stretch=self.stretch(round),
            memory=memory,
        )
        self._say(result.why if charge else self._why_spared(cost))
        if charge is not None and charge.events and charge.noise == "none":
            self._write(replace(charge, noise=result.noise))
        return result

    def _charged(self, digest: str, cost: tuple[Spent, ...]) -> Charge | None:
        """The charge of a release, which is made now if there is none; None: the budget does not allow it."""
        with self.file.held():
            self.charges = self._load()  # another run, or another process, may have paid meanwhile
            known = next((charge for charge in self.charges if charge.digest == digest), None)
            if known is not None or not self._affords(cost):
                return known
            key = "" if self.simulated else os.urandom(SECRET_BYTES).hex()
            charge = Charge(digest, cost, key=key, run=self.run, unit=self.mechanism.unit)
            self._save((*self.charges, charge))
            return charge

    def _write(self, charge: Charge) -> None:
        """Take the place of the charge with the same digest."""
        with self.file.held():
            self._save(tuple(charge if other.digest == charge.digest else other for other in self._load()))

    def _key(self, charge: Charge) -> bytes:
        """What the noise of a release comes from."""
        if charge.key:
            return bytes.fromhex(charge.key)
        if charge.events and not self.simulated:
            raise DataError(
                f"{self.file.path}: a release is charged and its key is gone; other noise for it would "
                "cancel: restore the file from before it was changed"
            )
        return derived(self.secret, "round", bytes.fromhex(charge.digest))

    def spent(self) -> float:
        """ε so far, by the mechanism's accountant."""
        return epsilon(self.ledger.events, self.delta, self.mechanism.accountant)

    def report(self) -> dict[str, Any]:
        """What anybody may know of it."""
        events, last = self.ledger.events, self.charges[-1] if self.charges else None
        return {
            "mode": self.dp.mode,
            "standing": self.mechanism.standing(self.simulated),
            "outside": self.mechanism.outside,
            "adjacency": self.mechanism.adjacency,
            "epsilon": self.spent(),
            "epsilon_rdp": epsilon(events, self.delta, "rdp"),
            "delta": self.delta,
            "budget": self.dp.budget,
            "budget_spent": not self._affords(self._last_round()),
            "events": [numbers_of(event) for event in events],
            "noise": last.noise if last else "none",
            "clip": self.mechanism.bound,
            "simulated_secret": self.simulated,
            "validation": self.dp.validation,
        }

    def _last_round(self) -> tuple[Spent, ...]:
        """What one more round of private training costs, were it the last of the run."""
        if self.mechanism.released_once and any(charge.run == self.run for charge in self.charges):
            return ()
        return tuple(self.cost(self.rounds, {})[-1:])

    def _affords(self, cost: tuple[Spent, ...]) -> bool:
        """Whether a round of that cost stays within the budgets of the run and of these triples."""
        own, all_runs = self.ledger_of_run, self.ledger
        return self._within(own, cost, self.dp.budget) and self._within(all_runs, cost, self.lifetime)

    def _within(self, ledger: PrivacyLedger, cost: tuple[Spent, ...], budget: float | None) -> bool:
        if budget is None or not cost:
            return True
        if budget == 0:
            return False
        following = _added(ledger, cost)
        accountant = self.mechanism.accountant
        if accountant == "prv" and epsilon(following.events, self.delta, "rdp") <= budget:  # never below PRV
            return True
        event = cost[0]
        if accountant != "prv" or len(cost) != 1 or isinstance(event, PureEvent):
            return epsilon(following.events, self.delta, accountant) <= budget
        earlier = [each for each in ledger.events if isinstance(each, Event)]
        kinds = {(each.sigma, each.rate) for each in earlier}
        if len(earlier) == len(ledger.events) and kinds <= {(event.sigma, event.rate)}:
            return following.steps <= self._steps_within(PrivacyLedger(), event, budget)
        return event.steps <= self._steps_within(ledger, event, budget)

    def _steps_within(self, ledger: PrivacyLedger, event: Event, budget: float) -> int:
        key = ledger, budget
        if key not in self._room:
            self._room[key] = steps_within(budget, self.delta, ledger.events, event.sigma, event.rate)
        return self._room[key]

    def _why_spared(self, cost: tuple[Spent, ...]) -> str:
        if self.dp.budget == 0:
            return ""  # a budget of 0 was never meant to be spent
        limit = f"privacy.dp.budget = {self.dp.budget or 0:g}"
        if self._within(self.ledger_of_run, cost, self.dp.budget):
            limit = (
                f"the lifetime budget of these triples, epsilon = {self.lifetime:g} in the client's policy"
            )
        return (
            f"another round would exceed {limit} (ε = {self.spent():.3g} so far); from here on it trains on "
            "unrestricted triples alone"
        )

    def _say(self, what: str) -> None:
        """Once."""
        if what and what not in self._said:
            self._said.add(what)
            _log.warning("client %d: %s", self.client, what)

    def _digest(
        self,
        model: Model,
        rng: np.random.Generator,
        settings: TrainingSettings,
        round: int,
        optimizer: State | None,
        term_arrays: Mapping[str, NDArray[Any]],
        memory: State,
    ) -> str:
        """Everything that decides a release, besides the key of its noise."""
        words = [repr(self.stretch(round)), settings.model_dump_json(), _json(self.dp)]
        words.append(_json(model.settings))
        words.append(json.dumps(rng.bit_generator.state, default=str))
        if not self.simulated:  # another version may round in another way
            words.append(_VERSION)
        arrays: Mapping[str, NDArray[Any]] = {
            **{f"table {name}": table for name, table in model.parameters.items()},
            **{f"optimizer {name}": array for name, array in (optimizer or {}).items()},
            **{f"term {name}": array for name, array in term_arrays.items()},
            **{f"memory {name}": array for name, array in memory.items()},
            **{f"buffer {name}": buffer.numpy() for name, buffer in model.buffers.items()},
            "triples": self.graph.train,
            "marks": self.graph.marks("train"),
        }
        return _digest_of(words, arrays)

    def _digest_of_network(self, model: ModelSettings) -> str:
        """Everything that decides the one release of a network, besides the key of its noise."""
        assert isinstance(self.mechanism, Release)
        words = ["network", *self.mechanism.words(model, self.graph)]
        if not self.simulated:
            words.append(_VERSION)
        return _digest_of(words, {"edges": self.graph.train})

    def _save(self, charges: tuple[Charge, ...]) -> None:
        self.file.write([charge.to_json() for charge in charges])
        self.charges = charges

    def _load(self) -> tuple[Charge, ...]:
        try:
            return tuple(Charge.of(content) for content in self.file.read())
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{self.file.path}: the privacy ledger cannot be read ({error}); what was spent is unknown, "
                "so restore it; in a simulation, start the run anew"
            ) from error


def _added(ledger: PrivacyLedger, events: Iterable[Spent]) -> PrivacyLedger:
    for event in events:
        ledger = ledger.add(event)
    return ledger


def _digest_of(words: Iterable[str], arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    for word in words:
        digest.update(len(word.encode()).to_bytes(8, "little") + word.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _json(settings: DPSettings | ModelSettings) -> str:
    """Settings as they were before they had options, where they have none: the release is the same."""
    return settings.model_dump_json(exclude=None if settings.options else {"options"})
