"""Registries: classes by name, our own beside those of other installed packages.

A package adds to a registry by an entry point of the registry's group, such as

    [project.entry-points."fedkge.models"]
    SimplE = "my_package.models:SimplE"

and so the name is known to every process: this one, Ray's workers, Flower's nodes. In a script,
`MODELS["SimplE"] = SimplE` is known to that script's process alone. A package cannot take one of our names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from fedkge.errors import InputError, SettingError, UnknownNameError

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """Names to classes or functions; what is given as "module:name" is imported when it is first asked for.

    Args:
        kind: what the names stand for, in one word, for errors: "model".
        group: the entry points that other packages add to: "fedkge.models".
        builtin: fedkge's own, each itself or as "module:name".
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, T | str]) -> None:
        self.kind = kind
        self.group = group
        self._builtin: dict[str, T | str] = dict(builtin)
        self._local: dict[str, T] = {}  # added by this process

    def __getitem__(self, name: str) -> T:
        return self._local[name] if name in self._local else self._shared(name)

    def _shared(self, name: str) -> T:
        """What a name stands for in every process."""
        if name in self._builtin:
            entry = self._builtin[name]
            if isinstance(entry, str):
                entry = self._builtin[name] = _imported(entry)
            return entry
        if name in _installed(self.group):
            return self._loaded(*_installed(self.group)[name])
        raise UnknownNameError(self.kind, name, self)

    def __setitem__(self, name: str, value: T) -> None:
        """Add one for this process alone; an entry point adds it for all."""
        self._local[name] = value

    def __delitem__(self, name: str) -> None:
        del self._local[name]

    def get(self, name: str, default: object = None) -> T | Any:
        if name not in self:  # an unknown name raises UnknownNameError, which is no KeyError
            return default
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._local or name in self._builtin or name in _installed(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._builtin, *sorted(_installed(self.group)), *self._local]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def require_everywhere(self, name: str) -> T:
        """The value of a name that other processes must find too, for runs that have some."""
        value = self[name]
        known = name in self._builtin or name in _installed(self.group)
        if not known or self._shared(name) is not value:
            raise SettingError(
                f"{self.kind} '{name}' exists in this process alone, and workers of Ray or Flower would not "
                f'find it; install it with an entry point of group "{self.group}", or use --engine inline'
            )
        return value

    def _loaded(self, entry: EntryPoint, *others: EntryPoint) -> T:
        package = _package(entry)
        if others:
            packages = " and ".join(map(_package, (entry, *others)))
            raise InputError(f"{self.kind} '{entry.name}' comes from {packages}; uninstall all but one")
        try:
            return cast(T, entry.load())
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"{self.kind} '{entry.name}' of {package} cannot be imported from {entry.value} "
                f"({reason}); mend or uninstall {package}"
            ) from error


def _imported(target: str) -> T:  # type: ignore[type-var]
    module, _, name = target.partition(":")
    return cast(T, getattr(import_module(module), name))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an installed package"


@cache
def _installed(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of a group by name; several where packages disagree on what a name is."""
    entries: dict[str, dict[str, EntryPoint]] = {}
    for entry in entry_points(group=group):
        entries.setdefault(entry.name, {}).setdefault(entry.value, entry)
    return {name: tuple(targets.values()) for name, targets in entries.items()}
