"""What a client's operator accepts: a file beside its keys, against which every run is checked.

The server asks, and whoever starts a run writes its settings; what this client does is decided here.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedkge.client.privacy.mechanism import mechanism_of
from fedkge.crypto import Roster
from fedkge.crypto.union.table import MAX_CELLS
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import DataError, RefusedError, SettingError
from fedkge.experiment import DPSettings, Experiment, PrivacySettings, Settings
from fedkge.strategy import shared_by

__all__ = ["POLICY", "Policy"]

POLICY = "policy.toml"
ANY = "any"
GUARANTEED = "guaranteed"

Union = Literal["private", "oprf", "hashed", "plain"]


class Policy(Settings):
    """What one client takes part in; a run beyond it is refused with the line that forbids it."""

    section = "policy"
    unions: tuple[Union, ...] = Field(
        default=("private", "oprf"),
        strict=False,
        description='how labels may get their rows; "hashed" and "plain" show them to the server',
    )
    clients: int = Field(default=3, ge=3, description="the smallest number of clients in the roster")
    colluders: int = Field(
        default=1,
        ge=0,
        description="clients c that may help the server: 2 t > n + c must hold, and min_holders ≥ c + 2",
    )
    threshold: int = Field(default=3, ge=3, description="the smallest number of clients that a sum is over")
    min_holders: int = Field(
        default=3, ge=1, description="the smallest number of clients that hold a row which leaves this one"
    )
    query_budget: int = Field(
        default=16384, ge=1, description='the most names that a client may look up here, with union = "oprf"'
    )
    table_rows: int = Field(default=2**20, ge=1, description="the most rows of a shared table")
    max_cells: int = Field(
        default=2**21,
        ge=1,
        le=MAX_CELLS,
        description="the most cells, of 24 bytes, of a table that this client fills for a union",
    )
    rounds: int = Field(default=1000, ge=1, description="the most rounds of a run")
    message_mb: int = Field(default=512, ge=1, description="the largest message from the server, in MB")
    strategies: tuple[str, ...] = Field(
        default=(ANY,), strict=False, description='names of strategies, such as ["FedE", "FedR"], or ["any"]'
    )
    share: tuple[str, ...] = Field(
        default=(ANY,),
        strict=False,
        description='what may travel beside the rows of a strategy, such as ["weights"]; "any" counts as '
        "nothing where strategies are named",
    )
    own_scores: bool = Field(
        default=False,
        description="whether a strategy that shares nothing may show the server this client's own scores",
    )
    confidential: str = Field(
        default=GUARANTEED,
        description='what confidential triples need: "guaranteed" (a DP mode whose ε is), a mode, or "none"',
    )
    sigma: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="the least noise of that mode")
    epsilon: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="the ε of all runs on the same confidential triples together; left out: any",
    )
    delta: float | None = Field(
        default=None, gt=0, lt=1, description="the largest δ; left out: below 1 / confidential triples"
    )
    roster: str = Field(
        default="", description="as `sha256sum roster.txt` prints; left empty: whatever it says"
    )
    runs: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="the only runs to take part in; left empty: one, and those of 'fedkge keys allow'",
    )

    @classmethod
    def load(cls, folder: Path) -> Policy:
        """The policy beside a client's keys; without a file, the defaults."""
        path = folder / POLICY
        try:
            return cls(**tomllib.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, SettingError) as error:
            raise DataError(f"{path}: {error}; mend that line of the policy") from None

    @classmethod
    def simulated(cls) -> Policy:
        """Whatever the experiment says: all clients of a simulation are one party."""
        return cls(
            unions=("private", "oprf", "hashed", "plain"),
            colluders=0,
            min_holders=1,
            query_budget=2**31,
            table_rows=2**31,
            max_cells=MAX_CELLS,
            rounds=2**31,
            message_mb=2**20,
            own_scores=True,
            confidential="none",
        )

    def to_toml(self) -> str:
        """A file that says what each line means."""
        lines = ["# What this client takes part in, whoever asks; docs/policy.md explains it.\n"]
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            line = f"# {key} = 1.0" if value is None else f"{key} = {_toml(value)}"
            lines.append(f"# {field.description}\n{line}\n")
        return "\n".join(lines)

    # What is checked, and when.

    def check_experiment(self, experiment: Experiment) -> None:
        """Before anything of a run is done."""
        federation = experiment.federation
        accepted = self.strategies == (ANY,) or federation.strategy in self.strategies
        self._require(accepted, "strategies", f"federation.strategy = {_toml(federation.strategy)}")
        accepted = self.share == self.strategies == (ANY,) or set(federation.share) <= set(self.share)
        self._require(accepted, "share", f"federation.share = {_toml(federation.share)}")
        self._require(federation.rounds <= self.rounds, "rounds", f"federation.rounds = {federation.rounds}")
        if experiment.privacy.secure_aggregation:
            shares = bool(shared_by(federation))
            self._require(
                shares or self.own_scores,
                "own_scores",
                f"federation.strategy = {_toml(federation.strategy)}, which shares nothing",
            )

    def check_data(self, graph: KnowledgeGraph, dp: DPSettings) -> None:
        """Before anything is trained; `dp` is how this client would."""
        count = int(graph.marks("train").sum())
        marked = any(graph.marks(split).any() for split in ("train", "valid", "test"))
        if not marked or self.confidential == "none":
            return
        accepted = dp.mode == self.confidential
        if self.confidential == GUARANTEED:
            accepted = dp.mode != "off" and mechanism_of(dp).guaranteed
        self._require(accepted, "confidential", f"privacy.dp.mode = {_toml(dp.mode)}")
        self._require(
            dp.validation == "unrestricted",
            "confidential",
            'privacy.dp.validation = "all", which ranks confidential triples without noise',
        )
        if dp.target_epsilon is None:
            self._require(dp.sigma >= self.sigma, "sigma", f"privacy.dp.sigma = {dp.sigma:g}")
        if self.epsilon is not None:
            limits = [limit for limit in (dp.budget, dp.target_epsilon) if limit is not None]
            self._require(
                any(limit <= self.epsilon for limit in limits),
                "epsilon",
                f"privacy.dp.budget = {dp.budget} and target_epsilon = {dp.target_epsilon}",
            )
        most = self.delta or 1 / max(count, 1)
        self._require(dp.delta is None or dp.delta <= most, "delta", f"privacy.dp.delta = {dp.delta}")

    def check_noise(self, sigma: float) -> None:
        """Before anything is trained; σ may have been solved for a target."""
        self._require(sigma >= self.sigma, "sigma", f"σ = {sigma:.3g} for its privacy.dp.target_epsilon")

    def check_sums(self, privacy: PrivacySettings, roster: Roster) -> None:
        """Before a key of this client is used."""
        num_clients = len(roster)
        threshold = privacy.quorum(num_clients)
        self._require(privacy.union in self.unions, "unions", f"privacy.union = {_toml(privacy.union)}")
        self._require(num_clients >= self.clients, "clients", f"{num_clients} clients")
        self._require(threshold >= self.threshold, "threshold", f"privacy.threshold = {threshold}")
        self._require(
            2 * threshold > num_clients + self.colluders,
            "colluders",
            f"privacy.threshold = {threshold} of {num_clients} clients",
        )
        covers = privacy.min_holders >= self.min_holders
        self._require(covers, "min_holders", f"privacy.min_holders = {privacy.min_holders}")
        covers = privacy.min_holders >= self.colluders + 2 or not self.colluders
        self._require(covers, "colluders", f"privacy.min_holders = {privacy.min_holders}")
        if privacy.union == "oprf":
            budget = privacy.query_budget
            self._require(budget <= self.query_budget, "query_budget", f"privacy.query_budget = {budget}")
        if self.roster:
            digest = hashlib.sha256(roster.to_text().encode()).hexdigest()
            self._require(digest == self.roster.lower(), "roster", f"a roster whose SHA-256 is {digest}")

    def check_table(self, name: str, num_rows: int) -> None:
        """Before rows are made for a table."""
        self._require(num_rows <= self.table_rows, "table_rows", f"{num_rows} rows of {name}")

    def check_message(self, num_bytes: int) -> None:
        """Before a message is read."""
        self._require(num_bytes <= self.message_mb * 2**20, "message_mb", f"a message of {num_bytes} bytes")

    def check_run(self, run: str, earlier: Sequence[str], allowed: Sequence[str]) -> None:
        """Before the first answer in a run; `earlier` are those this identity took part in."""
        if run in allowed:
            return
        if self.runs:
            self._require(run in self.runs, "runs", f"the run '{run}'")
        elif earlier and run not in earlier:
            raise RefusedError(
                f"this identity took part in another run than '{run}': sums over the same data and other "
                f"members can be subtracted. If its operator accepts that: fedkge keys allow FOLDER {run}"
            )

    def _require(self, accepted: bool, key: str, asked: str) -> None:
        if not accepted:
            raise RefusedError(
                f"the client's policy has `{key} = {_toml(getattr(self, key))}`, and the run has {asked}; "
                f"change the run, or ask the client's operator to change {POLICY}"
            )


def _toml(value: Any) -> str:
    """Text, numbers, truth values and lists of them are in TOML as in JSON."""
    return json.dumps(value, ensure_ascii=False)
