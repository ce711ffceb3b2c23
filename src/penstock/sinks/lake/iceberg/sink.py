"""Iceberg tables, format version 3, merge-on-read.

Why a replay changes nothing: the commit's key is a summary property of the very snapshot that holds its rows,
and `open` finds it by walking back from the current snapshot. Compaction and expiry by others can remove that
snapshot, so the key is also written as a table property, right after, together with the snapshot it belongs
to; that the property is believed only while its snapshot is an ancestor (or ancestry has been cut) makes a
rollback of the table visible instead of hiding it behind the property.

Measured (1 M rows, 2 cores, merge of 1k / 100k rows): version 3 with hash distribution 1.2 / 1.4 s, version 2
1.2 / 1.7 s; without distribution more and smaller files for nothing. Version 3 also gives ADD COLUMN …
DEFAULT without touching a file. Appends write Parquet in the tasks themselves and commit it here
(`sinks/files.py`); few changes are committed without a Spark job (`small_commit.py`).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
)

from penstock.errors import ConfigError, InternalError, TableError
from penstock.failures.messages import advice_of, text_of
from penstock.model.change import SEQUENCE
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import (
    FORMAT,
    PIPELINE,
    SHARDS_BY,
    SOURCE,
    Commit,
    Compacted,
    EvolvedColumn,
    Foreign,
    Missing,
    Narrowing,
    Ours,
    TargetState,
)
from penstock.sinks.files import WRITTEN, Rows, written
from penstock.sinks.lake.evolve import Change, assignments, changes, dropped
from penstock.sinks.lake.iceberg.catalog import PROPERTIES, Catalog
from penstock.sinks.lake.iceberg.commits import COMMIT, Commits
from penstock.sinks.lake.iceberg.files import (
    Classes,
    Described,
    file_writer,
    is_directory_catalog,
    is_half_made,
    removed_if_refused,
    schema_fields,
)
from penstock.sinks.lake.iceberg.maintenance import Maintenance
from penstock.sinks.lake.iceberg.merge import FileMerges
from penstock.sinks.lake.iceberg.registration import IcebergOptions
from penstock.sinks.lake.iceberg.small_commit import SmallCommits
from penstock.sinks.lake.merge import live_rows, merge, refuse_other_source, target_type
from penstock.sinks.lake.sessions import Sessions, activate, java_map
from penstock.sinks.names import catalog_name, namespace_levels, refuse_own_names, source_columns
from penstock.sinks.refusals import (
    check_directory,
    check_pipeline,
    is_recorded,
    other_shape,
    refuse_foreign,
    shape,
)
from penstock.sinks.spark_sql import constant, literal_form

HELD_MS = 24 * 3_600_000


class IcebergSink:
    def __init__(
        self,
        options: IcebergOptions,
        spark: SparkSession,
        pipeline: str,
        merged: Mapping[TableId, str] | None = None,
    ) -> None:
        """`merged`: targets that many source tables have together, with the column that tells them apart."""
        self._options = options
        self._spark = spark
        self._pipeline = pipeline
        self._merged = merged or {}
        self._commits = Commits(pipeline)
        self._catalog = Catalog(spark, options.catalog)
        self._classes = Classes(spark._jvm)
        self._small = SmallCommits(self._classes, self._commits)
        self._merges = FileMerges(spark, self._classes, self._commits)
        self._maintenance = Maintenance(spark, self._classes, options, self._load, self._alone)
        self._sessions = Sessions(spark)
        self._locks: dict[TableId, threading.RLock] = {}
        self._guard = threading.Lock()
        self._is_local = options.path is not None and is_directory_catalog(
            spark, options.catalog, options.path
        )

    def check(self) -> None:
        if self._options.path is not None:
            check_directory(self._options.path)
        try:
            self._catalog.open()
        except (Py4JJavaError, PySparkException) as error:
            advice = advice_of(text_of(error), rows=False)
            cure = f"Check `sink.catalog` and spark.sql.catalog.{self._options.catalog}* in `spark.conf`."
            raise ConfigError(
                f"Spark cannot set up the catalog {self._options.catalog}: "
                f"{advice.message if advice is not None else type(error).__name__}",
                hint=f"{advice.hint if advice is not None else ''} {cure}".strip(),
            ) from error

    def open(self, table: TableId) -> TargetState:
        name = self.name(table)
        absent = self._is_local and not self._path(table).exists()  # which takes Spark long to tell
        if absent or not self._catalog.exists(self._levels(table)):
            return self._unless_occupied(table)
        target = self._load(table)
        properties = target.properties()
        owner = properties.get(PIPELINE)
        if owner != self._pipeline:
            reason = (
                "a table that Penstock did not create" if owner is None else f"the table of pipeline {owner}"
            )
            cure = "Name another `sink.namespace` or `sink.path`, or drop the table if nobody needs it."
            return Foreign(name, reason, cure)
        if (other := other_shape(name, properties.get(SHARDS_BY), self._merged.get(table))) is not None:
            return other
        columns = [field["name"] for field in schema_fields(self._classes, target)]
        snapshot = target.currentSnapshot()
        empty = snapshot is None or snapshot.summary().get("total-records") == "0"
        return Ours(self._commits.last(target, ""), source_columns(columns), empty)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        refuse_own_names(schema)
        found = self.open(schema.table)
        refuse_foreign(schema.table, found)
        properties = {
            **PROPERTIES,
            PIPELINE: self._pipeline,
            "penstock.format": FORMAT,
            SOURCE: str(schema.table),
            **shape(self._merged.get(schema.table)),
        }
        levels = self._levels(schema.table)
        if isinstance(found, Missing) and self._catalog.make(levels, target_type(arrow), properties):
            return
        refuse_foreign(schema.table, self.open(schema.table))
        refuse_other_source(self, schema.table)

    def drop(self, table: TableId) -> None:
        if isinstance(self.open(table), Ours):
            with self._alone(table):
                self._spark.sql(f"DROP TABLE {self.name(table)} PURGE")

    def clear(self, table: TableId) -> None:
        try:
            state = self.open(table)
            refuse_foreign(table, state)
            if isinstance(state, Ours):
                refuse_other_source(self, table)
            self.drop(table)
        except (Py4JJavaError, PySparkException):  # it cannot be read
            if self._options.path is None:
                raise
            with suppress(FileNotFoundError):
                shutil.rmtree(self._path(table))

    def _path(self, table: TableId) -> Path:
        assert self._options.path is not None
        return self._options.path.joinpath(*self._levels(table))

    def identity(self, table: TableId) -> str | None:
        return None

    def move(self, moves: Sequence[Move]) -> list[Move]:
        raise InternalError("The iceberg sink moves no targets.")

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if (target := self._unless_done(table, commit)) is None:
            return False
        if self._write_small(table, target, rows, (), commit):
            return True
        writer = file_writer(self._classes, target)
        if writer is None:
            activate(self._spark)
            frame = live_rows(rows.frame).writeTo(self.name(table))
            frame.option(f"snapshot-property.{COMMIT}", str(commit)).append()
            return self._record(table, commit)
        files = written(rows.through(writer, WRITTEN))
        with removed_if_refused(files):
            self._add_files(target, files, commit)
        self._maintenance.noted(table, small=False)
        return True

    def _add_files(self, target: Any, files: list[str], commit: Commit) -> None:
        """One commit: the files, and the commit's key beside them."""
        transaction = target.newTransaction()
        if files:
            append, described = transaction.newAppend(), Described(self._classes, target)
            for file in files:
                append.appendFile(described.data(file))
            append.set(COMMIT, str(commit)).commit()
        self._commits.record(transaction, transaction.table(), commit)
        transaction.commitTransaction()

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        if (target := self._unless_done(table, commit)) is None:
            return False
        if self._write_small(table, target, rows, key, commit):
            return True
        with self._alone(table):
            if self._merges.write(self._load(table), rows, key, commit):
                self._maintenance.noted(table, small=False)
                return True
            with self._session(table, commit) as session:
                merge(session, table, self.name(table), rows, key)
        return self._record(table, commit)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        if self._done(table, commit):
            return False
        with self._alone(table):
            transaction = self._load(table).newTransaction()
            delete = transaction.newDelete().deleteFromRowFilter(self._classes.everything)
            delete.set(COMMIT, str(commit)).commit()
            self._commits.record(transaction, transaction.table(), commit)
            transaction.commitTransaction()
        return True

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        return self.delete(table, f"{SEQUENCE} < {int(sequence)}", commit)

    def delete(self, table: TableId, condition: str, commit: Commit) -> bool:
        # Doing this twice in a row is harmless. That matters: a delete of whole files makes a snapshot
        # without the session's properties, and the property of the table comes a moment later.
        if self._done(table, commit):
            return False
        with self._alone(table), self._session(table, commit) as session:
            session.sql(f"DELETE FROM {self.name(table)} WHERE {condition}")
        return self._record(table, commit)

    def evolve(
        self,
        table: TableId,
        columns: Sequence[EvolvedColumn],
        commit: Commit | None,
        *,
        narrowing: Narrowing,
        properties: Mapping[str, str | None] | None = None,
    ) -> bool:
        """One transaction. Before it, values that have to be converted are computed into columns aside, which
        the transaction puts in the place of the old ones: no reader ever sees a column half converted."""
        if commit is not None and self._done(table, commit):
            return False
        with self._alone(table), _refused(table):
            present = self.columns(table)
            changed = changes(table, present, columns, stored=self.stored, widens=widens, narrowing=narrowing)
            waiting = [change for change in changed if change.how == "convert"]
            if waiting:
                self._convert(table, present, waiting)
            self._evolve(table, present, changed, commit, properties)
        return True

    def columns(self, table: TableId) -> StructType:
        self._spark.sql(f"REFRESH TABLE {self.name(table)}")
        return self._spark.sql(f"SELECT * FROM {self.name(table)}").schema

    def _convert(self, table: TableId, present: StructType, waiting: list[Change]) -> None:
        update = self._load(table).updateSchema()
        for change in waiting:
            if change.aside not in present.names:
                update.addColumn(None, change.aside, self._type(change.kind), None)
        update.commit()
        self._maintenance.fold(table)
        session = self._spark.newSession()  # sees the columns that are new
        session.sql(f"UPDATE {self.name(table)} SET {assignments(present, waiting)}")

    def _evolve(
        self,
        table: TableId,
        present: StructType,
        changed: list[Change],
        commit: Commit | None,
        properties: Mapping[str, str | None] | None,
    ) -> None:
        transaction = self._load(table).newTransaction()
        update = transaction.updateSchema()
        for name in dropped(present, changed):
            update.deleteColumn(name)
        for change in changed:
            self._change_column(update, change)
        update.commit()
        order = transaction.updateSchema()
        for before, change in zip([None, *changed], changed, strict=False):
            if before is None:
                order.moveFirst(change.name)
            else:
                order.moveAfter(change.name, before.name)
        order.commit()
        # A snapshot of its own, without files: a version is a snapshot, and reads with the columns it has.
        append = transaction.newAppend()
        (append if commit is None else append.set(COMMIT, str(commit))).commit()
        self._commits.record(transaction, transaction.table(), commit, properties)
        transaction.commitTransaction()

    def _change_column(self, update: Any, change: Change) -> None:
        match change.how:
            case "add":
                update.addColumn(None, change.name, self._type(change.kind), None, self._literal(change))
            case "convert":
                update.deleteColumn(change.before)
                update.renameColumn(change.aside, change.name)
            case "widen":
                update.updateColumn(change.before, self._type(change.kind))
        if change.how in ("keep", "widen") and change.before != change.name:
            update.renameColumn(change.before, change.name)

    def stored(self, kind: DataType) -> DataType:
        """Iceberg has no integers below 32 bits."""
        return IntegerType() if isinstance(kind, (ByteType, ShortType)) else kind

    def properties(self, table: TableId) -> dict[str, str]:
        return java_map(self._spark, self._load(table).properties())

    def set_property(self, table: TableId, name: str, value: str) -> None:
        target = self._load(table)
        self._commits.record(target, target, None, {name: value})

    def last_commit(self, table: TableId, source: str) -> Commit | None:
        return self._commits.last(self._load(table), source)

    def version(self, table: TableId) -> str | None:
        snapshot = self._load(table).currentSnapshot()
        return None if snapshot is None else str(snapshot.snapshotId())

    def hold(self, table: TableId) -> str | None:
        with suppress(Py4JJavaError):  # somebody else is at it: it takes longer to read, no more
            self._maintenance.fold(table)
        target = self._load(table)
        snapshot = target.currentSnapshot()
        if snapshot is None:
            return None
        number = snapshot.snapshotId()
        name = f"penstock_{number}"
        if target.refs().get(name) is None:
            # The age of a tag is that of its snapshot.
            age_ms = max(0, int(time.time() * 1000) - snapshot.timestampMillis()) + HELD_MS
            target.manageSnapshots().createTag(name, number).setMaxRefAgeMs(name, age_ms).commit()
        return str(number)

    def compact(self, table: TableId) -> Compacted:
        return self._maintenance.compact(table)

    def close(self) -> None:
        self._maintenance.end()

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        at = "" if version is None else f" VERSION AS OF {int(version)}"
        return self._spark.sql(f"SELECT * FROM {self.name(table)}{at}")

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def name(self, table: TableId) -> str:
        return self._catalog.table_name(self._levels(table))

    def _levels(self, table: TableId) -> list[str]:
        """Its place in the catalog."""
        levels = (*namespace_levels(self._options.namespace, table), table.table)
        return list(map(catalog_name, levels))

    def _session(self, table: TableId, commit: Commit) -> Any:
        self._maintenance.fold(table)  # the statement reads all of it
        return self._sessions.lend({f"spark.sql.iceberg.snapshot-property.{COMMIT}": str(commit)})

    def _load(self, table: TableId) -> Any:
        return self._catalog.load(self._levels(table))

    def _unless_occupied(self, table: TableId) -> Missing | Foreign:
        if self._options.path is None:
            return Missing()
        path = self._path(table)
        if path.is_file() or (path.is_dir() and any(path.iterdir()) and not is_half_made(path)):
            cure = "Name another `sink.path`, or move what is there away."
            return Foreign(str(path), "it holds something that is not an Iceberg table", cure)
        return Missing()

    def _done(self, table: TableId, commit: Commit) -> bool:
        return self._unless_done(table, commit) is None

    def _unless_done(self, table: TableId, commit: Commit) -> Any | None:
        """The target as it is now, if it lacks the commit."""
        check_pipeline(commit, self._pipeline)
        target = self._load(table)
        return None if is_recorded(commit, self._commits.last(target, commit.source)) else target

    def _write_small(
        self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit
    ) -> bool:
        if not self._options.equality_deletes or not self._small.write(target, rows, key, commit):
            return False
        self._maintenance.noted(table, small=True)
        return True

    def _record(self, table: TableId, commit: Commit) -> bool:
        target = self._load(table)
        self._commits.record(target, target, commit)
        self._maintenance.noted(table, small=False)
        return True

    @contextmanager
    def _alone(self, table: TableId) -> Iterator[None]:
        """Spark's writes of a table, and its housekeeping, take turns: else one would undo the other's
        premises. Small commits go on beside both."""
        with self._guard:
            lock = self._locks.setdefault(table, threading.RLock())
        with lock:
            yield

    def _type(self, kind: DataType) -> Any:
        struct = f'{{"type":"struct","fields":[{{"name":"c","type":{kind.json()},'
        struct += '"nullable":true,"metadata":{}}]}'
        converted = self._jvm.org.apache.spark.sql.types.DataType.fromJson(struct)
        return self._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(converted).columns().get(0).type()

    def _literal(self, change: Change) -> Any:
        value = constant(self._spark, change.default, change.kind)
        if value is None:
            return None
        literal = self._jvm.org.apache.iceberg.expressions.Expressions.lit(literal_form(value, change.kind))
        return literal.to(self._type(change.kind))


@contextmanager
def _refused(table: TableId) -> Iterator[None]:
    """What Iceberg will not do to a table's columns stops that table."""
    try:
        yield
    except Py4JJavaError as error:
        kind = error.java_exception.getClass().getSimpleName()
        if kind not in ("ValidationException", "IllegalArgumentException"):
            raise
        raise TableError(
            f"The columns of the target of {table} cannot be changed: {error.java_exception.getMessage()}.",
            hint="Take the columns concerned out of the target's partitions and sort order, then run "
            f"`penstock resnapshot FILE {argument(table)}`.",
            table=str(table),
        ) from error


def widens(old: DataType, kind: DataType) -> bool:
    if isinstance(old, DecimalType) and isinstance(kind, DecimalType):
        return old.scale == kind.scale and old.precision <= kind.precision
    pair = (type(old), type(kind))
    return pair in ((IntegerType, LongType), (FloatType, DoubleType))
