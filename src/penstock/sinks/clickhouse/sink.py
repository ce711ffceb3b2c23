"""The sink `clickhouse`: a `TableSink` whose targets are views of the newest versions.

**Why a repeated epoch changes nothing.** A write adds versions of rows to a ReplacingMergeTree: with
`_sequence`, and with `_penstock_deleted`, if the row was deleted. The target is a view that shows of each key
the version with the largest `_sequence`, unless it is deleted. Adding a version again, or an older one,
changes nothing that the view shows. At its end, the commit is recorded in a table of the sink's own
(`records.py`).

**What is not only added to.** `TRUNCATE`, a changed definition and the end of a resnapshot make a new table
of versions, from the old one, and let the view show that. The new one's name contains the commit. If it is
there and the old one is not, then a repetition finds all done.

**What a late write changes.** Nothing: its versions are older, or the table that it was made for is gone.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from penstock.errors import ConfigError, TableError, TransientError
from penstock.model.change import DELETED, SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import (
    Commit,
    Compacted,
    EvolvedColumn,
    Foreign,
    Missing,
    Narrowing,
    Ours,
    TargetState,
)
from penstock.sinks.clickhouse.client import Client, Errors, Refused, quoted
from penstock.sinks.clickhouse.evolve import evolved_columns, only_adds, widens
from penstock.sinks.clickhouse.faults import UNKNOWN_DATABASE, UNKNOWN_TABLE, explained
from penstock.sinks.clickhouse.native import block
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.clickhouse.records import Record, Records
from penstock.sinks.clickhouse.scan import ClickHouseScan
from penstock.sinks.clickhouse.tables import Tables, rows_name
from penstock.sinks.clickhouse.types import FIRST_DATE, LAST_DATE, Types, own_columns
from penstock.sinks.collected import batches_of
from penstock.sinks.evolve import changes, key_after
from penstock.sinks.names import refuse_own_names, source_columns
from penstock.sinks.recorded import Recorded
from penstock.sinks.refusals import (
    at,
    check_pipeline,
    is_recorded,
    lost_target,
    of_other_pipeline,
    refuse_foreign,
    refuse_replaced,
    refuse_shared,
)
from penstock.sinks.rows import Rows, pieces
from penstock.sinks.spark_sql import target_type

VERSION_MIN = (18, 16)
"""The oldest release that was tried."""


class ClickHouseSink(Recorded):
    """The sink of one pipeline, whose uuid is `pipeline`."""

    def __init__(self, options: ClickHouseOptions, spark: SparkSession, pipeline: str) -> None:
        super().__init__(pipeline)
        self._options = options
        self._spark = spark
        self._client = Client(options)
        self._records = Records(self._client, options.control)
        self._prepared = False
        """Whether the table of the records is known to be there."""

    # Sink ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        try:
            with self._explained(f"The server {self._options.url} cannot be used"):
                version = self._client.version
        except TransientError as error:
            raise ConfigError(error.message, hint="Start it, or correct `sink.url`.") from None
        if version < VERSION_MIN:
            raise ConfigError(
                f"The server {self._options.url} is ClickHouse {version[0]}.{version[1]}, which is too old.",
                hint="The sink needs ClickHouse 18.16 or newer.",
            )

    def open(self, table: TableId) -> TargetState:
        with self._explained(f"The target of {table} cannot be looked at", table):
            record, tables = self._find(table), self._tables
            if record is None or record.pipeline != self._pipeline:
                if not tables.exists(*self._place(table)):
                    return Missing()
                cure = "Name another `sink.namespace`, or drop it if nobody needs it."
                place = ".".join(self._place(table))
                if record is None:
                    return Foreign(place, "a table or view that Penstock did not create", cure)
                return of_other_pipeline(place, "view", record.pipeline, cure)
            database, name = self._place(table)
            if not tables.exists(database, name) and not tables.exists(database, record.rows):
                return Missing()
            empty = tables.exists(database, name) and tables.is_empty(database, name)
        return Ours(record.last, source_columns(tuple(record.columns.names)), empty=empty)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        table = schema.table
        refuse_own_names(schema, self._options.reserved)
        found = self.open(table)
        refuse_foreign(table, found)
        database, name = self._place(table)
        with self._explained(f"The target of {table} cannot be created", table):
            self._prepare()
            before = self._records.newest(self._key(table))
            if not isinstance(found, Missing) and before is not None:
                refuse_shared(table, f"{database}.{name}", before.source)
                if not self._tables.exists(database, name):  # the process was killed before it was made
                    self._tables.show(database, name, before.rows, before.columns)
                return
            rows = rows_name(name, secrets.token_hex(4))
            era = 0 if before is None else before.era + 1
            record = Record(self._pipeline, str(table), rows, target_type(arrow), schema.key,
                            generation=self._generation, era=era)  # fmt: skip
            self._records.put(self._key(table), record)
            self._tables.make_database(database)
            self._tables.make(database, rows, record.columns, record.key)
            self._tables.show(database, name, rows, record.columns)
            self._seen.pop(table, None)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            self._commit(table, self._renewed(table, record, commit, record, None), commit)
        return True

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            present = StructType([field for field in record.columns if field.name != SEQUENCE])
            changed = changes(table, present, columns, reserved=self._options.reserved,
                              stored=lambda kind: kind, widens=widens,
                              narrowing=narrowing)  # fmt: skip
            fields = [StructField(one.name, one.kind) for one in changed]
            key = key_after(changed, record.key)
            after = replace(record, columns=StructType([*fields, StructField(SEQUENCE, LongType())]), key=key)
            if only_adds(present, changed) and key == record.key:
                self._tables.add(self._place(table), record.rows, after.columns, changed)
            else:
                values = evolved_columns(self._types, changed, key, present, self._spark)
                after = self._renewed(table, record, commit, after, f"SELECT {', '.join(values)}")
            self._commit(table, after, commit)
        return True

    def close(self) -> None:
        self._client.close()

    # Fencing ------------------------------------------------------------------------------------------------

    def fence(self, table: TableId) -> None:
        with self._explained(f"The target of {table} cannot be fenced", table):
            record = self._find(table)
            if record is not None and record.pipeline == self._pipeline:
                refuse_replaced(table, record.generation, self._generation)
                self._records.put(self._key(table), replace(record, generation=self._generation))

    # TableSink ----------------------------------------------------------------------------------------------

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        return self._write(table, rows, commit, deletes=False)

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        return self._write(table, rows, commit, deletes=True)

    def _write(self, table: TableId, rows: Rows, commit: Commit, *, deletes: bool) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            if rows.incomplete is not None:
                raise TableError(
                    f"The source logs parts of rows of {table}, which ClickHouse cannot put together.",
                    hint="Let the source log whole rows, and run "
                    f"`penstock resnapshot FILE {argument(table)}`.",
                    table=str(table),
                )
            for batch in pieces(batches_of(rows)):
                if (column := self._types.beyond(batch)) is not None:
                    raise _beyond(table, column)
                self._insert(table, record, _versions(batch, deletes=deletes))
            self._commit(table, record, commit)
        return True

    def _insert(self, table: TableId, record: Record, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            database, _ = self._place(table)
            names = ", ".join(map(quoted, batch.schema.names))
            statement = f"INSERT INTO {quoted(database)}.{quoted(record.rows)} ({names}) FORMAT Native"
            self._client.run(statement, block(batch, record.columns, record.key, self._types))

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            names = ", ".join(map(quoted, own_columns(_names(record))))
            fill = f"SELECT {names} FROM %s WHERE {quoted(SEQUENCE)} >= {int(sequence)}"
            self._commit(table, self._renewed(table, record, commit, record, fill), commit)
        return True

    def _place_and_source(self, table: TableId) -> tuple[str, str | None]:
        with self._explained(f"The target of {table} cannot be looked at", table):
            record = self._find(table)
        return ".".join(self._place(table)), None if record is None else record.source

    def _remove(self, table: TableId) -> None:
        database, name = self._place(table)
        with self._explained(f"The target of {table} cannot be removed", table):
            record = self._find(table)
            self._tables.drop(database, name)
            for rows in self._tables.versions_of(database, name):
                self._tables.drop(database, rows)
            if record is not None:
                self._records.put(self._key(table), replace(record, gone=True))
        self._seen.pop(table, None)

    def compact(self, table: TableId) -> Compacted:
        """Merges all parts, which leaves one version of each row."""
        with self._explained(f"The target of {table} cannot be compacted", table):
            record = self._find(table)
            if record is None:
                return Compacted(0, 0)
            database, _ = self._place(table)
            before = self._tables.parts(database, record.rows)
            self._tables.optimize(database, record.rows)
            return Compacted(before, self._tables.parts(database, record.rows))

    # Scannable ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scan(self) -> Iterator[ClickHouseScan]:
        yield ClickHouseScan(self._client, self._own_place)

    def _own_place(self, table: TableId) -> tuple[str, str]:
        record = self._find(table)
        if record is None or record.pipeline != self._pipeline or record.lost:
            raise lost_target(table)
        return self._place(table)

    # --------------------------------------------------------------------------------------------------------

    @property
    def _types(self) -> Types:
        modern = self._client.is_modern
        return Types(native_dates=modern and self._options.dates == "native", bools=modern)

    @property
    def _tables(self) -> Tables:
        return Tables(self._client, self._types)

    def _place(self, table: TableId) -> tuple[str, str]:
        database, name = self._options.place(table) or ("", "")
        return database, name

    def _key(self, table: TableId) -> str:
        return ".".join(map(quoted, self._place(table)))

    def _prepare(self) -> None:
        if not self._prepared:
            self._records.make()
            self._prepared = True

    def _find(self, table: TableId) -> Record | None:
        try:
            return self._records.find(self._key(table))
        except Refused as error:
            if error.code in (UNKNOWN_TABLE, UNKNOWN_DATABASE):
                return None
            raise

    def _renewed(
        self, table: TableId, record: Record, commit: Commit, after: Record, fill: str | None
    ) -> Record:
        """Lets the view show a new table of versions, and drops the old one. `fill`: a query for its rows, of
        the newest versions of the old one (%s). Does nothing if this commit has done that."""
        database, name = self._place(table)
        new = rows_name(name, f"{commit.epoch}_{commit.step}_{self._generation}")
        tables = self._tables
        if tables.exists(database, record.rows):
            for left in tables.versions_of(database, name):
                if left != record.rows:
                    tables.drop(database, left)
            tables.make(database, new, after.columns, after.key)
            if fill is not None:
                tables.fill(database, record.rows, new, after.columns, fill)
            tables.show(database, name, new, after.columns)
            tables.drop(database, record.rows)
            return replace(after, rows=new)
        made = rows_name(name, f"{commit.epoch}_{commit.step}_")  # maybe by a driver that was replaced
        done = [one for one in tables.versions_of(database, name) if one.startswith(made)]
        if not done:
            raise lost_target(table)
        return replace(after, rows=done[0])

    @contextlib.contextmanager
    def _writing(self, table: TableId, commit: Commit) -> Iterator[Record | None]:
        """The record of the target. None: it has this commit already, so there is nothing to write."""
        check_pipeline(commit, self._pipeline)
        with self._explained(f"Epoch {commit.epoch} was not written to {table}", table):
            record = self._find(table)
            if record is None or record.pipeline != self._pipeline or record.lost:
                raise lost_target(table)
            place = (0, 0) if record.last is None else record.last.place
            if place < self._seen.get(table, (0, 0)):
                self._records.put(self._key(table), replace(record, lost=True))
                raise lost_target(table)
            refuse_replaced(table, record.generation, self._generation)
            try:
                yield None if is_recorded(commit, record.last) else record
            except Refused as error:
                if error.code in (UNKNOWN_TABLE, UNKNOWN_DATABASE):
                    raise lost_target(table) from None
                raise

    def _commit(self, table: TableId, record: Record, commit: Commit) -> None:
        newest = self._find(table)
        if newest is not None:
            refuse_replaced(table, newest.generation, self._generation)
        self._records.put(self._key(table), replace(record, last=commit))
        self._seen[table] = commit.place

    @contextlib.contextmanager
    def _explained(self, what: str, table: TableId | None = None) -> Iterator[None]:
        try:
            yield
        except Errors as error:
            what = at(what, self._options.url)
            raise explained(error, what, table) from None  # the server's text may have values of rows


def _names(record: Record) -> list[str]:
    return [name for name in record.columns.names if name != SEQUENCE]


def _versions(batch: pa.RecordBatch, *, deletes: bool) -> pa.RecordBatch:
    """The rows in the form in which they are stored. `deletes`: with markers for deleted rows."""
    if DELETED not in batch.schema.names:
        batch = batch.append_column(DELETED, pa.array([False] * batch.num_rows))
    elif not deletes:
        batch = batch.filter(pc.invert(batch.column(DELETED)))
    return batch.select(own_columns(source_columns(batch.schema.names)))


def _beyond(table: TableId, column: str) -> TableError:
    return TableError(
        f"A value of `{column}` in {table} is before {FIRST_DATE} or after {LAST_DATE}, which ClickHouse "
        "cannot hold.",
        hint=f"Set `sink.dates: text`, and run `penstock resnapshot --recreate FILE {argument(table)}`.",
        table=str(table),
    )
