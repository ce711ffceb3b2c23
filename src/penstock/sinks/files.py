"""Parquet files that Spark's tasks write with pyarrow.

The core decodes rows to Arrow. Passing them through Spark's row format to its Parquet writer costs more than
decoding them (measured: 800,000 rows of 15 columns on two cores take 8 s instead of 1.5 s). So where files
only have to be added, the tasks that decode the rows also write them, and the sink makes the files visible by
its own commit. Every file gets a new name. So nothing is replaced, and a file that no commit names is garbage
but never a wrong result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import TableError
from penstock.model.change import DELETED
from penstock.sinks.names import source_columns
from penstock.sinks.rows import Batches
from penstock.store.files import Files, Folder, remove_quietly
from penstock.store.late_files import LateFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_BYTES = 32 * 1024**2
"""Size of a row group as Arrow. A task holds one in memory while it writes."""

DICTIONARY_BYTES_MAX = 32 * 1024
"""A column of a row group is written without a dictionary once its dictionary is larger. With Arrow's limit,
1 MiB, keys and texts that hardly repeat would get one in row groups of this size. Without that, files of
orders are a fifth smaller, and writing them takes a third less time."""

LAID_OUT_BYTES = 64 * 1024**2
"""Rows, as Arrow, that are spread over partitions and sorted at a time. A task holds them twice meanwhile.
They make a file for each of their partitions."""

FILE_BYTES_MAX = 256 * 1024**2
"""A file is closed once it has this size. It may exceed it by one row group."""

BOUND_BYTES_MAX = 256
"""Longer values are not remembered as least or greatest."""

FIELD_ID = b"PARQUET:field_id"

WRITTEN = "location string, size bigint, stats string"
"""Schema of the result of `FileWriter`."""
MERGED = f"{WRITTEN}, holds string"
"""Schema of the result of `MergeWriter`."""

Value = int | float | bytes
"""A value in Parquet's physical form. Integers stand for dates, times and short decimals, bytes for texts and
long decimals."""


Partition = tuple[Any, ...]
"""The values of a file's partition, as the table's format writes them in JSON."""


class Layout(Protocol):
    """How rows are spread over files. Pickles."""

    @property
    def nulls(self) -> Partition:
        """The partition of rows in which every column is NULL."""

    def parts(self, rows: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
        """The rows of each file, in the order in which it has them, and its partition."""


@dataclass(frozen=True)
class ColumnStats:
    """The statistics of a column in the footer of a file."""

    bytes: int
    """Size of the column's compressed values."""
    values: int
    """Number of values, including NULLs."""
    nulls: int | None
    least: Value | None
    """The least value that is not NULL. None: unknown, or all are NULL."""
    greatest: Value | None


@dataclass(frozen=True)
class WrittenFile:
    """A file that was written, with all that a table's metadata has to contain about it, so that nobody needs
    to read its footer."""

    location: str
    size: int
    """Bytes."""
    rows: int
    columns: tuple[ColumnStats, ...]
    """One for each of the writer's `fields`."""
    row_groups: tuple[int, ...]
    """The byte at which each row group starts."""
    partition: Partition = ()

    @classmethod
    def of(cls, location: str, size: int, footer: pq.FileMetaData, fields: pa.Schema) -> WrittenFile:
        groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
        columns = tuple(
            _column_stats([group.column(place) for group in groups], field.type)
            for place, field in enumerate(fields)
        )
        return cls(location, size, footer.num_rows, columns, tuple(_start(group) for group in groups))

    def to_row(self) -> tuple[str, int, str]:
        """The file as a row with the columns of `WRITTEN`."""
        columns = [
            [one.bytes, one.values, one.nulls, _to_json(one.least), _to_json(one.greatest)]
            for one in self.columns
        ]
        stats = {
            "rows": self.rows,
            "columns": columns,
            "row_groups": self.row_groups,
            "partition": self.partition,
        }
        return self.location, self.size, json.dumps(stats, separators=(",", ":"))

    @classmethod
    def from_row(cls, location: str, size: int, stats: str) -> WrittenFile:
        found = json.loads(stats)
        columns = tuple(
            ColumnStats(length, values, nulls, _from_json(least), _from_json(greatest))
            for length, values, nulls, least, greatest in found["columns"]
        )
        partition = tuple(found["partition"])
        return cls(location, size, found["rows"], columns, tuple(found["row_groups"]), partition)


@dataclass(frozen=True)
class FileWriter:
    """Writes a task's batches to files in `folder`, and returns what was written. Rows marked as deleted
    are left out, unless the files have that column.

    `fields`: the columns of the files; a field id is in a field's metadata. `sources`: the rows' column for
    each field, if the names differ. `optional`: columns that the rows may lack; they become NULL. `strict`:
    the files must take every column of the rows. `layout`: how rows are spread over files; without one, in
    the order in which they come. Pickles.
    """

    folder: Folder
    fields: pa.Schema
    compression: str = "zstd"
    optional: frozenset[str] = frozenset()
    sources: tuple[str, ...] | None = None
    strict: bool = False
    layout: Layout | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows that are written, one for each field."""
        return tuple(self.fields.names) if self.sources is None else self.sources

    @property
    def row_fields(self) -> pa.Schema:
        """The fields with the names that the columns have in the rows."""
        pairs = zip(self.fields, self.columns, strict=True)
        return pa.schema([field.with_name(name) for field, name in pairs])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with LateFiles(self.folder.files) as late:
            found = [file.to_row() for file in self.late(late).files(batches)]
            late.settle()
        kinds = (pa.string(), pa.int64(), pa.string())
        arrays = [pa.array([one[place] for one in found], kind) for place, kind in enumerate(kinds)]
        yield pa.RecordBatch.from_arrays(arrays, ["location", "size", "stats"])

    def late(self, files: LateFiles) -> FileWriter:
        """The same writer, except that its files are durable only after `files.settle`."""
        return replace(self, folder=files.in_folder(self.folder))

    def files(self, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
        """Writes the files. Yields each when its content is durable."""
        done: list[str] = []
        try:
            found = self._in_order(batches) if self.layout is None else self._spread(batches, self.layout)
            for file in found:
                done.append(file.location)
                yield file
        except Exception:  # the task will be tried again, and writes other files then
            remove_quietly(self.folder.files, done)
            raise

    def empty_file(self) -> WrittenFile:
        """Writes a file without rows. Returns it when its content is durable."""
        partition = () if self.layout is None else self.layout.nulls
        return replace(self._write_file(None, iter(()))[0], partition=partition)

    def remove(self, files: Iterable[WrittenFile]) -> None:
        """Removes files that nobody needs."""
        self.folder.files.remove([file.location for file in files])

    def _write_file(
        self, group: pa.Table | None, groups: Iterator[pa.Table]
    ) -> tuple[WrittenFile, pa.Table | None]:
        """Writes one file, beginning with `group`. Returns it, and the group with which the next file
        begins."""
        location, footers = self.folder.new(".parquet"), []  # type: ignore[var-annotated]
        with self.folder.files.create(location) as file:
            writer = pq.ParquetWriter(
                file,
                self.fields,
                compression=self.compression,
                store_decimal_as_integer=True,
                dictionary_pagesize_limit=DICTIONARY_BYTES_MAX,
                metadata_collector=footers,
            )
            try:
                while group is not None and file.tell() < FILE_BYTES_MAX:
                    writer.write_table(group, row_group_size=group.num_rows)
                    group = next(groups, None)
            except BaseException:
                with suppress(Exception):  # that the file has no footer is not what went wrong
                    writer.close()
                raise
            writer.close()
            size = file.tell()
        return WrittenFile.of(location, size, footers[0], self.fields), group

    def _in_order(self, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
        groups = self._groups(batches, ROW_GROUP_BYTES)
        group = next(groups, None)
        while group is not None:
            file, group = self._write_file(group, groups)
            yield file

    def _spread(self, batches: Iterable[pa.RecordBatch], layout: Layout) -> Iterator[WrittenFile]:
        """Writes several files at a time: most of it is waiting for the disk or the store."""
        for some in self._groups(batches, LAID_OUT_BYTES):
            parts = [partial(self._write_part, *part) for part in layout.parts(some)]
            for found in side_by_side(self.folder.files, parts, threads=self.folder.files.readers):
                yield from found

    def _write_part(self, partition: Partition, rows: pa.Table) -> list[WrittenFile]:
        groups = _slices(rows)
        file, _ = self._write_file(next(groups), groups)
        return [replace(file, partition=partition)]

    def _groups(self, batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.Table]:
        """The rows in tables of about `bytes_max` bytes, none of them empty."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            part = self.in_fields(batch)
            if not part.num_rows:
                continue
            waiting.append(part)
            size += part.nbytes
            if size >= bytes_max:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
        if waiting:
            yield pa.Table.from_batches(waiting)

    def in_fields(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the columns of the files, in their types, without rows marked as deleted."""
        if DELETED in batch.schema.names and DELETED not in self.fields.names:
            deleted = batch.column(DELETED)
            if pc.any(deleted).as_py():
                batch = batch.filter(pc.invert(deleted))
        if self.strict and (missing := set(source_columns(batch.schema.names)) - set(self.columns)):
            raise _changed(f"The target lacks the column {min(missing)}")
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
        raise _changed(f"The target has the column {name}, which must not be NULL")


def _changed(what: str) -> TableError:
    return TableError(
        f"{what}: somebody has changed the target's columns.",
        hint="Undo that by ALTER TABLE and run `penstock unpark FILE TABLE`, or create the target again: "
        "`penstock resnapshot FILE TABLE --recreate`.",
    )


@dataclass(frozen=True)
class MergeWriter:
    """Writes a task's batches to files of rows, and their keys to files of keys. Says for each file whether
    it holds `rows` or `keys`. If a key contains NULL, it deletes the files and returns only `null`.
    Pickles."""

    rows: FileWriter
    keys: FileWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        found = self.files(batches)
        rows = [("", 0, "", "null")] if found is None else [
            (*file.to_row(), holds)
            for holds, files in (("rows", found.rows), ("keys", found.keys))
            for file in files
        ]  # fmt: skip
        kinds = (pa.string(), pa.int64(), pa.string(), pa.string())
        arrays = [pa.array([one[place] for one in rows], kind) for place, kind in enumerate(kinds)]
        yield pa.RecordBatch.from_arrays(arrays, ["location", "size", "stats", "holds"])

    def files(self, batches: Iterable[pa.RecordBatch]) -> Merged | None:
        """The files. None: a key contains NULL, and there are no files."""
        with LateFiles(self.rows.folder.files) as late:
            found = with_keys(self.rows.late(late), self.keys, batches)
            if found is None:
                return None
            try:
                keys = list(self.keys.late(late).files(found.all_keys(self.keys)))
            except Exception:
                late.remove([file.location for file in found.files])
                raise
            late.settle()
            return Merged(found.files, keys)

    def remove(self, found: Merged) -> None:
        """Removes files that nobody needs."""
        self.rows.remove([*found.rows, *found.keys])


@dataclass(frozen=True)
class Merged:
    """The files that all tasks of a `MergeWriter` have written."""

    rows: Sequence[WrittenFile]
    keys: Sequence[WrittenFile]


@dataclass(frozen=True)
class Keyed:
    """Files of rows. `keys`: for each batch of the rows, the columns of the key, and `DELETED` if the rows
    have it. `in_order`: the files have the rows in the order of the batches."""

    files: list[WrittenFile]
    keys: list[pa.RecordBatch]
    in_order: bool

    def all_keys(self, keys: FileWriter) -> list[pa.RecordBatch]:
        """The keys of all rows, also of deleted ones."""
        return [batch.select(list(keys.columns)) for batch in self.keys]

    def by_file(self, keys: FileWriter) -> dict[str, list[pa.RecordBatch]]:
        """The keys of the rows of each file, by its location, in their order. Empty: they have to be read
        from the files."""
        if not self.in_order:
            return {}
        whole = pa.Table.from_batches([keys.in_fields(batch) for batch in self.keys], keys.fields)
        starts = accumulate((file.rows for file in self.files), initial=0)
        return {
            file.location: whole.slice(start, file.rows).to_batches()
            for file, start in zip(self.files, starts, strict=False)
        }


def with_keys(writer: FileWriter, keys: FileWriter, batches: Iterable[pa.RecordBatch]) -> Keyed | None:
    """Writes files of rows. None: a key contains NULL, and there are no files. `keys`: a writer of the
    key."""
    found: list[pa.RecordBatch] = []
    has_null = False

    def collecting_keys() -> Iterator[pa.RecordBatch]:
        nonlocal has_null
        for batch in batches:
            key = [batch.column(name) for name in keys.columns]
            names = [*keys.columns, *([DELETED] if DELETED in batch.schema.names else [])]
            found.append(batch.select(names))
            has_null = has_null or any(column.null_count for column in key)
            if has_null:
                return
            yield batch

    files = list(writer.files(collecting_keys()))
    if has_null:
        writer.remove(files)
        return None
    return Keyed(files, found, writer.layout is None)


def side_by_side(
    files: Files, writes: Iterable[Callable[[], list[WrittenFile]]], *, threads: int
) -> list[list[WrittenFile]]:
    """Runs these functions in threads, and returns the files that each of them has written. If one fails, the
    files of all are removed."""
    with ThreadPoolExecutor(threads, thread_name_prefix="files") as pool:
        writing = [pool.submit(write) for write in writes]
    failed = [one for one in writing if one.exception() is not None]
    if failed:
        done = [file.location for one in writing if one not in failed for file in one.result()]
        remove_quietly(files, done)
        failed[0].result()
    return [one.result() for one in writing]


def written(frame: DataFrame) -> list[WrittenFile]:
    """Runs the tasks of `Rows.through(FileWriter(…), WRITTEN)`."""
    return [WrittenFile.from_row(*row) for row in frame.collect()]


def merged(frame: DataFrame, writer: MergeWriter) -> Merged | None:
    """Runs the tasks of `Rows.through(writer, MERGED)`. None: a key contains NULL, and no file is left."""
    found: dict[str, list[WrittenFile]] = {"rows": [], "keys": []}
    has_null = False
    for location, size, stats, holds in frame.collect():
        if holds == "null":
            has_null = True
        else:
            found[holds].append(WrittenFile.from_row(location, size, stats))
    everything = Merged(found["rows"], found["keys"])
    if has_null:
        writer.remove(everything)
        return None
    return everything


def _slices(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in tables of at most about `ROW_GROUP_BYTES`."""
    count = max(1, -(-rows.nbytes // ROW_GROUP_BYTES))
    step = max(1, -(-rows.num_rows // count))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def field_id(field: pa.Field) -> int | None:
    """The field id that a Parquet file gives for a column. None: it gives none."""
    known = (field.metadata or {}).get(FIELD_ID)
    return None if known is None else int(known)


def _cast(array: Any, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _column_stats(chunks: Sequence[Any], kind: pa.DataType) -> ColumnStats:
    """Sums up the statistics of a column's chunks, one in each row group. A list has none."""
    found = [chunk.statistics for chunk in chunks if chunk.is_stats_set and not pa.types.is_nested(kind)]
    complete = len(found) == len(chunks)
    nulls = None
    if complete and all(one.has_null_count for one in found):
        nulls = sum(one.null_count for one in found)
    least = greatest = None
    with_values = [one for one in found if not (one.has_null_count and one.num_values == 0)]
    if complete and with_values and all(one.has_min_max for one in with_values):
        least = min(_value(one.min_raw, kind) for one in with_values)
        greatest = max(_value(one.max_raw, kind) for one in with_values)
    return ColumnStats(
        sum(chunk.total_compressed_size for chunk in chunks),
        sum(chunk.num_values for chunk in chunks),
        nulls,
        _unless_useless(least),
        _unless_useless(greatest),
    )


def _value(raw: Any, kind: pa.DataType) -> Any:
    """Long decimals as integers, since their bytes are ordered otherwise."""
    if pa.types.is_decimal(kind) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _unless_useless(value: Any) -> Value | None:
    if isinstance(value, bytes):
        return value if len(value) <= BOUND_BYTES_MAX else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def _start(group: Any) -> int:
    """Where a row group starts: at the first page of its first column."""
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)


def _to_json(value: Value | None) -> int | float | str | None:
    return value.hex() if isinstance(value, bytes) else value


def _from_json(value: Any) -> Value | None:
    return bytes.fromhex(value) if isinstance(value, str) else value
