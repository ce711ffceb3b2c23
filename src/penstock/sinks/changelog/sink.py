"""A change log in Parquet: one directory per table, in it one per commit. Append-only.

Why a reader never sees half an epoch nor one twice: files are written below `_staging/`, which readers skip,
and appear by one rename of their directory to `penstock_commit=e…s…`. That this directory exists is the
record of the commit; `_penstock.json` keeps the newest one too, so that old directories may be deleted. Spark
and pyarrow read the table's directory as it is, and `penstock_commit` as one more column.
"""

from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StringType, StructField, StructType

from penstock.disk.replace import sync
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import (
    FORMAT,
    Commit,
    EvolvedColumn,
    Foreign,
    Missing,
    Narrowing,
    Ours,
    TargetState,
)
from penstock.sinks.changelog.registration import ParquetOptions
from penstock.sinks.files import WRITTEN, FileWriter, Rows, converted, written
from penstock.sinks.names import (
    OWN_COLUMNS,
    directory_name,
    namespace_levels,
    refuse_columns,
    refuse_own_names,
    source_columns,
)
from penstock.sinks.refusals import (
    check_directory,
    check_pipeline,
    is_recorded,
    refuse_foreign,
    refuse_shared,
)
from penstock.sinks.spark_sql import holds, spark_type

PARTITION = "penstock_commit"
MARKER = "_penstock.json"
STAGING = "_staging"
SCHEMA = "_common_metadata"
"""Spark takes the schema of a directory from this file, so a column added later is seen."""

_OWN_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(SEQUENCE, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC")),
)


class ParquetSink:
    def __init__(self, options: ParquetOptions, spark: SparkSession, pipeline: str) -> None:
        self._options = options
        self._root = options.path
        self.before_images = options.before_images
        self._spark = spark
        self._pipeline = pipeline
        self._markers = threading.Lock()

    def check(self) -> None:
        check_directory(self._root)

    def open(self, table: TableId) -> TargetState:
        path = self.path(table)
        marker = self._marker(table)
        if marker is None:
            if not path.exists() or (
                path.is_dir() and all(entry.name == STAGING for entry in path.iterdir())
            ):
                return Missing()
            cure = "Name another `sink.path`, or move what is there away."
            return Foreign(str(path), "it holds something that is not a change log of Penstock", cure)
        if marker["pipeline"] != self._pipeline:
            cure = "Name another `sink.namespace` or `sink.path`, or remove it if nobody needs it."
            return Foreign(str(path), f"the change log of pipeline {marker['pipeline']}", cure)
        columns = tuple(name for name in source_columns(_schema(marker).names) if name not in _gone(marker))
        return Ours(self._last_commit(table, marker), columns, not any(path.glob(f"{PARTITION}=*")))

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        refuse_own_names(schema)
        refuse_foreign(schema.table, self.open(schema.table))
        if self._marker(schema.table) is None:
            names = source_columns(arrow.names)
            fields = [arrow.field(name).with_nullable(True) for name in names]
            self._write_marker(
                schema.table,
                {
                    "format": FORMAT,
                    "pipeline": self._pipeline,
                    "source": str(schema.table),
                    "last_commit": None,
                    "schema": _text_of(pa.schema([*fields, *_OWN_FIELDS])),
                },
            )
        marker = self._marker(schema.table)
        refuse_shared(schema.table, str(self.path(schema.table)), marker["source"] if marker else None)

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        staged = self._staged(table, commit)
        marker = self._marker(table)
        writer = FileWriter(str(staged), _schema(marker), optional=_gone(marker))
        files = set(written(rows.through(writer, WRITTEN)))
        staged.mkdir(parents=True, exist_ok=True)
        for path in staged.iterdir():
            if str(path) not in files:  # of a task that failed and was tried again
                path.unlink()
        return self._publish(table, staged, commit)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        if self._done(table, commit):
            return False
        schema = _schema(self._marker(table))
        own = {CHANGE_TYPE: "truncate", SEQUENCE: sequence, COMMIT_TIMESTAMP: timestamp_us}
        arrays = [pa.array([own.get(field.name)], type=field.type) for field in schema]
        staged = self._staged(table, commit)
        staged.mkdir(parents=True)
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), staged / "part-00000.parquet")
        return self._publish(table, staged, commit)

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        """A change log says what was: files stay as they are, and the new columns hold from here on. A column
        that was renamed begins under its new name; a dropped one stays readable. Only where one name would
        have two types that no reader takes for one, older files are converted, each atomically."""
        if self._done(table, commit):
            return False
        refuse_columns(table, [column.field.name for column in columns])
        marker = self._marker(table)
        assert marker is not None
        known = {field.name.lower(): field for field in _schema(marker) if field.name not in OWN_COLUMNS}
        fields = [
            _from_here_on(column.field, known.get(column.field.name.lower()), narrowing) for column in columns
        ]
        for field in fields:
            old = known.pop(field.name.lower(), None)
            if old is not None and not _reads_as(old.type, field.type):
                self._convert(table, field)
        schema = pa.schema([*fields, *known.values(), *_OWN_FIELDS])
        gone = [field.name for field in known.values()]
        changed = {"schema": _text_of(schema), "gone": gone, "last_commit": str(commit)}
        self._write_marker(table, {**marker, **changed})
        return True

    def _convert(self, table: TableId, field: pa.Field) -> None:
        for path in sorted(self.path(table).glob(f"{PARTITION}=*/*.parquet")):
            with pq.ParquetFile(path) as file:
                schema = file.schema_arrow
                place = schema.get_field_index(field.name)
                if place < 0 or schema.field(place).type == field.type:
                    continue
                draft = path.parent.parent / STAGING / path.name
                draft.parent.mkdir(exist_ok=True)
                changed = schema.set(place, field)
                with pq.ParquetWriter(draft, changed, compression="zstd") as writer:
                    for number in range(file.num_row_groups):
                        group = file.read_row_group(number)
                        values = [converted(chunk, field.type) for chunk in group.column(place).chunks]
                        column = pa.chunked_array(values, field.type)
                        writer.write_table(group.set_column(place, field, column))
            sync(draft)
            draft.replace(path)

    def version(self, table: TableId) -> str | None:
        last = self._last_commit(table, self._marker(table))
        return None if last is None else _directory(last)

    def hold(self, table: TableId) -> str | None:
        return self.version(table)

    def close(self) -> None:
        pass

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        fields = [StructField(field.name, spark_type(field)) for field in _schema(self._marker(table))]
        schema = StructType([*fields, StructField(PARTITION, StringType())])
        if not any(self.path(table).glob(f"{PARTITION}=*")):
            return self._spark.createDataFrame([], StructType(fields))
        frame = self._spark.read.schema(schema).parquet(str(self.path(table)))
        if version is not None:
            frame = frame.where(col(PARTITION) <= version)
        return frame.drop(PARTITION)

    def path(self, table: TableId) -> Path:
        """The directory of a table's change log."""
        levels = (*namespace_levels(self._options.namespace, table), table.table)
        return self._root.joinpath(*[directory_name(level) for level in levels])

    # --------------------------------------------------------------------------------------------------------

    def _staged(self, table: TableId, commit: Commit) -> Path:
        staged = self.path(table) / STAGING / _directory(commit)
        shutil.rmtree(staged, ignore_errors=True)
        return staged

    def _publish(self, table: TableId, staged: Path, commit: Commit) -> bool:
        for file in staged.iterdir():
            sync(file)
        sync(staged)
        staged.rename(self.path(table) / f"{PARTITION}={_directory(commit)}")
        sync(self.path(table))
        marker = self._marker(table)
        assert marker is not None
        self._write_marker(table, {**marker, "last_commit": str(commit)})
        return True

    def _done(self, table: TableId, commit: Commit) -> bool:
        check_pipeline(commit, self._pipeline)
        return is_recorded(commit, self._last_commit(table, self._marker(table)))

    def _last_commit(self, table: TableId, marker: dict[str, Any] | None) -> Commit | None:
        found = [_commit(self._pipeline, path.name) for path in self.path(table).glob(f"{PARTITION}=*")]
        if marker is not None and marker["last_commit"] is not None:
            found.append(Commit.parse(marker["last_commit"]))
        return max(found, default=None)

    def _marker(self, table: TableId) -> dict[str, Any] | None:
        try:
            marker: dict[str, Any] = json.loads((self.path(table) / MARKER).read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return marker

    def _write_marker(self, table: TableId, marker: dict[str, Any]) -> None:
        path = self.path(table)
        path.mkdir(parents=True, exist_ok=True)
        temporary = path / f"{MARKER}.tmp"
        temporary.write_text(json.dumps(marker, ensure_ascii=False), "utf-8")
        sync(temporary)
        temporary.replace(path / MARKER)
        # After the marker, which is what counts; written again on the next commit if we are killed in
        # between.
        summary = path / f"{SCHEMA}.tmp"
        pq.write_metadata(_schema(marker), summary)
        summary.replace(path / SCHEMA)


def _directory(commit: Commit) -> str:
    """Sorts like the commits, and no reader takes it for a number or a date."""
    return f"e{commit.epoch:012d}s{commit.step:04d}"


def _commit(pipeline: str, directory: str) -> Commit:
    epoch, _, step = directory.removeprefix(f"{PARTITION}=e").partition("s")
    return Commit(pipeline, int(epoch), int(step))


def _from_here_on(field: pa.Field, old: pa.Field | None, narrowing: Narrowing) -> pa.Field:
    """The column in new files: of the wider type where that holds what the new one can."""
    if old is None:
        return field.with_nullable(True)
    field = field.with_name(old.name)  # a name in other letters is the same name to readers
    keeps = narrowing == "keep" and holds(spark_type(old), spark_type(field))
    return old if keeps else field.with_nullable(True)


def _reads_as(old: pa.DataType, kind: pa.DataType) -> bool:
    """Whether files with the old type are read by plain readers as the new one."""
    if old == kind:
        return True
    integers = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    if old in integers and kind in integers:
        return integers.index(old) < integers.index(kind)
    return bool(old == pa.float32() and kind == pa.float64())


def _schema(marker: dict[str, Any] | None) -> pa.Schema:
    assert marker is not None
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(marker["schema"])))


def _gone(marker: dict[str, Any] | None) -> frozenset[str]:
    """Columns that the source has no longer; they stay readable."""
    return frozenset(marker.get("gone", ())) if marker is not None else frozenset()


def _text_of(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
