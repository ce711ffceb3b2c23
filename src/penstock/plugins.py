"""Sources and sinks that installed packages register by an entry point."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from penstock.errors import ConfigError

Kind = TypeVar("Kind")


def names(own: Iterable[str], group: str) -> list[str]:
    """The names of Penstock's own kinds, then those of the group's entry points in alphabetical order."""
    return list(dict.fromkeys([*own, *sorted(entry.name for entry in entry_points(group=group))]))


def found(name: str, own: Iterable[str], group: str, noun: str) -> EntryPoint:
    """The group's entry point with this name. `own`: Penstock's own names, for the hint. `noun`: `sink` or
    `source`. Raises `ConfigError` if there is none."""
    entry = next(iter(entry_points(group=group, name=name)), None)
    if entry is None:
        known = ", ".join(names(own, group))
        raise ConfigError(f"{name} is not a kind of {noun}.", hint=f"One of: {known}.")
    return entry


def loaded(entry: EntryPoint, kind: type[Kind], noun: str) -> Kind:
    """The object of an entry point. Raises `ConfigError` if it cannot be loaded, or is not a `kind` with the
    entry's name."""
    try:
        registered = entry.load()
    except Exception as error:  # another package's code: whatever it raises
        raise ConfigError(
            f"The {noun} {entry.name}, which {entry.value} registers, cannot be loaded: "
            f"{type(error).__name__}: {error}.",
            hint="Install its package again, in a version for this Penstock.",
        ) from error
    if not isinstance(registered, kind) or getattr(registered, "name", None) != entry.name:
        raise ConfigError(
            f"The {noun} {entry.name} is registered as {entry.value}, which is not a {kind.__name__} of this "
            "name.",
            hint=f"Tell the authors of its package: docs/add-a-{noun}.md says what to register.",
        )
    return registered
