"""A change log in Parquet files: one directory per table, which contains one directory per commit.

A reader never sees half an epoch, and never an epoch twice. Files are written below `_staging/`, which
readers skip. Then one rename of their directory to `penstock_commit=e…s…` makes them visible. The existence
of this directory records the commit. `_penstock.json` records the newest commit, too, so that old directories
may be deleted. Spark and pyarrow read the table's directory directly, with `penstock_commit` as one more
column.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StringType, StructField, StructType

from penstock.disk.replace import PUBLIC, replace_by, replace_file, sync
from penstock.errors import ConfigError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
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
from penstock.sinks.changelog.options import ParquetOptions
from penstock.sinks.files import WRITTEN, FileWriter, written
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
    of_other_pipeline,
    refuse_foreign,
    refuse_shared,
)
from penstock.sinks.rows import Rows, converted
from penstock.sinks.spark_sql import holds, spark_type
from penstock.store.files import Folder

PARTITION = "penstock_commit"
MARKER = "_penstock.json"
"""The file that makes a directory a change log: its pipeline, source table, columns and newest commit."""
MARKER_DRAFT = "_penstock.json.tmp"
STAGING = "_staging"
SCHEMA = "_common_metadata"
"""Spark reads the schema of the directory from this file, so that it sees columns that were added later."""

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

    def check(self) -> None:
        check_directory(self._root)

    def open(self, table: TableId) -> TargetState:
        path = self.path(table)
        marker = self._marker(table)
        if marker is None:
            leftovers = {STAGING, MARKER_DRAFT}  # of a process that was killed while it created the target
            if not path.exists() or (
                path.is_dir() and all(entry.name in leftovers for entry in path.iterdir())
            ):
                return Missing()
            cure = "Name another `sink.path`, or move what is there away."
            return Foreign(str(path), "it holds something that is not a change log of Penstock", cure)
        if marker["pipeline"] != self._pipeline:
            cure = "Name another `sink.namespace` or `sink.path`, or remove it if nobody needs it."
            return of_other_pipeline(str(path), "change log", marker["pipeline"], cure)
        columns = tuple(
            name for name in source_columns(_schema(marker).names) if name not in _dropped(marker)
        )
        return Ours(self._last_commit(table, marker), columns, not any(path.glob(f"{PARTITION}=*")))

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        refuse_own_names(schema, self._options.reserved)
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
        writer = FileWriter(Folder.local(staged), _schema(marker), optional=_dropped(marker))
        files = {file.location for file in written(rows.through(writer, WRITTEN))}
        staged.mkdir(parents=True, exist_ok=True)
        for path in staged.iterdir():
            if str(path) not in files:  # left by a task that failed and was run again
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
        """Existing files stay as they are, and new files have the new columns. A renamed column continues
        under its new name; a dropped column stays readable. If a column's old and new type cannot be read as
        one, older files are converted, each atomically."""
        if self._done(table, commit):
            return False
        refuse_columns(table, [column.field.name for column in columns], self._options.reserved)
        marker = self._marker(table)
        assert marker is not None
        known = {field.name.lower(): field for field in _schema(marker) if field.name not in OWN_COLUMNS}
        fields = [
            _new_field(column.field, known.get(column.field.name.lower()), narrowing) for column in columns
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
            replace_by(path, draft)

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
        # Not `replace_by`: this is a directory, and if one with this name exists, the rename must fail.
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
        path = self.path(table)
        try:
            marker: dict[str, Any] = json.loads((path / MARKER).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise ConfigError(
                f"The change log of {table} is damaged: {path / MARKER} is not JSON.",
                hint=f"Restore the file. If it is lost, move {path} away, run `penstock resnapshot FILE "
                f"{argument(table)}` and start the pipeline: a new change log begins with every row.",
                table=str(table),
                target=str(path),
            ) from error
        return marker

    def _write_marker(self, table: TableId, marker: dict[str, Any]) -> None:
        path = self.path(table)
        path.mkdir(parents=True, exist_ok=True)
        data = json.dumps(marker, ensure_ascii=False).encode()
        replace_file(path / MARKER, data, durable=True, draft=path / MARKER_DRAFT, mode=PUBLIC)
        # After the marker, which counts. After a kill in between, the next commit writes it.
        schema = io.BytesIO()
        pq.write_metadata(_schema(marker), schema)
        replace_file(path / SCHEMA, schema.getvalue(), durable=False, mode=PUBLIC)


def _directory(commit: Commit) -> str:
    """The name of the commit's directory, after `penstock_commit=`. Names sort like commits, and no reader
    mistakes one for a number or a date."""
    return f"e{commit.epoch:012d}s{commit.step:04d}"


def _commit(pipeline: str, directory: str) -> Commit:
    epoch, _, step = directory.removeprefix(f"{PARTITION}=e").partition("s")
    return Commit(pipeline, int(epoch), int(step))


def _new_field(field: pa.Field, old: pa.Field | None, narrowing: Narrowing) -> pa.Field:
    """The column in new files. With `narrowing` "keep", it keeps a wider type that holds every new value."""
    if old is None:
        return field.with_nullable(True)
    field = field.with_name(old.name)  # names that differ only in case are the same to readers
    keeps = narrowing == "keep" and holds(spark_type(old), spark_type(field))
    return old if keeps else field.with_nullable(True)


def _reads_as(old: pa.DataType, kind: pa.DataType) -> bool:
    """Whether common readers can read files with the old type as the new type."""
    if old == kind:
        return True
    integers = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    if old in integers and kind in integers:
        return integers.index(old) < integers.index(kind)
    return bool(old == pa.float32() and kind == pa.float64())


def _schema(marker: dict[str, Any] | None) -> pa.Schema:
    assert marker is not None
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(marker["schema"])))


def _dropped(marker: dict[str, Any] | None) -> frozenset[str]:
    """Columns that the source no longer has. They stay readable."""
    return frozenset(marker.get("gone", ())) if marker is not None else frozenset()


def _text_of(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
