"""PostgreSQL's part of the pipeline file that `penstock init` writes."""

from __future__ import annotations

from contextlib import closing

from penstock.model.schema import TableId
from penstock.sources.first_file import FirstFile
from penstock.sources.postgresql.catalog import read_tables
from penstock.sources.postgresql.connection import connect, explained
from penstock.sources.postgresql.options import PostgreSqlOptions


def _tables(options: PostgreSqlOptions) -> list[TableId]:
    with explained(options), closing(connect(options)) as connection:
        return sorted(one.table for one in read_tables(connection, "") if one.is_logged)


FIRST_FILE = FirstFile(
    server="PostgreSQL server", port=5432, schemas="schema", one_database=True,
    account=(
        "CREATE ROLE … LOGIN REPLICATION PASSWORD '…';",
        "GRANT USAGE ON SCHEMA … TO …;",
        "GRANT SELECT ON ALL TABLES IN SCHEMA … TO …;",
        "ALTER SYSTEM SET wal_level = logical;    -- takes effect with a restart",
    ),
    hints=(
        "tls: verify-full             # encrypt, and check the server's certificate (with tls_ca: FILE)",
        "host: [db1:5432, db2:5432]   # a primary and its standbys: goes on when a standby is promoted",
    ),
    replicas="hot standbys", tables=_tables,
)  # fmt: skip
