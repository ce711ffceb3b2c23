"""Sources, and the one place that knows which there are."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.schema import TypeOptions
from penstock.relaylog.reader import RelayLog
from penstock.sources.base import Source
from penstock.sources.statements import Statements
from penstock.sources.table_filter import TableFilter


def _mysql(config: PipelineConfig, *, foreign_keys: bool) -> Source:
    from penstock.sources.mysql.source import MySqlSource

    return MySqlSource(config, foreign_keys=foreign_keys)


SOURCES: dict[str, Callable[..., Source]] = {"mysql": _mysql}
"""By `source.type`."""


def open_source(config: PipelineConfig, *, foreign_keys: bool = False) -> Source:
    """The source of a pipeline; asks it nothing yet. The caller closes it. `foreign_keys`: definitions have
    those that cascade, where the log does not hold what they change."""
    make = SOURCES.get(config.source.type)
    if make is None:
        known = ", ".join(sorted(SOURCES))
        raise ConfigError(f"There is no source of type {config.source.type!r}.", hint=f"Known are: {known}.")
    return make(config, foreign_keys=foreign_keys)


def statements_without_source(captured: TableFilter, log: RelayLog, *, types: TypeOptions) -> Statements:
    """What the statements of a relay log mean as far as the log itself tells, for a reader that has nothing
    but the log."""
    from penstock.sources.mysql import source

    return source.statements_without_source(captured, log, types=types)
