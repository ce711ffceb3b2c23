"""`sources.read_view.ReadView`: a read view between two watermarks, and what the server computes in it.

The watermarks are those of a snapshot's chunk (`sources/mysql/snapshot/watermark.py`): everything up to the
low watermark is visible, and everything visible is at or before the high one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.connections import Connection

from penstock import _core
from penstock.errors import TableError
from penstock.model.buckets import Buckets, BucketSum, KeyExtent, integer_key
from penstock.model.chunk import Chunk
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.sources.mysql.faults import fitting
from penstock.sources.mysql.identifiers import quote, quoted
from penstock.sources.mysql.snapshot.reader import execute, select_sql
from penstock.sources.mysql.snapshot.watermark import watermarks_of
from penstock.sources.mysql.snapshot.window import MySqlWindow
from penstock.sources.mysql.verify import sql

_SESSION = (
    "SET NAMES utf8mb4",
    "SET SESSION sql_mode = '', time_zone = '+00:00', net_write_timeout = 600",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_ER_PACKET_OVERFLOW = 1301
_ER_NO_SUCH_TABLE = 1146
_LOST = (1053, 1317, 1927, 2006, 2013, 2014, 2027, 2055, 3024, 4031)
"""Error codes for a shutdown, a killed or overlong query, and a lost connection."""


@dataclass
class MySqlReadView:
    """The source at one moment. Ends with the session, or with the next view in it."""

    connection: Connection[Any]
    window: MySqlWindow
    server_uuid: str

    def extent(self, schema: TableSchema) -> KeyExtent:
        name = integer_key(schema)
        bounds = f"MIN({quote(name)}), MAX({quote(name)})" if name is not None else "0, 0"
        with fitting():
            row = self._rows(f"SELECT {bounds}, COUNT(*) FROM {quoted(schema.table)}", schema)[0]
            return KeyExtent(int(row[0] or 0), int(row[1] or 0), int(row[2]))

    def sums(self, schema: TableSchema, buckets: Buckets, types: TypeOptions) -> dict[int, BucketSum]:
        """Rows and hash sums per bucket; computed by the server in one pass over the table."""
        hashed = sql.row_hash(schema.columns, types, key=schema.key)
        query = (
            # Grouped by position, because any alias could also be the name of a column.
            f"SELECT {sql.bucket(buckets)}, COUNT(*), SUM({hashed})"
            f" FROM {quoted(schema.table)} GROUP BY 1 ORDER BY NULL"
        )
        rows = self._rows(query, schema)
        self._refuse_cut_text(schema)
        if any(total is None for _, _, total in rows):
            raise TableError(
                f"The source cannot hash the rows of {schema.table}: its function SHA2() returns NULL.",
                hint="MySQL 5.7 built without TLS has no SHA2(). Use a build with TLS.",
                table=str(schema.table),
            )
        with fitting():
            return {int(bucket): BucketSum(int(count), int(total)) for bucket, count, total in rows}

    def rows(
        self, schema: TableSchema, buckets: Buckets, numbers: Collection[int], types: TypeOptions
    ) -> dict[str, int]:
        """The key text and hash of every row in these buckets."""
        hashed = sql.row_hash(schema.columns, types, key=schema.key)
        query = (
            f"SELECT {sql.key_text(schema.key_columns)}, {hashed}"
            f" FROM {quoted(schema.table)} WHERE {sql.in_buckets(buckets, numbers)}"
        )
        rows = self._rows(query, schema)
        self._refuse_cut_text(schema)
        with fitting():
            return {_string(key): int(value) for key, value in rows}

    def batches(self, schema: TableSchema, types: TypeOptions) -> Iterator[pa.RecordBatch]:
        whole = Chunk(schema.table, 0, None, None)
        decoder = _core.ResultSetDecoder(schema.to_json(), types=types.to_json())
        with self.connection.cursor() as cursor:
            cursor.execute("SET SESSION character_set_results = NULL")
        try:
            yield from execute(self.connection, select_sql(schema, whole), decoder)
        except _core.SchemaMismatch as error:
            raise TableError(
                f"The rows of {schema.table} cannot be read: {error.reason}.", table=str(schema.table)
            ) from error
        except pymysql.err.MySQLError as error:
            refused = _refused(schema.table, error)
            if refused is None:
                raise
            raise refused from error
        with self.connection.cursor() as cursor:
            cursor.execute("SET SESSION character_set_results = utf8mb4")

    def _rows(self, query: str, schema: TableSchema) -> Sequence[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(query)
                return list(cursor.fetchall())
            except pymysql.err.MySQLError as error:
                refused = _refused(schema.table, error)
                if refused is None:
                    raise
                raise refused from error

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


def _refused(table: TableId, error: pymysql.err.MySQLError) -> TableError | None:
    """A server error of a query about one table, as one of our errors. None: the connection was lost."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    if code == 0 or code in _LOST:
        return None
    if code == _ER_NO_SUCH_TABLE:
        return TableError(f"Table {table} does not exist at the source.", table=str(table))
    return TableError(
        f"The source refused to hash the rows of {table}: {error.args[-1]} ({code}).", table=str(table)
    )


@contextmanager
def read_view(connection: Connection[Any], watermark_table: str | None = None) -> Iterator[MySqlReadView]:
    """Opens a read view in this session and closes it afterwards. Takes no locks.

    Raises `ConfigError` if the server offers no watermarks (`watermarks_of`).
    """
    with connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)
    watermarks = watermarks_of(connection, watermark_table)
    opened = watermarks.open_view()
    try:
        yield MySqlReadView(connection, opened, watermarks.server_uuid)
    finally:
        connection.rollback()


def _string(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
