"""Finds rows of data files by their keys, to mark them as deleted in deletion vectors.

Only the key's columns of a data file are read. Columns are found by field id, which files of both Iceberg and
Delta contain. So a column may have been renamed or widened since a file was written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock._core import KeyIndex
from penstock.sinks.files import WrittenFile, field_id
from penstock.sinks.lake import vectors
from penstock.sinks.lake.vectors import Deleted
from penstock.store.files import Files

LOCAL_ROWS_MAX = 4_000_000
"""Up to this many rows are searched in this process. More are shared among Spark's tasks."""

BATCH_ROWS = 100_000
"""Rows that are searched at a time: some MB."""
KEYS_MAX = 2_000_000
"""Keys that are searched for at a time. They take a hundred MB."""

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
    """Searches all data files for all keys together. There may be hundreds of small files of both kinds."""
    with ThreadPoolExecutor(threads, thread_name_prefix="vectors") as pool:
        earlier = list(pool.map(lambda file: _vector(access, file), files))
    bitmaps = [BitMap64(bitmap) for bitmap in earlier]
    by_columns: dict[tuple[int, ...], list[KeyFile]] = {}
    for one in sorted(keys, key=lambda one: one.sequence):
        by_columns.setdefault(one.fields, []).append(one)

    def look(share: Sequence[tuple[int, DataFile]], keys: Keys, fields: tuple[int, ...]) -> None:
        for number, file in share:
            for positions in _found(access, file, keys, fields):
                bitmaps[number].update(positions)

    with ThreadPoolExecutor(threads, thread_name_prefix="lookup") as pool:
        for fields, several in by_columns.items():
            for keys_of_part in _parts(access, several):
                newest = keys_of_part.newest
                concerned = [(number, file) for number, file in enumerate(files) if file.sequence < newest]
                shares = [concerned[share::threads] for share in range(threads)]
                for _ in pool.map(look, shares, [keys_of_part] * threads, [fields] * threads):
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


@dataclass(frozen=True)
class Keys:
    """Keys to search for. `schema`: their columns. `newest`: the greatest sequence of a key."""

    schema: pa.Schema
    index: KeyIndex
    newest: int

    @classmethod
    def of(cls, tables: Sequence[pa.Table]) -> Keys:
        """The keys of some tables, each with its sequence in the last column."""
        try:
            whole = pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise Unsearchable(f"keys of one column have several types: {error}") from error
        whole = whole.cast(pa.schema([field.with_type(_indexed(field.type)) for field in whole.schema]))
        index, names = KeyIndex(), whole.column_names[:-1]
        if any(whole[name].null_count for name in names):
            # An equality delete with NULL deletes the rows that have NULL there. The index finds none.
            raise Unsearchable("a key contains NULL")
        for batch in whole.to_batches():
            with _searchable():
                index.add(batch.select(names), batch.column(_SEQUENCE))
        return cls(whole.select(names).schema, index, pc.max(whole[_SEQUENCE]).as_py() or 0)

    def find(self, rows: pa.RecordBatch, sequence: int) -> pa.Int64Array:
        """The numbers of the rows, from 0, that have one of the keys with a greater sequence."""
        with _searchable():
            return self.index.find(_in_types(rows, self.schema), sequence)


def _indexed(kind: pa.DataType) -> pa.DataType:
    """The type in which the index has a column: it knows no integers of less than 32 bits."""
    return pa.int32() if pa.types.is_int8(kind) or pa.types.is_int16(kind) else kind


@contextmanager
def _searchable() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise Unsearchable(f"a column of the key cannot be compared: {error}") from error


def _parts(access: Files, files: Sequence[KeyFile]) -> Iterator[Keys]:
    """The keys of files that have the same columns, in parts of at most `KEYS_MAX`, or of one larger file."""
    waiting: list[pa.Table] = []
    for file, found in _read_ahead(access, files):
        if waiting and sum(map(len, waiting)) + len(found) > KEYS_MAX:
            yield Keys.of(waiting)
            waiting = []
        waiting.append(found.append_column(_SEQUENCE, pa.array(np.full(len(found), file.sequence))))
    if waiting:
        yield Keys.of(waiting)


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


def _found(access: Files, file: DataFile, keys: Keys, fields: Sequence[int]) -> Iterator[list[int]]:
    """Positions of the rows of a file that have one of the keys, in pieces."""
    start = 0
    for batch in _batches(access, file, fields):
        found = keys.find(batch, file.sequence)
        if len(found):
            yield (found.to_numpy() + start).tolist()
        start += batch.num_rows


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


def _in_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the types of the keys. A column may have been widened since the file was written."""
    try:
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unsearchable(f"a column of the key cannot be compared: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)
