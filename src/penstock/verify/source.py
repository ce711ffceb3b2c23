"""The source's side: one read view between two marks, and what the server computes inside it.

`low` is `@@gtid_executed` read before the view opens: whatever it holds is visible. `high` is the end of the
binary log read after: whatever is visible is at or before it. (The other way round fails: a position moves
before the engine makes rows visible, and a transaction is visible before it is in `gtid_executed`.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import SSCursor

from penstock.errors import ConfigError, SourceError, TableError
from penstock.model.offset import SourcePosition
from penstock.model.schema import TableSchema, TypeOptions, quote
from penstock.verify import sql
from penstock.verify.plan import Buckets, BucketSum, KeyExtent, integer_key, key_columns

_SESSION = (
    "SET NAMES utf8mb4",
    "SET SESSION sql_mode = '', time_zone = '+00:00', sql_select_limit = DEFAULT, net_write_timeout = 600",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_ER_PACKET_OVERFLOW = 1301
_ER_SYNTAX = 1064
_ER_NO_SUCH_TABLE = 1146


@dataclass
class ReadView:
    """What the source held at one moment. Ends with the session, or with the next view in it."""

    connection: Connection[Any]
    low: str
    high: SourcePosition
    server_uuid: str

    def extent(self, schema: TableSchema) -> KeyExtent:
        name = integer_key(schema)
        bounds = f"MIN({quote(name)}), MAX({quote(name)})" if name is not None else "0, 0"
        row = self._rows(f"SELECT {bounds}, COUNT(*) FROM {schema.table.quoted}", schema)[0]
        return KeyExtent(int(row[0] or 0), int(row[1] or 0), int(row[2]))

    def sums(self, schema: TableSchema, buckets: Buckets, types: TypeOptions) -> dict[int, BucketSum]:
        """Rows and hash sums per bucket; computed by the server in one pass over the table."""
        hashed = sql.row_hash(schema.columns, types, key=schema.key)
        query = (
            f"SELECT {buckets.sql()} AS bucket, COUNT(*), SUM({hashed})"
            f" FROM {schema.table.quoted} GROUP BY bucket ORDER BY NULL"
        )
        rows = self._rows(query, schema)
        self._refuse_cut_text(schema)
        return {int(bucket): BucketSum(int(count), int(total)) for bucket, count, total in rows}

    def rows(
        self, schema: TableSchema, buckets: Buckets, numbers: Collection[int], types: TypeOptions
    ) -> dict[str, int]:
        """The key text and hash of every row in these buckets."""
        hashed = sql.row_hash(schema.columns, types, key=schema.key)
        query = (
            f"SELECT {sql.key_text(key_columns(schema))}, {hashed}"
            f" FROM {schema.table.quoted} WHERE {buckets.where(numbers)}"
        )
        rows = self._rows(query, schema)
        self._refuse_cut_text(schema)
        return {_string(key): int(value) for key, value in rows}

    def _rows(self, query: str, schema: TableSchema) -> Sequence[tuple[Any, ...]]:
        with self.connection.cursor(SSCursor) as cursor:
            try:
                cursor.execute(query)
                return list(cursor.fetchall())
            except pymysql.err.ProgrammingError as error:
                if error.args[0] == _ER_NO_SUCH_TABLE:
                    raise TableError(
                        f"Table {schema.table} does not exist at the source.", table=str(schema.table)
                    ) from error
                raise

    def _refuse_cut_text(self, schema: TableSchema) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute("SHOW WARNINGS")
            if any(row[1] == _ER_PACKET_OVERFLOW for row in cursor.fetchall()):
                raise TableError(
                    f"Rows of {schema.table} are longer than the source's max_allowed_packet, so the server"
                    " cannot hash them.",
                    hint="SET GLOBAL max_allowed_packet to at least twice the longest row, and try again.",
                    table=str(schema.table),
                )


@contextmanager
def read_view(connection: Connection[Any]) -> Iterator[ReadView]:
    """Opens a read view in this session and closes it afterwards. Takes no locks.

    Raises `ConfigError` when the source has no GTIDs or no binary log: then nothing says what a view holds.
    """
    with connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)
        low, uuid = _identity(cursor)
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        high = _end_of_log(cursor)
        if _identity(cursor)[1] != uuid:
            raise SourceError("Another server answered between the two marks of a read view.")
    try:
        yield ReadView(connection, low, high, uuid)
    finally:
        connection.rollback()


def _identity(cursor: Any) -> tuple[str, str]:
    cursor.execute("SELECT @@GLOBAL.gtid_executed, @@server_uuid, @@GLOBAL.gtid_mode")
    executed, uuid, mode = cursor.fetchone()
    if str(mode).upper() != "ON":
        raise ConfigError(
            f"The source runs with gtid_mode={mode}; without GTIDs nothing tells which transactions a read"
            " view holds.",
            hint="Turn gtid_mode ON (it can be done step by step while the server runs).",
        )
    return str(executed).replace("\n", ""), str(uuid)


def _end_of_log(cursor: Any) -> SourcePosition:
    try:
        cursor.execute("SHOW MASTER STATUS")
    except pymysql.err.ProgrammingError as error:
        if error.args[0] != _ER_SYNTAX:
            raise
        cursor.execute("SHOW BINARY LOG STATUS")  # 8.4 and later
    row = cursor.fetchone()
    if row is None:
        raise ConfigError("The source writes no binary log.", hint="Start it with log_bin.")
    return SourcePosition(str(row[0]), int(row[1]))


def _string(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
