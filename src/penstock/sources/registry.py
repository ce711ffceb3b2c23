"""All sources, by name. No other code knows a source's name.

Penstock's own sources are in a table in this module. Others come from installed packages, by the entry-point
group `penstock.sources`: the entry's name is the source's, and its object a `SourceKind`. Each source is
loaded only when a pipeline file or a relay log names it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint

from penstock import plugins
from penstock.sources.kind import SourceKind

GROUP = "penstock.sources"
DEFAULT = "mysql"
OWN = (
    EntryPoint("mysql", "penstock.sources.mysql.registration:MYSQL", GROUP),
    EntryPoint("postgresql", "penstock.sources.postgresql.registration:POSTGRESQL", GROUP),
    EntryPoint("debezium", "penstock.sources.debezium.registration:DEBEZIUM", GROUP),
)
_BY_NAME = {entry.name: entry for entry in OWN}
OF_FORMAT = {"mysql-binlog": "mysql", "pgoutput": "postgresql"}
"""The source whose server writes logs of a segment format. Logs of others need no source to be read."""


def names() -> list[str]:
    """Names of all sources, Penstock's own first."""
    return plugins.names(_BY_NAME, GROUP)


def of_format(segment_format: str) -> SourceKind | None:
    """The source that knows what is in logs of a segment format. None: they say all of it themselves."""
    name = OF_FORMAT.get(segment_format)
    return None if name is None else kind(name)


def kind(name: str) -> SourceKind:
    """The source of this name. Raises `ConfigError` if there is none, or its package cannot be loaded."""
    entry = _BY_NAME.get(name) or plugins.found(name, _BY_NAME, GROUP, "source")
    return plugins.loaded(entry, SourceKind, "source")
