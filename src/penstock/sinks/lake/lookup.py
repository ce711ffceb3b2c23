"""Finds rows of data files by their keys, to mark them as deleted in deletion vectors.

Only the key's columns of a data file are read. Columns are found by field id, which files of both Iceberg and
Delta contain. So a column may have been renamed or widened since a file was written.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock.sinks.files import WrittenFile, field_id
from penstock.sinks.lake import vectors
from penstock.sinks.lake.vectors import Deleted
from penstock.store.files import Files

LOCAL_ROWS_MAX = 4_000_000
"""Up to this many rows are searched in this process. More are shared among Spark's tasks."""

BATCH_ROWS = 100_000
"""Rows that are searched at a time: a join needs some hundred bytes for each."""
KEYS_MAX = 1_000_000
"""Keys that are searched for at a time: a hundred MB if they are short texts."""

_FILE = "_file"
_OF_FILE = "_of_file"
_POSITION = "_position"
_SEQUENCE = "_sequence"
_UNSEARCHABLE = -1


NEWEST = 2**62
"""A sequence for keys that concern the rows of all data files."""


@dataclass(frozen=True)
class KeyFile:
    """A Parquet file of keys, which are values of the columns with these field ids. They concern only rows in
    data files with a lower `sequence`."""

    path: str
    size: int
    fields: tuple[int, ...]
    sequence: int = NEWEST


def key_files(files: Iterable[WrittenFile], fields: pa.Schema) -> list[KeyFile]:
    """Files of keys that are not in a table, with these columns."""
    numbers = tuple(number for field in fields if (number := field_id(field)) is not None)
    return [KeyFile(file.location, file.size, numbers) for file in files]


@dataclass(frozen=True)
class DataFile:
    """A data file: its location in the table's metadata, the location at which it is read, its bytes, its
    number of rows, and the rows that are deleted already."""

    location: str
    path: str
    size: int
    rows: int
    vector: Deleted | None
    sequence: int = 0


class Unsearchable(Exception):
    """A file lacks a column of the key, or cannot be read here."""


Found = tuple[str, bytes, int]
"""A data file's location, the bitmap of all its deleted rows, and their number. 0: no more than before."""


def deleted_rows(
    spark: SparkSession, access: Files, files: Sequence[DataFile], keys: Sequence[KeyFile]
) -> list[Found]:
    """The rows with these keys, and those that are deleted already, for each data file. Runs Spark's tasks if
    there are many rows. Raises `Unsearchable`."""
    if sum(file.rows for file in files) <= LOCAL_ROWS_MAX:
        return search(access, files, keys, threads=access.readers)
    if not access.travels:
        raise Unsearchable("Spark's tasks cannot read the files with the credentials of this process")
    count = min(len(files), max(1, spark.sparkContext.defaultParallelism))
    shares = tuple(tuple(files[share::count]) for share in range(count))

    def body(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in indexes:
            for share in batch.column(0).to_pylist():
                try:
                    found = search(access, shares[share], keys, threads=max(1, access.readers // 2))
                except Unsearchable as why:  # an exception would reach the driver as one of Spark's
                    found = [(str(why), b"", _UNSEARCHABLE)]
                kinds = (pa.string(), pa.binary(), pa.int64())
                columns = [pa.array([one[n] for one in found], kind) for n, kind in enumerate(kinds)]
                yield pa.RecordBatch.from_arrays(columns, ["location", "bitmap", "rows"])

    frame = spark.range(0, count, 1, count).mapInArrow(body, "location string, bitmap binary, rows bigint")
    everything = [(row[0], bytes(row[1]), row[2]) for row in frame.collect()]
    for why, _, rows in everything:
        if rows == _UNSEARCHABLE:
            raise Unsearchable(why)
    return everything


def search(
    access: Files, files: Sequence[DataFile], keys: Sequence[KeyFile], *, threads: int = 1
) -> list[Found]:
    """Searches all data files for all keys together. There may be hundreds of small files of both kinds, and
    a join of each pair would take too long."""
    with ThreadPoolExecutor(threads, thread_name_prefix="vectors") as pool:
        earlier = list(pool.map(lambda file: _vector(access, file), files))
    bitmaps = [BitMap64(bitmap) for bitmap in earlier]
    by_columns: dict[tuple[int, ...], list[KeyFile]] = {}
    for one in sorted(keys, key=lambda one: one.sequence):
        by_columns.setdefault(one.fields, []).append(one)

    def look(concerned: Sequence[tuple[int, DataFile]], part: pa.Table, fields: tuple[int, ...]) -> None:
        for number, positions in _found(access, concerned, part, fields):
            bitmaps[number].update(positions)

    with ThreadPoolExecutor(threads, thread_name_prefix="lookup") as pool:
        for fields, several in by_columns.items():
            for newest, part in _parts(access, several):
                concerned = [(number, file) for number, file in enumerate(files) if file.sequence < newest]
                shares = [concerned[share::threads] for share in range(threads)]
                for _ in pool.map(look, shares, [part] * threads, [fields] * threads):
                    pass
    counts = [
        len(after) if len(after) > len(before) else 0 for after, before in zip(bitmaps, earlier, strict=True)
    ]
    return [
        (file.location, bitmap.serialize() if count else b"", count)
        for file, bitmap, count in zip(files, bitmaps, counts, strict=True)
    ]


def _vector(access: Files, file: DataFile) -> BitMap64:
    return BitMap64() if file.vector is None else vectors.read(file.vector, access)


def _parts(access: Files, files: Sequence[KeyFile]) -> Iterator[tuple[int, pa.Table]]:
    """The keys of files that have the same columns, in parts of at most `KEYS_MAX`. A part has each key once,
    with the key's greatest sequence. With each part comes the greatest sequence in it."""
    waiting: list[pa.Table] = []
    newest = 0
    for file, found in _read_ahead(access, files):
        if waiting and sum(map(len, waiting)) + len(found) > KEYS_MAX:
            yield newest, _distinct(waiting)
            waiting = []
        waiting.append(found.append_column(_SEQUENCE, pa.array(np.full(len(found), file.sequence))))
        newest = file.sequence
    if waiting:
        yield newest, _distinct(waiting)


def _read_ahead(access: Files, files: Sequence[KeyFile]) -> Iterator[tuple[KeyFile, pa.Table]]:
    """Reads some files side by side, and returns them in their order."""
    waiting: deque[tuple[KeyFile, Future[pa.Table]]] = deque()
    with ThreadPoolExecutor(access.readers, thread_name_prefix="keys") as pool:
        for file in files:
            waiting.append((file, pool.submit(_columns, access, file)))
            if len(waiting) >= access.readers:
                first, table = waiting.popleft()
                yield first, table.result()
        for first, table in waiting:
            yield first, table.result()


def _distinct(keys: Sequence[pa.Table]) -> pa.Table:
    try:
        whole = pa.concat_tables(keys, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Unsearchable(f"keys of one column have several types: {error}") from error
    names = [name for name in whole.column_names if name != _SEQUENCE]
    found = whole.group_by(names, use_threads=False).aggregate([(_SEQUENCE, "max")])
    return found.rename_columns([*names, _SEQUENCE])


def _found(
    access: Files, files: Sequence[tuple[int, DataFile]], keys: pa.Table, fields: Sequence[int]
) -> Iterator[tuple[int, Any]]:
    """Positions of the rows with one of the keys, in pieces, each with the index of its file."""
    names = [str(number) for number in fields]
    for rows in _gathered(access, files, keys.schema.remove(keys.schema.get_field_index(_SEQUENCE)), fields):
        found = rows.join(keys, names, join_type="inner", use_threads=False)
        found = found.filter(pc.greater(found[_SEQUENCE], found[_OF_FILE])).sort_by(_FILE)
        numbers, positions = found[_FILE].to_numpy(), found[_POSITION].to_numpy()
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for start, end in itertools.pairwise([*starts.tolist(), len(numbers)]):
            yield int(numbers[start]), positions[start:end].tolist()


def _gathered(
    access: Files, files: Sequence[tuple[int, DataFile]], schema: pa.Schema, fields: Sequence[int]
) -> Iterator[pa.Table]:
    """The key's columns of all files, with each row's file, the file's sequence, and the row's position."""
    waiting: list[pa.Table] = []
    for number, file in files:
        start = 0
        for batch in _batches(access, file, fields):
            rows = _in_types(batch, schema)
            end = start + batch.num_rows
            rows = rows.append_column(_FILE, pa.array(np.full(batch.num_rows, number)))
            rows = rows.append_column(_OF_FILE, pa.array(np.full(batch.num_rows, file.sequence)))
            waiting.append(rows.append_column(_POSITION, pa.array(np.arange(start, end))))
            start = end
            if sum(map(len, waiting)) >= BATCH_ROWS:
                yield pa.concat_tables(waiting)
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _columns(access: Files, keys: KeyFile) -> pa.Table:
    """The keys. The field ids of their columns become their names."""
    with parquet_file(access, keys.path, keys.size) as file:
        names = _names(file, keys.fields, keys.path)
        return file.read(columns=names).select(names).rename_columns([str(number) for number in keys.fields])


@contextmanager
def parquet_file(access: Files, location: str, size: int | None) -> Iterator[pq.ParquetFile]:
    """A Parquet file in Arrow's types. Spark writes timestamps as INT96. As nanoseconds, Arrow's default,
    many would overflow."""
    source = access.source(location, size)
    # Of an object, the ranges that a row group needs are read with few requests.
    with pq.ParquetFile(
        source, coerce_int96_timestamp_unit="us", pre_buffer=not isinstance(source, str)
    ) as file:
        yield file


def _batches(access: Files, data: DataFile, fields: Sequence[int]) -> Iterator[pa.RecordBatch]:
    with parquet_file(access, data.path, data.size) as file:
        names = _names(file, fields, data.path)
        for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
            columns = [batch.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(columns, [str(number) for number in fields])


def _names(file: pq.ParquetFile, fields: Sequence[int], path: str) -> list[str]:
    known = {field_id(field): field.name for field in file.schema_arrow}
    if missing := [number for number in fields if number not in known]:
        raise Unsearchable(f"{path} has no column with the field id {missing[0]}")
    return [known[number] for number in fields]


def _in_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The batch in the types of the keys. A column may have been widened since the file was written."""
    try:
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unsearchable(f"a column of the key cannot be compared: {error}") from error
    return pa.Table.from_arrays(arrays, names=schema.names)
