"""Iceberg tables, format version 3, merge-on-read.

Why a replay changes nothing: the commit's key is a summary property of the very snapshot that holds its rows,
and `open` finds it by walking back from the current snapshot. Compaction and expiry by others can remove that
snapshot, so the key is also written as a table property, right after, together with the snapshot it belongs
to; that the property is believed only while its snapshot is an ancestor (or ancestry has been cut) makes a
rollback of the table visible instead of hiding it behind the property.

Measured (1 M rows, 2 cores, merge of 1k / 100k rows): version 3 with hash distribution 1.2 / 1.4 s, version 2
1.2 / 1.7 s; without distribution more and smaller files for nothing. Version 3 also gives ADD COLUMN …
DEFAULT without touching a file. Appends write Parquet in the tasks themselves and commit it here
(`sinks/files.py`).
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

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

from penstock.config import SinkConfig
from penstock.errors import ConfigError, InternalError, TableError
from penstock.model.change import SEQUENCE
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import (
    FORMAT,
    SHARDS_BY,
    SOURCE,
    Commit,
    EvolvedColumn,
    Foreign,
    Missing,
    Narrowing,
    Ours,
    TargetState,
    catalog_name,
    check_directory,
    check_pipeline,
    is_recorded,
    namespace_levels,
    other_shape,
    refuse_foreign,
    refuse_own_names,
    shape,
    source_columns,
)
from penstock.sinks.evolve import Change, assignments, changes, dropped
from penstock.sinks.files import WRITTEN, FileWriter, Rows, written
from penstock.sinks.iceberg_commits import COMMIT, Commits
from penstock.sinks.lake import (
    Sessions,
    column_definitions,
    constant,
    java_map,
    literal_form,
    live_rows,
    merge,
    quoted,
    refuse_other_source,
    table_properties,
    target_type,
)

PIPELINE = "penstock.pipeline"

_PROPERTIES = {
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "hash",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}


class IcebergSink:
    append_only = False

    def __init__(
        self,
        config: SinkConfig,
        spark: SparkSession,
        pipeline: str,
        merged: Mapping[TableId, str] | None = None,
    ) -> None:
        """`merged`: targets that many source tables have together, with the column that tells them apart."""
        self._config = config
        self._spark = spark
        self._pipeline = pipeline
        self._merged = merged or {}
        self._commits = Commits(pipeline)
        self._sessions = Sessions(spark)

    def check(self) -> None:
        if self._config.path is not None:
            check_directory(self._config.path)
        try:
            # Spark creates catalogs on first use, and Iceberg's own lookup of tables does not count as use.
            self._spark._jsparkSession.sessionState().catalogManager().catalog(self._config.catalog)
        except Py4JJavaError as error:
            raise ConfigError(
                f"Spark cannot set up the catalog {self._config.catalog}: "
                f"{error.java_exception.getMessage()}.",
                hint=f"Check `sink.catalog` and spark.sql.catalog.{self._config.catalog}* in `spark.conf`.",
            ) from error

    def open(self, table: TableId) -> TargetState:
        name = self.name(table)
        if not self._spark.catalog.tableExists(name):
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
        columns = [field.name() for field in target.schema().columns()]
        snapshot = target.currentSnapshot()
        empty = snapshot is None or snapshot.summary().get("total-records") == "0"
        return Ours(self._commits.last(target, ""), source_columns(columns), empty)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        refuse_own_names(schema)
        refuse_foreign(schema.table, self.open(schema.table))
        levels = [self._config.catalog]
        levels += map(catalog_name, namespace_levels(self._config.namespace, schema.table))
        for depth in range(2, len(levels) + 1):
            namespace = ".".join(quoted(level) for level in levels[:depth])
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        properties = {
            **_PROPERTIES,
            PIPELINE: self._pipeline,
            "penstock.format": FORMAT,
            SOURCE: str(schema.table),
            **shape(self._merged.get(schema.table)),
        }
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name(schema.table)} "
            f"({column_definitions(target_type(arrow))}) USING iceberg {table_properties(properties)}"
        )
        refuse_other_source(self, schema.table)

    def drop(self, table: TableId) -> None:
        if isinstance(self.open(table), Ours):
            self._spark.sql(f"DROP TABLE {self.name(table)} PURGE")

    def clear(self, table: TableId) -> None:
        try:
            state = self.open(table)
            refuse_foreign(table, state)
            if isinstance(state, Ours):
                refuse_other_source(self, table)
            self.drop(table)
        except (Py4JJavaError, PySparkException):  # it cannot be read
            if self._config.path is None:
                raise
            with suppress(FileNotFoundError):
                shutil.rmtree(self._path(table))

    def _path(self, table: TableId) -> Path:
        assert self._config.path is not None
        levels = (*namespace_levels(self._config.namespace, table), table.table)
        return self._config.path.joinpath(*map(catalog_name, levels))

    def identity(self, table: TableId) -> str | None:
        return None

    def move(self, moves: Sequence[Move]) -> list[Move]:
        raise InternalError("The iceberg sink moves no targets.")

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        target = self._load(table)
        writer = file_writer(target)
        if writer is None:
            frame = live_rows(rows.frame).writeTo(self.name(table))
            frame.option(f"snapshot-property.{COMMIT}", str(commit)).append()
            return self._record(table, commit)
        files = written(rows.through(writer, WRITTEN))
        self._add_files(target, files, commit)
        self._maintain(table, commit)
        return True

    def _add_files(self, target: Any, files: list[str], commit: Commit) -> None:
        """One commit: the files, and the commit's key beside them."""
        iceberg = self._jvm.org.apache.iceberg
        transaction = target.newTransaction()
        if files:
            append = transaction.newAppend()
            metrics = iceberg.MetricsConfig.forTable(target)
            for file in files:
                data = target.io().newInputFile(file)
                append.appendFile(
                    iceberg.DataFiles.builder(target.spec())
                    .withInputFile(data)
                    .withFormat("parquet")
                    .withMetrics(iceberg.parquet.ParquetUtil.fileMetrics(data, metrics))
                    .build()
                )
            append.set(COMMIT, str(commit)).commit()
        self._commits.record(transaction, transaction.table(), commit)
        transaction.commitTransaction()

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        with self._session(commit) as session:
            merge(session, table, self.name(table), rows, key)
        return self._record(table, commit)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        if self._done(table, commit):
            return False
        transaction = self._load(table).newTransaction()
        everything = self._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        transaction.newDelete().deleteFromRowFilter(everything).set(COMMIT, str(commit)).commit()
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
        with self._session(commit) as session:
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
        present = self.columns(table)
        changed = changes(table, present, columns, stored=self.stored, widens=widens, narrowing=narrowing)
        waiting = [change for change in changed if change.how == "convert"]
        if waiting:
            self._convert(table, present, waiting)
        with _refused(table):
            self._evolve(table, present, changed, commit, properties)
        return True

    def columns(self, table: TableId) -> StructType:
        self._spark.catalog.refreshTable(self.name(table))
        return self._spark.table(self.name(table)).schema

    def _convert(self, table: TableId, present: StructType, waiting: list[Change]) -> None:
        update = self._load(table).updateSchema()
        for change in waiting:
            if change.aside not in present.names:
                update.addColumn(None, change.aside, self._type(change.kind), None)
        update.commit()
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

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        raise InternalError("The iceberg sink merges; write_changes is for append-only sinks.")

    def version(self, table: TableId) -> str | None:
        snapshot = self._load(table).currentSnapshot()
        return None if snapshot is None else str(snapshot.snapshotId())

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        at = "" if version is None else f" VERSION AS OF {int(version)}"
        return self._spark.sql(f"SELECT * FROM {self.name(table)}{at}")

    # --------------------------------------------------------------------------------------------------------

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def name(self, table: TableId) -> str:
        levels = (*namespace_levels(self._config.namespace, table), table.table)
        return ".".join(quoted(level) for level in (self._config.catalog, *map(catalog_name, levels)))

    def _session(self, commit: Commit) -> Any:
        return self._sessions.lend({f"spark.sql.iceberg.snapshot-property.{COMMIT}": str(commit)})

    def _load(self, table: TableId) -> Any:
        spark = self._jvm.org.apache.iceberg.spark.Spark3Util
        return spark.loadIcebergTable(self._spark._jsparkSession, self.name(table))

    def _unless_occupied(self, table: TableId) -> Missing | Foreign:
        if self._config.path is None:
            return Missing()
        path = self._path(table)
        if path.is_file() or (path.is_dir() and any(path.iterdir()) and not is_half_made(path)):
            cure = "Name another `sink.path`, or move what is there away."
            return Foreign(str(path), "it holds something that is not an Iceberg table", cure)
        return Missing()

    def _done(self, table: TableId, commit: Commit) -> bool:
        check_pipeline(commit, self._pipeline)
        return is_recorded(commit, self.last_commit(table, commit.source))

    def _record(self, table: TableId, commit: Commit) -> bool:
        target = self._load(table)
        self._commits.record(target, target, commit)
        self._maintain(table, commit)
        return True

    def _maintain(self, table: TableId, commit: Commit) -> None:
        if commit.epoch % self._config.maintain_epochs == 0:
            self._expire(self._load(table))

    def _expire(self, target: Any) -> None:
        before_ms = int(time.time() * 1000) - self._config.snapshots_age
        target.expireSnapshots().expireOlderThan(before_ms).retainLast(self._config.snapshots_keep).commit()

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
            f"`penstock resnapshot FILE {table}`.",
            table=str(table),
        ) from error


def widens(old: DataType, kind: DataType) -> bool:
    if isinstance(old, DecimalType) and isinstance(kind, DecimalType):
        return old.scale == kind.scale and old.precision <= kind.precision
    pair = (type(old), type(kind))
    return pair in ((IntegerType, LongType), (FloatType, DoubleType))


_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
"""Iceberg's names of the types that a target can have; decimals are told by their parameters."""


def is_half_made(path: Path) -> bool:
    """Whether a directory holds only what making a table begins with.

    A Hadoop catalog writes the first metadata under a name of its own and then gives it the name that makes
    the table. A process that was killed between the two leaves this behind; the table can be made over it."""
    if [entry.name for entry in path.iterdir()] != ["metadata"]:
        return False
    names = [file.name for file in (path / "metadata").iterdir()]
    return all(re.fullmatch(r"\.?[0-9a-f-]{36}\.metadata\.json(\.crc)?", name) for name in names)


def file_writer(target: Any) -> FileWriter | None:
    """Writes data files of a table as its tasks' own work. None: the table needs Spark's writer, because
    somebody gave it partitions, another format or a place that is not a local directory."""
    properties = target.properties()
    directory = urlsplit(target.locationProvider().newDataLocation("file"))
    plain = target.spec().isUnpartitioned() and properties.get("write.format.default") in (None, "parquet")
    if directory.scheme not in ("", "file") or not plain:
        return None
    fields = []
    for column in target.schema().columns():
        kind = _arrow_type(column.type().toString())
        if kind is None:
            return None
        fields.append(pa.field(column.name(), kind, metadata={"PARQUET:field_id": str(column.fieldId())}))
    codec = properties.get("write.parquet.compression-codec") or "zstd"
    if codec not in ("zstd", "gzip", "snappy", "lz4"):
        codec = "none"
    folder = str(Path(unquote(directory.path) if directory.scheme else directory.path).parent)
    return FileWriter(folder, pa.schema(fields), codec)


def _arrow_type(name: str) -> pa.DataType | None:
    decimal = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", name)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _ARROW.get(name)
