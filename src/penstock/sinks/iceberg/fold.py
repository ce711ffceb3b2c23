"""Equality deletes turned into deletion vectors.

An equality delete says which keys are gone, so whoever reads a data file has to hold all the keys of all
deletes that came after it. A deletion vector says which rows of one file are gone. To get from one to the
other, only the key's columns are read, of the files that a delete can concern (Iceberg compares their bounds
and their order of commits). Nothing changes for a reader, whichever of the two he meets.

The work is done on one snapshot while small commits go on: they add data and equality deletes, and never
touch what this replaces. Iceberg refuses the commit if anybody wrote a vector for one of these files
meanwhile.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock.sinks.iceberg import vectors
from penstock.sinks.iceberg.files import Classes, data_folder, each, field_id, local_path
from penstock.sinks.iceberg.vectors import Vector

LOCAL_ROWS_MAX = 4_000_000
"""Rows whose keys are looked at in this process; beyond, Spark's tasks share the files."""

BATCH_ROWS = 500_000
KEYS_MAX = 4_000_000
"""Keys that are looked for at a time: some hundred MB where they are short texts."""

_POSITION = "_position"


@dataclass(frozen=True)
class Deletes:
    """An equality-delete file: keys of the columns with these Iceberg field ids."""

    path: str
    fields: tuple[int, ...]


@dataclass(frozen=True)
class FoldTask:
    """One data file, the equality deletes that concern it, and what is gone from it already."""

    location: str
    rows: int
    deletes: tuple[Deletes, ...]
    vector: Vector | None


class NotFoldable(Exception):
    """A file lacks a column of the key, or is not where it can be read."""


def fold(spark: SparkSession, classes: Classes, target: Any) -> bool:
    """Replaces all equality deletes of an unpartitioned table's present snapshot. False: it has none.

    Raises `NotFoldable`, and what Iceberg raises if somebody else has changed the table in the way."""
    snapshot = target.currentSnapshot()
    folder = data_folder(target)
    if snapshot is None or folder is None or snapshot.summary().get("total-equality-deletes") == "0":
        return False
    obsolete = list(_equality_deletes(classes, target, snapshot))
    if not obsolete:
        return False
    tasks, replaced = _plan(classes, target, snapshot)
    found = [one for one in rows_gone(spark, tasks) if one[2]]
    path = folder / f"{uuid.uuid4()}-deletes.puffin"
    placed = vectors.write(path, found) if found else []
    change = target.newRowDelta()
    for delete in obsolete:
        change.removeDeletes(delete)
    for (location, _, count), vector in zip(found, placed, strict=True):
        if location in replaced:
            change.removeDeletes(replaced[location])
        change.addDeletes(described_vector(classes, target, location, vector, count, path.stat().st_size))
    change.validateFromSnapshot(snapshot.snapshotId()).conflictDetectionFilter(classes.everything).commit()
    return True


def _equality_deletes(classes: Classes, target: Any, snapshot: Any) -> Iterator[Any]:
    """All of them, also those that concern no file any more."""
    io, specs = target.io(), target.specs()
    for manifest in snapshot.deleteManifests(io):
        reader = classes.delete_manifest(manifest, io, specs)
        for delete in each(reader):
            if delete.content().toString() == "EQUALITY_DELETES":
                yield delete.copy()


def _plan(classes: Classes, target: Any, snapshot: Any) -> tuple[list[FoldTask], dict[str, Any]]:
    """What is to be looked at, and the vectors that there are, by the location of their data file."""
    tasks, replaced = [], {}
    for one in each(target.newScan().useSnapshot(snapshot.snapshotId()).planFiles()):
        described = json.loads(classes.task_json(one))
        held = described.get("delete-files", [])
        keys = [_deletes(delete) for delete in held if "equality-ids" in delete]
        if not keys:
            continue
        data = described["data-file"]
        location, vector = data["file-path"], None
        for place, delete in enumerate(held):
            if "equality-ids" not in delete:
                vector = vector_of(delete)
                replaced[location] = one.deletes()[place].copy()
        tasks.append(FoldTask(location, data["record-count"], tuple(keys), vector))
    return tasks, replaced


def _deletes(described: dict[str, Any]) -> Deletes:
    return Deletes(str(local_path(described["file-path"])), tuple(described["equality-ids"]))


def vector_of(described: dict[str, Any]) -> Vector:
    """Of a delete file as Iceberg describes it."""
    if "content-offset" not in described:
        raise NotFoldable(f"{described['file-path']} holds position deletes of format version 2")
    path = str(local_path(described["file-path"]))
    return Vector(path, described["content-offset"], described["content-size-in-bytes"])


Found = tuple[str, bytes, int]
"""A data file's location, the bitmap of its rows that are gone, their number; 0: no more than before."""


def rows_gone(spark: SparkSession, tasks: Sequence[FoldTask]) -> list[Found]:
    """What `gone` finds, here or in Spark's tasks."""
    if sum(task.rows for task in tasks) <= LOCAL_ROWS_MAX:
        with ThreadPoolExecutor(2, thread_name_prefix="fold") as pool:
            return list(pool.map(gone, tasks))
    count = min(len(tasks), max(1, spark.sparkContext.defaultParallelism))
    shares = tuple(tuple(tasks[share::count]) for share in range(count))

    def body(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in indexes:
            for share in batch.column(0).to_pylist():
                for task in shares[share]:
                    location, bitmap, rows = gone(task)
                    arrays = [pa.array([location]), pa.array([bitmap], pa.binary()), pa.array([rows])]
                    yield pa.RecordBatch.from_arrays(arrays, ["location", "bitmap", "rows"])

    frame = spark.range(0, count, 1, count).mapInArrow(body, "location string, bitmap binary, rows bigint")
    return [(row[0], bytes(row[1]), row[2]) for row in frame.collect()]


def gone(task: FoldTask) -> Found:
    """Looks a data file's keys up in the deletes."""
    before = BitMap64() if task.vector is None else vectors.read(task.vector)
    bitmap = BitMap64(before)
    by_columns: dict[tuple[int, ...], list[str]] = {}
    for delete in task.deletes:
        by_columns.setdefault(delete.fields, []).append(delete.path)
    for fields, paths in by_columns.items():
        for keys in _some_keys(paths, fields):
            for positions in _found(task.location, keys, fields):
                bitmap.update(positions)
    count = len(bitmap)
    return task.location, bitmap.serialize(), count if count > len(before) else 0


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


def _found(location: str, keys: pa.Table, fields: Sequence[int]) -> Iterator[Any]:
    """Positions of a data file's rows with one of the keys, in pieces."""
    start = 0
    for batch in _batches(location, fields):
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


def _batches(location: str, fields: Sequence[int]) -> Iterator[pa.RecordBatch]:
    path = local_path(location)
    with pq.ParquetFile(path) as file:
        names = _names(file, fields, location)
        for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
            columns = [batch.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(columns, [str(number) for number in fields])


def _names(file: pq.ParquetFile, fields: Sequence[int], path: str) -> list[str]:
    known = {field_id(field): field.name for field in file.schema_arrow}
    if missing := [number for number in fields if number not in known]:
        raise NotFoldable(f"{path} has no column with the field id {missing[0]}")
    return [known[number] for number in fields]


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """In the types of the deletes: a column may have been widened since the file was written."""
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.Table.from_arrays(arrays, names=schema.names)


def described_vector(
    classes: Classes, target: Any, location: str, vector: Vector, count: int, file_bytes: int
) -> Any:
    """A vector of `count` rows of the data file at `location`, for Iceberg."""
    builder = classes.delete_file(target.spec())
    builder = builder.ofPositionDeletes().withFormat("PUFFIN").withPath(vector.path)
    builder = builder.withReferencedDataFile(location).withFileSizeInBytes(file_bytes)
    builder = builder.withContentOffset(vector.offset).withContentSizeInBytes(vector.size)
    return builder.withRecordCount(count).build()
