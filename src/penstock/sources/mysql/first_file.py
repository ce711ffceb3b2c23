"""MySQL's part of the pipeline file that `penstock init` writes."""

from __future__ import annotations

from contextlib import closing

from penstock.model.schema import TableId
from penstock.sources.first_file import FirstFile
from penstock.sources.mysql.catalog import list_tables
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.faults import answers_of
from penstock.sources.mysql.options import MySqlOptions


def _tables(options: MySqlOptions) -> list[TableId]:
    with answers_of(options), closing(connect(options)) as connection:
        return list_tables(connection)


FIRST_FILE = FirstFile(
    server="MySQL or MariaDB server", port=3306, schemas="database",
    account=("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO ...",),
    hints=(
        "tls: verify_identity         # encrypt, and check the server's certificate (with tls_ca: FILE)",
    ),
    replicas="replicas", tables=_tables,
)  # fmt: skip
