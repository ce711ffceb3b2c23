"""Every source there is, by name. No other code knows a source's name.

Penstock's own sources stand in a table here. Others come from installed packages, by the entry-point group
`penstock.sources`: the entry's name is the source's, and its object a `SourceKind`. Each source is loaded
only when a pipeline file or a relay log names it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from penstock.errors import ConfigError
from penstock.sources.kind import SourceKind

GROUP = "penstock.sources"
DEFAULT = "mysql"
OWN = (EntryPoint("mysql", "penstock.sources.mysql.registration:MYSQL", GROUP),)
_BY_NAME = {entry.name: entry for entry in OWN}


def names() -> list[str]:
    """Names of all sources, Penstock's own first."""
    return list(dict.fromkeys([*_BY_NAME, *sorted(entry.name for entry in entry_points(group=GROUP))]))


def kind(name: str) -> SourceKind:
    """The source of this name. Raises `ConfigError` if there is none, or its package cannot be loaded."""
    entry = _BY_NAME.get(name) or next(iter(entry_points(group=GROUP, name=name)), None)
    if entry is None:
        raise ConfigError(f"{name} is not a kind of source.", hint=f"One of: {', '.join(names())}.")
    return _loaded(entry)


def _loaded(entry: EntryPoint) -> SourceKind:
    try:
        found = entry.load()
    except Exception as error:  # another package's code: whatever it raises
        raise ConfigError(
            f"The source {entry.name}, which {entry.value} registers, cannot be loaded: "
            f"{type(error).__name__}: {error}.",
            hint="Install its package again, in a version for this Penstock.",
        ) from error
    if not isinstance(found, SourceKind) or found.name != entry.name:
        raise ConfigError(
            f"The source {entry.name} is registered as {entry.value}, which is not a SourceKind of this "
            "name.",
            hint="Tell the authors of its package: docs/add-a-source.md says what to register.",
        )
    return found
