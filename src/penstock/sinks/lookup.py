"""Rows of data files looked up by their keys: what deletion vectors are made of.

Of a data file only the key's columns are read. Columns are told by their field ids, which the files of
Iceberg and of Delta carry, so a column may have been renamed or widened since a file was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock.sinks import vectors
from penstock.sinks.files import field_id
from penstock.sinks.vectors import Inline, Vector

LOCAL_ROWS_MAX = 4_000_000
"""Rows whose keys are looked at in this process; beyond, Spark's tasks share the files."""

BATCH_ROWS = 500_000
KEYS_MAX = 4_000_000
"""Keys that are looked for at a time: some hundred MB where they are short texts."""

_POSITION = "_position"
_UNSEARCHABLE = -1


@dataclass(frozen=True)
class KeyFile:
    """A Parquet file of keys: values of the columns with these field ids."""

    path: str
    fields: tuple[int, ...]


@dataclass(frozen=True)
class DataFile:
    """A data file by the name its table gives it, the local path it has, the keys to be looked up in it, and
    what is gone from it already."""

    location: str
    path: str
    rows: int
    keys: tuple[KeyFile, ...]
    vector: Vector | Inline | None


class Unsearchable(Exception):
    """A file lacks a column of the key, or is not where it can be read."""


Found = tuple[str, bytes, int]
"""A data file's location, the bitmap of its rows that are gone, their number; 0: no more than before."""


def rows_gone(spark: SparkSession, files: Sequence[DataFile]) -> list[Found]:
    """What `gone` finds, here or in Spark's tasks."""
    if sum(file.rows for file in files) <= LOCAL_ROWS_MAX:
        with ThreadPoolExecutor(2, thread_name_prefix="lookup") as pool:
            return list(pool.map(gone, files))
    count = min(len(files), max(1, spark.sparkContext.defaultParallelism))
    shares = tuple(tuple(files[share::count]) for share in range(count))

    def body(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in indexes:
            for share in batch.column(0).to_pylist():
                for file in shares[share]:
                    try:
                        location, bitmap, rows = gone(file)
                    except Unsearchable as why:  # Spark would make it an error of its own
                        location, bitmap, rows = str(why), b"", _UNSEARCHABLE
                    arrays = [pa.array([location]), pa.array([bitmap], pa.binary()), pa.array([rows])]
                    yield pa.RecordBatch.from_arrays(arrays, ["location", "bitmap", "rows"])

    frame = spark.range(0, count, 1, count).mapInArrow(body, "location string, bitmap binary, rows bigint")
    found = [(row[0], bytes(row[1]), row[2]) for row in frame.collect()]
    for why, _, rows in found:
        if rows == _UNSEARCHABLE:
            raise Unsearchable(why)
    return found


def gone(file: DataFile) -> Found:
    """Looks the keys up in a data file."""
    before = BitMap64() if file.vector is None else vectors.read(file.vector)
    bitmap = BitMap64(before)
    by_columns: dict[tuple[int, ...], list[str]] = {}
    for one in file.keys:
        by_columns.setdefault(one.fields, []).append(one.path)
    for fields, paths in by_columns.items():
        for keys in _some_keys(paths, fields):
            for positions in _found(file.path, keys, fields):
                bitmap.update(positions)
    count = len(bitmap)
    return file.location, bitmap.serialize(), count if count > len(before) else 0


def _some_keys(paths: Sequence[str], fields: Sequence[int]) -> Iterator[pa.Table]:
    """The keys of several files, each once, as many at a time as may be held."""
    waiting: list[pa.Table] = []
    for path in paths:
        if waiting and sum(map(len, waiting)) + _row_count(path) > KEYS_MAX:
            yield _distinct(waiting)
            waiting = []
        waiting.append(_columns(path, fields))
    yield _distinct(waiting)


def _distinct(keys: Sequence[pa.Table]) -> pa.Table:
    whole = pa.concat_tables(keys)
    return whole.group_by(whole.column_names, use_threads=False).aggregate([])


def _row_count(path: str) -> int:
    return int(pq.read_metadata(path).num_rows)


def _found(path: str, keys: pa.Table, fields: Sequence[int]) -> Iterator[Any]:
    """Positions of a data file's rows with one of the keys, in pieces."""
    start = 0
    for batch in _batches(path, fields):
        rows = _fitted(batch, keys.schema)
        rows = rows.append_column(_POSITION, pa.array(range(start, start + batch.num_rows), pa.int64()))
        found = rows.join(keys, keys.column_names, join_type="left semi", use_threads=False)
        yield found[_POSITION].to_pylist()
        start += batch.num_rows


def _columns(path: str, fields: Sequence[int]) -> pa.Table:
    """Columns of a small Parquet file, named by their field ids."""
    with pq.ParquetFile(path) as file:
        names = _names(file, fields, path)
        return file.read(columns=names).select(names).rename_columns([str(number) for number in fields])


def _batches(path: str, fields: Sequence[int]) -> Iterator[pa.RecordBatch]:
    # Spark writes timestamps as INT96, and few of them fit into Arrow's nanoseconds.
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        names = _names(file, fields, path)
        for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
            columns = [batch.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(columns, [str(number) for number in fields])


def _names(file: pq.ParquetFile, fields: Sequence[int], path: str) -> list[str]:
    known = {field_id(field): field.name for field in file.schema_arrow}
    if missing := [number for number in fields if number not in known]:
        raise Unsearchable(f"{path} has no column with the field id {missing[0]}")
    return [known[number] for number in fields]


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """In the types of the keys: a column may have been widened since the file was written."""
    try:
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unsearchable(f"a column of the key cannot be compared: {error}") from error
    return pa.Table.from_arrays(arrays, names=schema.names)
