"""Delta tables, one directory per table, with deletion vectors.

Why a replay changes nothing: the commit's key is Delta's own transaction identifier (`txnAppId`,
`txnVersion`), which Delta stores in the same log entry as the rows. Delta ignores a second write under one
version, so the version counts epoch and step.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.config import SinkConfig
from penstock.errors import InternalError
from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import (
    FORMAT,
    AddedColumn,
    Commit,
    First,
    Foreign,
    Missing,
    Ours,
    TargetState,
    check_directory,
    check_pipeline,
    directory_name,
    is_recorded,
    namespace_levels,
    refuse_foreign,
    refuse_own_names,
    source_columns,
)
from penstock.sinks.files import Rows
from penstock.sinks.lake import (
    Sessions,
    column_definitions,
    live_rows,
    merge_sql,
    quoted,
    shared_view,
    spark_type,
    table_properties,
    target_type,
    text,
)

PIPELINE = "penstock.pipeline"
COMMIT = "penstock.commit"

_STEP_BITS = 16

_PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    # Column names may hold any character, and columns can be renamed and dropped without rewriting files.
    "delta.columnMapping.mode": "name",
    "delta.feature.timestampNtz": "supported",
}


class DeltaSink:
    append_only = False

    def __init__(self, config: SinkConfig, spark: SparkSession, pipeline: str) -> None:
        assert config.path is not None
        self._config = config
        self._root = config.path
        self._spark = spark
        self._pipeline = pipeline
        self._sessions = Sessions(spark)

    def check(self) -> None:
        check_directory(self._root)

    def open(self, table: TableId) -> TargetState:
        path = self.path(table)
        if not path.exists():
            return Missing()
        if path.is_dir() and not any(path.iterdir()):
            return Missing()
        if not (path / "_delta_log").is_dir():
            cure = "Name another `sink.path`, or move what is there away."
            return Foreign(str(path), "it holds something that is not a Delta table", cure)
        snapshot = self._snapshot(table)
        if snapshot.version() < 0:
            return Missing()
        owner = snapshot.metadata().configuration().get(PIPELINE)
        owner = owner.get() if owner.isDefined() else None
        if owner != self._pipeline:
            reason = (
                "a table that Penstock did not create" if owner is None else f"the table of pipeline {owner}"
            )
            cure = "Name another `sink.namespace` or `sink.path`, or remove the table if nobody needs it."
            return Foreign(str(path), reason, cure)
        columns = source_columns(list(snapshot.schema().fieldNames()))
        return Ours(self._last_commit(snapshot), columns, snapshot.numOfFiles() == 0)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        refuse_own_names(schema)
        refuse_foreign(schema.table, self.open(schema.table))
        properties = {
            **_PROPERTIES,
            PIPELINE: self._pipeline,
            "penstock.format": FORMAT,
            "penstock.source": str(schema.table),
        }
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._name(schema.table)} "
            f"({column_definitions(target_type(arrow))}) USING delta {table_properties(properties)}"
        )

    def drop(self, table: TableId) -> None:
        if isinstance(self.open(table), Ours):
            shutil.rmtree(self.path(table))
            self._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        writer = live_rows(rows.frame).write.format("delta").mode("append")
        for name, value in self._transaction(commit).items():
            writer = writer.option(name, value)
        writer.save(str(self.path(table)))
        return True

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        with self._session(commit) as session, shared_view(rows.frame) as view:
            session.sql(merge_sql(self._name(table), view, rows.frame, key))
        return self._record(table, commit)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        return self._delete(table, "true", commit)

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        return self._delete(table, f"{SEQUENCE} < {int(sequence)}", commit)

    def _delete(self, table: TableId, condition: str, commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        with self._session(commit) as session:
            session.sql(f"DELETE FROM {self._name(table)} WHERE {condition}")
        return self._record(table, commit)

    def add_columns(self, table: TableId, columns: list[AddedColumn], commit: Commit) -> bool:
        # Delta has no defaults for existing rows: columns first, then their values under the commit's key.
        # Killed in between, the columns that are there are skipped and the values are written again.
        if self._done(table, commit):
            return False
        present = {name.lower() for name in self._snapshot(table).schema().fieldNames()}
        last = source_columns(list(self._snapshot(table).schema().fieldNames()))[-1]
        for added in columns:
            name = added.column.name
            if name.lower() not in present:
                place = "FIRST" if isinstance(added.after, First) else f"AFTER {quoted(added.after or last)}"
                kind = spark_type(added.field).simpleString()
                self._spark.sql(
                    f"ALTER TABLE {self._name(table)} ADD COLUMNS ({quoted(name)} {kind} {place})"
                )
            last = name if added.after is None else last
        values = [
            f"{quoted(added.column.name)} = {added.default}" for added in columns if added.default is not None
        ]
        if values:
            with self._session(commit) as session:
                session.sql(f"UPDATE {self._name(table)} SET {', '.join(values)}")
        return self._record(table, commit)

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        raise InternalError("The delta sink merges; write_changes is for append-only sinks.")

    def version(self, table: TableId) -> str | None:
        return str(self._snapshot(table).version())

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(str(self.path(table)))

    def path(self, table: TableId) -> Path:
        """The directory of a table's target."""
        levels = (*namespace_levels(self._config.namespace, table), table.table)
        return self._root.joinpath(*[directory_name(level) for level in levels])

    # --------------------------------------------------------------------------------------------------------

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _name(self, table: TableId) -> str:
        return f"delta.{quoted(str(self.path(table)))}"

    def _transaction(self, commit: Commit) -> dict[str, str]:
        return {"txnAppId": _application(self._pipeline), "txnVersion": str(transaction_version(commit))}

    def _session(self, commit: Commit) -> Any:
        prefix = "spark.databricks.delta.write."
        return self._sessions.lend(
            {prefix + name: value for name, value in self._transaction(commit).items()}
        )

    def _snapshot(self, table: TableId) -> Any:
        jvm = self._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            self._spark._jsparkSession, str(self.path(table))
        )
        return log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())

    def _done(self, table: TableId, commit: Commit) -> bool:
        check_pipeline(commit, self._pipeline)
        return is_recorded(commit, self._last_commit(self._snapshot(table)))

    def _record(self, table: TableId, commit: Commit) -> bool:
        """A write that changed no row leaves no log entry, and with it no key: then it is recorded by
        itself."""
        if not is_recorded(commit, self._last_commit(self._snapshot(table))):
            self._spark.sql(
                f"ALTER TABLE {self._name(table)} SET TBLPROPERTIES ({text(COMMIT)} = {text(str(commit))})"
            )
        return True

    def _last_commit(self, snapshot: Any) -> Commit | None:
        version = snapshot.transactions().get(_application(self._pipeline))
        written = commit_of(self._pipeline, version.get()) if version.isDefined() else None
        recorded = snapshot.metadata().configuration().get(COMMIT)
        noted = Commit.parse(recorded.get()) if recorded.isDefined() else None
        return max((one for one in (written, noted) if one is not None), default=None)


def transaction_version(commit: Commit) -> int:
    """Epoch and step as one number that grows with them."""
    if commit.step >= 1 << _STEP_BITS:
        raise InternalError(
            f"Step {commit.step} of an epoch: more than Delta's transaction version has room for."
        )
    return (commit.epoch << _STEP_BITS) | commit.step


def commit_of(pipeline: str, version: int) -> Commit:
    return Commit(pipeline, version >> _STEP_BITS, version & ((1 << _STEP_BITS) - 1))


def _application(pipeline: str) -> str:
    return f"penstock-{pipeline}"
