"""What the statements of a relay log mean, for readers that have only the log."""

from __future__ import annotations

from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TypeOptions
from penstock.relaylog.full_statements import in_full
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.unprotected import unprotected_statements
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.statements import MySqlStatements
from penstock.sources.table_filter import TableFilter


def statements_without_source(
    captured: TableFilter, log: RelayLog, *, types: TypeOptions, parks_cascades: bool = True
) -> MySqlStatements:
    """The `Statements` of a log, without a connection to its source. `parks_cascades`: see
    `sources.base.Source.statements`."""
    return MySqlStatements(
        captured,
        lambda table: None,
        Server,
        earlier=lambda offset: unprotected_statements(log, LogRange(Offset(0), offset)),
        in_full=lambda statement: in_full(log, statement),
        types=types,
        parks_cascades=parks_cascades,
    )
