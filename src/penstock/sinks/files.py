"""Parquet files that Spark's tasks write with pyarrow.

The core decodes rows to Arrow. Passing them through Spark's row format to its Parquet writer costs more than
decoding them (measured: 800,000 rows of 15 columns on two cores take 8 s instead of 1.5 s). So where files
only have to be added, the tasks that decode the rows also write them, and the sink makes the files visible by
its own commit. Every file gets a new name. So nothing is replaced, and a file that no commit names is garbage
but never a wrong result.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import InternalError
from penstock.model.change import DELETED
from penstock.sinks.names import source_columns
from penstock.sinks.rows import Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_BYTES = 32 * 1024**2
"""Size of a row group as Arrow. A task holds one in memory while it writes."""

FILE_BYTES_MAX = 256 * 1024**2
"""A file is closed once it has this size. It may exceed it by one row group."""

FIELD_ID = b"PARQUET:field_id"

WRITTEN = "path string"
"""Schema of the result of `FileWriter`."""
MERGED = "path string, holds string"
"""Schema of the result of `MergeWriter`."""


@dataclass(frozen=True)
class FileWriter:
    """Writes a task's batches to files, without the rows marked as `_deleted`, and returns the files' paths.

    `fields`: the columns of the files; a field id is in a field's metadata. `sources`: the rows' column for
    each field, if the names differ. `optional`: columns that the rows may lack; they become NULL. `strict`:
    the files must take every column of the rows. Pickles.
    """

    directory: str
    fields: pa.Schema
    compression: str = "zstd"
    optional: frozenset[str] = frozenset()
    sources: tuple[str, ...] | None = None
    strict: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows that are written, one for each field."""
        return tuple(self.fields.names) if self.sources is None else self.sources

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array(self.files(batches), pa.string())], ["path"])

    def files(self, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
        """Writes the files. Yields the path of each when its content is durable."""
        started: list[Path] = []
        try:
            yield from self._write(self._groups(batches), started)
        except Exception:  # the task will be tried again, and writes other files then
            for path in started:
                path.unlink(missing_ok=True)
            raise

    def empty_file(self) -> str:
        """Writes a file without rows. Returns its path when its content is durable."""
        return self._write_file(None, iter(()), [])[0]

    def _write(self, groups: Iterator[pa.Table], started: list[Path]) -> Iterator[str]:
        group = next(groups, None)
        while group is not None:
            path, group = self._write_file(group, groups, started)
            yield path

    def _write_file(
        self, group: pa.Table | None, groups: Iterator[pa.Table], started: list[Path]
    ) -> tuple[str, pa.Table | None]:
        """Writes one file, beginning with `group`. Returns its path, and the group with which the next file
        begins."""
        path = Path(self.directory, f"{uuid.uuid4()}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        started.append(path)
        with open(path, "xb") as file:
            writer = pq.ParquetWriter(
                file, self.fields, compression=self.compression, store_decimal_as_integer=True
            )
            with writer:
                while group is not None and file.tell() < FILE_BYTES_MAX:
                    writer.write_table(group, row_group_size=group.num_rows)
                    group = next(groups, None)
            file.flush()
            os.fsync(file.fileno())
        return str(path), group

    def _groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The rows in tables of about `ROW_GROUP_BYTES`, none of them empty."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            part = self._in_fields(batch)
            if not part.num_rows:
                continue
            waiting.append(part)
            size += part.nbytes
            if size >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
        if waiting:
            yield pa.Table.from_batches(waiting)

    def _in_fields(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if DELETED in batch.schema.names:
            deleted = batch.column(DELETED)
            if pc.any(deleted).as_py():
                batch = batch.filter(pc.invert(deleted))
        if self.strict and (missing := set(source_columns(batch.schema.names)) - set(self.columns)):
            raise InternalError(f"The target lacks the column {min(missing)}, which the rows have.")
        arrays = [
            self._column(batch, name, field.type)
            for name, field in zip(self.columns, self.fields, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.fields)

    def _column(self, batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
        place = batch.schema.get_field_index(name)
        if place >= 0:
            return _cast(batch.column(place), kind)
        if name in self.optional:
            return pa.nulls(batch.num_rows, kind)
        raise InternalError(f"The rows lack the column {name}, which their target has.")


@dataclass(frozen=True)
class MergeWriter:
    """Writes a task's batches to files of rows, and their keys to files of keys. Returns the path of each
    file with `rows` or `keys`. If a key contains NULL, it deletes the files and returns only `null`.
    Pickles."""

    rows: FileWriter
    keys: FileWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        found = self.files(batches)
        arrays = [pa.array([one[place] for one in found], pa.string()) for place in (0, 1)]
        yield pa.RecordBatch.from_arrays(arrays, ["path", "holds"])

    def files(self, batches: Iterable[pa.RecordBatch]) -> list[tuple[str, str]]:
        keys: list[pa.RecordBatch] = []
        has_null = False

        def collecting_keys() -> Iterator[pa.RecordBatch]:
            nonlocal has_null
            for batch in batches:
                keys.append(batch.select(list(self.keys.columns)))
                has_null = has_null or any(column.null_count for column in keys[-1].columns)
                if has_null:
                    return
                yield batch

        found = [(path, "rows") for path in self.rows.files(collecting_keys())]
        if has_null:
            for path, _ in found:
                Path(path).unlink()
            return [("", "null")]
        return found + [(path, "keys") for path in self.keys.files(keys)]


def written(frame: DataFrame) -> list[str]:
    """Runs the tasks of `Rows.through(FileWriter(…), WRITTEN)`. Returns the paths of the files."""
    return [str(row[0]) for row in frame.collect()]


def merged(frame: DataFrame) -> dict[str, list[str]]:
    """Runs the tasks of `Rows.through(MergeWriter(…), MERGED)`. Returns the paths as `by_content` does."""
    return by_content((row[0], row[1]) for row in frame.collect())


def by_content(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The paths that `MergeWriter` returned, by `rows`, `keys` and `null`."""
    paths: dict[str, list[str]] = {"rows": [], "keys": [], "null": []}
    for path, holds in found:
        paths[holds].append(path)
    return paths


def field_id(field: pa.Field) -> int | None:
    """The field id that a Parquet file gives for a column. None: it gives none."""
    known = (field.metadata or {}).get(FIELD_ID)
    return None if known is None else int(known)


def _cast(array: Any, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)
