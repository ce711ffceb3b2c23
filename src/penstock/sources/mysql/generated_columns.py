"""Lets the server compute generated columns that row images lack.

MariaDB 11 writes generated columns only into the images of inserts. The images of updates and deletes lack
all of them (stored, virtual and indexed ones, whatever `binlog_row_image` is), and replicas compute them
again. Penstock does the same. The values of the row image go into a temporary table with the same columns and
expressions, and the rows are read back like those of a chunk.

Why that is exact: a stored generated column depends only on the other columns of its row. The server refuses
other expressions. So the image alone decides the value, even if the row has changed since. There is one
exception that the server does not refuse: expressions that use a TIMESTAMP depend on the session's time zone.
A stored column with such an expression is a `TableError`.

The expressions are those of the table's current definition, which must have the columns that the log has.
Only one session sees the temporary table, and it is not in the binary log. The account needs the privilege
CREATE TEMPORARY TABLES.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from penstock import _core
from penstock.backoff import Backoff, Schedule
from penstock.errors import TableError, TransientError
from penstock.model.change import BASE
from penstock.model.schema import Column, TableId, TableSchema, TypeOptions
from penstock.printable import argument
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.connection import connect, query
from penstock.sources.mysql.faults import answers_of
from penstock.sources.mysql.identifiers import quote, quoted
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot.reader import execute, guarded, prepare_session
from penstock.sources.mysql.statements import same_definition

_ROW = "penstock row"
"""The name of an extra column, which preserves the order of the rows."""
_NAME = "penstock_computed"
_STATEMENT_BYTES = 4 * 1024**2
"""Bytes of literals in one INSERT: few statements, and little memory at the server. A longer row is inserted
alone."""
_ATTEMPTS_MAX = 6
"""Attempts at a computation while the server does not answer. With the pauses of `_RETRY` they outlast a
restart of it that takes 10 s. Then the step fails, and is tried again as a whole."""
_RETRY = Schedule(first_s=0.4, max_s=6.4, jitter=0.25)
"""Pauses between these attempts."""
_ACCESS_DENIED = (1044, 1142, 1227)
_TOO_LARGE = 1153  # ER_NET_PACKET_TOO_LARGE
_COLUMN_NAME = re.compile(r"`((?:[^`]|``)+)`")


@dataclass(frozen=True)
class MySqlComputation:
    """`sources.row_images.Computation`."""

    source: MySqlOptions
    create: str
    """The statement that creates the temporary table."""
    name: str
    base: tuple[str, ...]
    """The columns that the expressions use, in the order of their literals."""
    generated: TableSchema
    """The generated columns alone."""

    def computer(self, types: TypeOptions) -> MySqlComputer:
        return MySqlComputer(self, types)


def computation(source: MySqlOptions, schema: TableSchema) -> MySqlComputation:
    """How to compute the generated columns, by the table's current definition. Raises `TableError` if that is
    no longer the definition that the log has."""
    with answers_of(source), closing(connect(source)) as connection:
        prepare_session(connection)
        present = read_table(connection, schema.table)
        if present is None or not same_definition(present, schema):
            raise TableError(
                f"Row images of {schema.table} leave out generated columns, and the table's definition has "
                "changed since, so that the source cannot compute them any more.",
                hint=f"Run `penstock resnapshot FILE {argument(schema.table)}`.",
                table=str(schema.table),
                definition_differs=True,
            )
        rows = query(
            connection,
            "SELECT COLUMN_NAME, GENERATION_EXPRESSION FROM information_schema.COLUMNS"
            " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (schema.table.database, schema.table.table),
        )
        expressions = {_text(name): _text(text) for name, text in rows if text}
    return computed_by(source, schema, expressions)


def computed_by(source: MySqlOptions, schema: TableSchema, expressions: dict[str, str]) -> MySqlComputation:
    """How a table's generated columns are computed. `expressions`: those of the columns, by name. Columns of
    system versioning have none; they are in every image."""
    generated = tuple(c for c in schema.columns if c.generated and c.name in expressions)
    base = [c for c in schema.columns if c not in generated and _is_named(c, expressions.values())]
    for column in generated:
        moments = [c.name for c in base if c.type == "timestamp" and _is_named(c, [expressions[column.name]])]
        if moments and column.generated == "stored":
            raise TableError(
                f"Row images of {schema.table} leave out the generated column {column.name}. It is made of "
                f"the TIMESTAMP {moments[0]}, so its value depends on the time zone of who wrote it.",
                hint="Make it of a DATETIME, or leave the table out of the pipeline.",
                table=str(schema.table),
            )
    name = quoted(TableId(schema.table.database, _NAME))
    columns = [f"{quote(_ROW)} INT NOT NULL PRIMARY KEY", *(_declared(column) for column in base)]
    columns += [
        f"{_declared(c)} AS ({expressions[c.name]}) {'STORED' if c.generated == 'stored' else 'VIRTUAL'}"
        for c in generated
    ]
    return MySqlComputation(
        source,
        f"CREATE TEMPORARY TABLE {name} ({', '.join(columns)}) ENGINE = InnoDB",
        name,
        tuple(column.name for column in base),
        TableSchema(schema.table, generated),
    )


def _is_named(column: Column, expressions: Iterable[str]) -> bool:
    """Whether an expression may use a column. It can be wrong in one direction: a string literal may look
    like a name."""
    wanted = column.name.lower()
    return any(
        found.replace("``", "`").lower() == wanted
        for text in expressions
        for found in _COLUMN_NAME.findall(text)
    )


def _declared(column: Column) -> str:
    text = f"{quote(column.name)} {column.column_type}"
    if column.charset not in (None, "binary"):
        text += f" CHARACTER SET {column.charset} COLLATE {column.collation}"
    return text + (" NULL" if column.type == "timestamp" else "")


class MySqlComputer:
    """Fills batches. It opens its own connection when one is needed, and the caller closes it."""

    def __init__(self, computation: MySqlComputation, types: TypeOptions) -> None:
        self._work = computation
        self._types = types
        self._connection: Any = None
        self._packet = 0

    def __enter__(self) -> MySqlComputer:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def fill(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the same rows with their missing values, and without the column `_penstock_base`."""
        for batch in batches:
            place = batch.schema.get_field_index(BASE)
            base = batch.column(place)
            batch = batch.drop_columns([BASE])
            lacking = base.drop_null()
            yield batch if not len(lacking) else self._filled(batch, base.is_valid(), lacking.to_pylist())

    def _filled(self, batch: pa.RecordBatch, mask: pa.Array, rows: list[str]) -> pa.RecordBatch:
        values = self._compute(rows)
        known = pa.array(range(batch.num_rows), pa.int64())
        order = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
        places = pc.if_else(mask, pc.add(order, batch.num_rows), known)
        for column in self._work.generated.columns:
            at = batch.schema.get_field_index(column.name)
            both = pa.concat_arrays(
                [batch.column(at), values.column(column.name).cast(batch.column(at).type)]
            )
            batch = batch.set_column(at, batch.schema.field(at), both.take(places))
        return batch

    def _compute(self, rows: list[str]) -> pa.RecordBatch:
        """The generated columns of these rows, in the order of the rows. After a lost connection it tries
        again."""
        backoff = Backoff(_RETRY)
        while True:
            try:
                what = f"the computation of generated columns of {self._work.generated.table}"
                with guarded(what, f"{self._work.source.host}:{self._work.source.port}"):
                    return self._compute_once(rows)
            except TransientError:
                self._close()
                backoff.failed()
                if backoff.failures == _ATTEMPTS_MAX:
                    raise
                backoff.wait()

    def _compute_once(self, rows: list[str]) -> pa.RecordBatch:
        connection = self._open()
        schema = self._work.generated
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM {self._work.name}")
                for values in _portions(rows, min(_STATEMENT_BYTES, self._packet // 2)):
                    names = ", ".join(quote(name) for name in (_ROW, *self._work.base))
                    cursor.execute(f"INSERT INTO {self._work.name} ({names}) VALUES {values}")
        except pymysql.MySQLError as error:
            if error.args[0] != _TOO_LARGE:
                raise
            raise TableError(
                f"A row of {schema.table} is longer than the source's max_allowed_packet, so that its "
                "generated columns cannot be computed.",
                hint="SET GLOBAL max_allowed_packet to three times the longest row, then run "
                f"`penstock resnapshot FILE {argument(schema.table)}`.",
                table=str(schema.table),
            ) from error
        columns = ", ".join(quote(column.name) for column in schema.columns)
        decoder = _core.ResultSetDecoder(schema.to_json(), types=self._types.to_json())
        found = list(
            execute(connection, f"SELECT {columns} FROM {self._work.name} ORDER BY {quote(_ROW)}", decoder)
        )
        return pa.Table.from_batches(found).combine_chunks().to_batches(max_chunksize=None)[0]

    def _open(self) -> Any:
        if self._connection is None:
            self._connection = connect(self._work.source)
            prepare_session(self._connection)
            found = query(self._connection, "SELECT @@max_allowed_packet, @@binlog_format")[0]
            if _text(found[1]) != "ROW":
                raise self._refused(f"the source's binlog_format is {_text(found[1])}", "Set it to ROW")
            self._packet = int(found[0])
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")
                    cursor.execute(self._work.create)
            except pymysql.MySQLError as error:
                if error.args[0] not in _ACCESS_DENIED:
                    raise
                database = quote(self._work.generated.table.database)
                raise self._refused(
                    f"the account may make no temporary table: {error.args[1]}",
                    f"GRANT CREATE TEMPORARY TABLES ON {database}.* TO the account",
                ) from error
        return self._connection

    def _refused(self, why: str, cure: str) -> TableError:
        table = self._work.generated.table
        return TableError(
            f"Row images of {table} leave out generated columns, as MariaDB 11 does, and the source cannot "
            f"be asked to compute them: {why}.",
            hint=f"{cure}, then run `penstock resnapshot FILE {argument(table)}`.",
            table=str(table),
        )

    def _close(self) -> None:
        if self._connection is not None:
            self._connection._force_close()
            self._connection = None


def _portions(rows: list[str], size: int) -> Iterator[str]:
    """Groups literals into lists of VALUES of about `size` characters."""
    texts: list[str] = []
    length = 0
    for number, row in enumerate(rows):
        text = f"({number},{row})" if row else f"({number})"
        if texts and length + len(text) > size:
            yield ",".join(texts)
            texts, length = [], 0
        texts.append(text)
        length += len(text) + 1
    yield ",".join(texts)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
