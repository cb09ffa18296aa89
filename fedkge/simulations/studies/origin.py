"""Where a kept cell comes from: commit, date, code, command, versions, machine. What is not known is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fedkge.simulations.runs.environment import describe

__all__ = ["Origin"]


@dataclass(frozen=True)
class Origin:
    """What a cell was measured with, so that its number can be told from one of other code."""

    commit: str | None = None
    dirty: bool | None = None  # whether fedkge/ differed from the commit
    date: str | None = None
    code: str | None = None  # digest of the code that the numbers depend on
    command: str | None = None
    settings: str | None = None
    fedkge: str | None = None
    python: str | None = None
    packages: Mapping[str, str] | None = None
    machine: Mapping[str, Any] | None = None

    @classmethod
    def here(cls, code: str | None, command: str | None, settings: str | None) -> Origin:
        """Of what is measured now, on this machine."""
        now = describe()
        return cls(
            commit=now["commit"],
            dirty=now["dirty"],
            date=now["started"],
            code=code,
            command=command,
            settings=settings,
            fedkge=now["fedkge"],
            python=now["python"],
            packages=now["packages"],
            machine={name: now[name] for name in ("processor", "cores", "architecture")},
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Origin:
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def is_of(self, code: str | None) -> bool:
        """Whether it is known to be of this very code."""
        return self.code is not None and self.code == code

    @property
    def place(self) -> str:
        """The commit in short, with a plus where there was more than is in it."""
        return "unknown" if self.commit is None else self.commit[:7] + ("+" if self.dirty else "")

    @property
    def day(self) -> str | None:
        return None if self.date is None else self.date[:10]
