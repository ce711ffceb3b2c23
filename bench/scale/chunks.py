"""Ten thousand chunks of one table, found and made durable in the pipeline's state.

Two tables of a million rows: one with an integer key, which is divided by the optimizer's estimates, and one
with a key of two columns, whose index is walked. What it takes depends on the number of chunks alone in the
first case; in the second the server reads the index once, so there it also depends on the rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.lines import Line
from bench.place import scratch
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.model.table import Reading, TableState
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.session import SourceSession
from penstock.state import StateStore
from penstock.testing.servers import MySqlServer

PART = "chunks"
ROWS = 1_000_000
SECONDS_GOAL = 10.0
FOUND_SECONDS = 0.5
"""As the pipeline does: chunks that were found become durable so often."""
_FILL = """INSERT INTO {table} WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n
WHERE i < {last}) SELECT {values} FROM n"""
_TABLES = {
    "integer key, divided": ("divided", "id INT PRIMARY KEY, v CHAR(60)", "i, 'a value'"),
    "composite key, walked": (
        "walked", "a VARCHAR(20), b INT, v CHAR(60), PRIMARY KEY (a, b)",
        "CONCAT('customer-', i DIV 10), i, 'a value'",
    ),
}  # fmt: skip


def run(chunks: int, rows: int = ROWS) -> Iterator[Line]:
    with MySqlServer({"innodb_buffer_pool_size": "512M"}) as server, scratch() as folder:
        server.execute("CREATE DATABASE big")
        for what, (table, columns, values) in _TABLES.items():
            _fill(server, f"big.{table}", columns, values, rows)
            found, seconds = _find(server, folder / table, TableId("big", table), rows // chunks)
            yield Line(PART, f"{found:,} chunks of {rows:,} rows ({what}) found and durable", seconds, "s",
                       SECONDS_GOAL)  # fmt: skip


def _fill(server: MySqlServer, table: str, columns: str, values: str, rows: int) -> None:
    step = 100_000
    server.execute(f"CREATE TABLE {table} ({columns})")
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET cte_max_recursion_depth = {step + 1}, sql_log_bin = 0")
        for first in range(1, rows + 1, step):
            last = min(first + step - 1, rows)
            cursor.execute(_FILL.format(table=table, first=first, last=last, values=values))
        cursor.execute(f"ANALYZE NO_WRITE_TO_BINLOG TABLE {table}")


def _find(server: MySqlServer, folder: Path, table: TableId, chunk_rows: int) -> tuple[int, float]:
    session = SourceSession(
        MySqlOptions(host=server.host, port=server.port, user=server.user, password=server.password)
    )
    state = StateStore(folder)
    try:
        schema = session.read_table(table)
        assert schema is not None
        known = TableState(schema, Offset(4), Reading(splitting=True))
        state.put_table(known)
        began = since = time.monotonic()
        found: list[Chunk] = []
        for chunk in session.find(schema, chunk_rows, "", sized=lambda rows: None):
            found.append(chunk)
            if chunk.upper is None or time.monotonic() - since > FOUND_SECONDS:
                assert state.add_chunks(known, found)
                found, since = [], time.monotonic()
        return sum(state.chunk_counts(table).values()), time.monotonic() - began
    finally:
        state.close()
        session.close()
