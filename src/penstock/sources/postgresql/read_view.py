"""`sources.read_view.ReadView`: one transaction, whose view is known exactly. Its rows are read as those of
chunks are, and summed up here."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from penstock import _core
from penstock.errors import TableError
from penstock.model.buckets import Buckets, BucketSum, KeyExtent, bucket_sums_of, integer_key, share_of
from penstock.model.chunk import Chunk
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.postgresql.catalog import PgTable, read_tables
from penstock.sources.postgresql.connection import connect, explained
from penstock.sources.postgresql.log_position import moment
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.sources.postgresql.reading import BEGIN, Received, copy, lock
from penstock.sources.postgresql.sql import quote, rows_of
from penstock.sources.postgresql.views import ensure_durable, server_of
from penstock.sources.postgresql.window import PostgreSqlWindow

_REWRITTEN = """
SELECT coalesce(bool_or(pg_catalog.pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode), false)
FROM pg_catalog.pg_class c WHERE c.oid = ANY(%s) AND c.relkind = 'r'
"""
"""Whether tables have other files now than in the view. The function does not look into the view."""


@dataclass
class PostgreSqlReadView:
    connection: psycopg.Connection[Any]
    options: PostgreSqlOptions
    publication: str
    window: PostgreSqlWindow
    server_uuid: str

    def extent(self, schema: TableSchema) -> KeyExtent:
        name, table = integer_key(schema), self._table(schema)
        bounds = f"min({quote(name)}), max({quote(name)})" if name is not None else "0, 0"
        where = f" WHERE {table.row_filter}" if table.row_filter else ""
        with explained(self.options, schema.table):
            query = f"SELECT {bounds}, count(*) FROM {rows_of(table)}{where}"
            row = self.connection.execute(query.encode()).fetchone()
        assert row is not None
        return KeyExtent(int(row[0] or 0), int(row[1] or 0), int(row[2]))

    def sums(self, schema: TableSchema, buckets: Buckets, types: TypeOptions) -> dict[int, BucketSum]:
        hashed = self._hashed(schema, buckets, types)
        return bucket_sums_of((numbers, hashes) for _, numbers, hashes in hashed)

    def rows(
        self, schema: TableSchema, buckets: Buckets, numbers: Collection[int], types: TypeOptions
    ) -> dict[str, int]:
        found: dict[str, int] = {}
        wanted = pa.array(sorted(numbers), pa.int64())
        for batch, of_rows, hashes in self._hashed(schema, buckets, types):
            chosen = pc.is_in(of_rows, value_set=wanted)
            texts = _core.row_texts(schema.to_json(), batch, schema.key, types.to_json())
            found.update(
                zip(texts.filter(chosen).to_pylist(), hashes.filter(chosen).to_pylist(), strict=True)
            )
        return found

    def batches(self, schema: TableSchema, types: TypeOptions) -> Iterator[pa.RecordBatch]:
        table, whole = self._table(schema), Chunk(schema.table, 0, None, None)
        with explained(self.options, schema.table):
            yield from copy(self.connection, table, whole, types, Received())

    def _table(self, schema: TableSchema) -> PgTable:
        """The table, locked. A view is older than the lock. So it shows a table as empty whose rows were
        written again since then, by TRUNCATE or ALTER TABLE."""
        with explained(self.options, schema.table):
            lock(self.connection, schema.table)
            found = read_tables(self.connection, self.publication, names=[schema.table])
        if not found:
            raise TableError(f"Table {schema.table} does not exist at the source.", table=str(schema.table))
        table = found[0]
        if (table.schema.columns, table.key) != (schema.columns, schema.key):
            raise TableError(f"{schema.table} has another definition now.", table=str(schema.table))
        self._check_not_rewritten(table)
        return table

    def _check_not_rewritten(self, table: PgTable) -> None:
        numbers = [one.number for one in table.leaves] or [table.number]
        with explained(self.options, table.table):
            row = self.connection.execute(_REWRITTEN, (numbers,)).fetchone()
        if row is None or row[0]:
            raise TableError(
                f"The rows of {table.table} were removed or written again, by TRUNCATE or ALTER TABLE, "
                "while they were compared.",
                hint="Run it again.",
                table=str(table.table),
            )

    def _hashed(
        self, schema: TableSchema, buckets: Buckets, types: TypeOptions
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array, pa.Array]]:
        """Rows, with their buckets and hashes."""
        table, names = schema.to_json(), [column.name for column in schema.columns]
        for batch in self.batches(schema, types):
            numbers = _core.row_buckets(table, batch, schema.key, **share_of(buckets), types=types.to_json())
            yield batch, numbers, _core.row_hashes(table, batch, names, types.to_json())


@contextmanager
def read_view(options: PostgreSqlOptions, publication: str) -> Iterator[PostgreSqlReadView]:
    connection = connect(options)
    try:
        with explained(options):
            server = server_of(connection)
            connection.execute(BEGIN)
            view = moment(connection)
            ensure_durable(connection, view)
        window = PostgreSqlWindow(str(view.seen), view.end)
        yield PostgreSqlReadView(connection, options, publication, window, server)
    finally:
        connection.close()
