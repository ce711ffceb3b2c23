"""What the statements of the log mean.

The core writes them (`core/src/debezium_log/table.rs`), in MySQL's SQL. So they are read by the same grammar,
which keeps values of existing rows in mind (defaults of added columns, changed types). They are complete:
nothing is asked of a server.
"""

from __future__ import annotations

from penstock.model.schema import TypeOptions
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql.log_statements import statements_without_source
from penstock.sources.mysql.omitted_columns import omitted_values as omitted_values
from penstock.sources.mysql.statements import MySqlStatements
from penstock.sources.table_filter import TableFilter


def statements_of(captured: TableFilter, log: RelayLog, *, types: TypeOptions) -> MySqlStatements:
    return statements_without_source(captured, log, types=types, parks_cascades=False)
