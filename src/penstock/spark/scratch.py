"""Rows in Parquet files of the pipeline's staging, which driver and tasks write and read: results that the
next steps need, and data frames that are used several times and must be computed only once.

Both sides use Arrow. Spark's own readers and writers would need jars, options and credentials of their own
for each kind of store.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.sinks.files import WRITTEN, FileWriter, WrittenFile, written
from penstock.sinks.rows import map_batches
from penstock.store.base import Store
from penstock.store.folder import StoreFiles, StoreFolder

BATCH_ROWS = 65_536
"""Rows that a task has in memory at a time: as many as Spark's own batches of Arrow have."""


@dataclass(frozen=True)
class FrameFile:
    """One file: its key, its bytes and its number of rows."""

    key: str
    size: int
    rows: int


@dataclass(frozen=True)
class FrameFiles:
    """All files of some rows, which have the same columns."""

    store: Store
    files: tuple[FrameFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def table(self) -> pa.Table:
        """The rows, in this process."""
        files = StoreFiles(self.store)
        return pa.concat_tables([pq.read_table(files.source(one.key, one.size)) for one in self.files])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch, in this process."""
        return _read(self.store, self.files)

    def frame(self, spark: SparkSession, schema: StructType | None = None) -> DataFrame:
        """The rows, read by tasks. `schema`: needed if there are no files."""
        if schema is None:
            first = self.files[0]
            arrow = pq.read_schema(StoreFiles(self.store).source(first.key, first.size))
            schema = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
        if not self.files:
            return spark.createDataFrame([], schema)
        count = min(len(self.files), max(1, spark.sparkContext.defaultParallelism))
        body = _reading(self.store, [self.files[share::count] for share in range(count)])
        return spark.range(0, count, 1, count).mapInArrow(body, schema)

    def to_json(self, folder: StoreFolder) -> list[list[Any]]:
        """The files, named as they are in the folder."""
        start = len(folder.path) + 1
        return [[one.key[start:], one.size, one.rows] for one in self.files]

    @classmethod
    def from_json(cls, fields: list[Any], folder: StoreFolder) -> FrameFiles:
        return cls(folder.store, tuple(FrameFile(folder.key(name), *rest) for name, *rest in fields))

    @classmethod
    def of(cls, store: Store, files: Iterable[WrittenFile]) -> FrameFiles:
        return cls(store, tuple(FrameFile(file.location, file.size, file.rows) for file in files))


def _reading(store: Store, shares: Sequence[Sequence[FrameFile]]) -> Any:
    def body(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in indexes:
            for share in batch.column(0).to_pylist():
                yield from _read(store, shares[share])

    return body


def _read(store: Store, found: Iterable[FrameFile]) -> Iterator[pa.RecordBatch]:
    files = StoreFiles(store)
    for one in found:
        with pq.ParquetFile(files.source(one.key, one.size)) as file:
            yield from file.iter_batches(BATCH_ROWS)


def save(rows: DataFrame | pa.Table, folder: StoreFolder) -> FrameFiles:
    """Writes rows to new files of the folder, which are durable on return."""
    if isinstance(rows, pa.Table):
        return FrameFiles.of(folder.store, FileWriter(folder.files, rows.schema).files(rows.to_batches()))
    writer = FileWriter(folder.files, to_arrow_schema(rows.schema))
    return FrameFiles.of(folder.store, written(map_batches(rows, writer, WRITTEN)))


class Scratch:
    """A folder for frames. `remove` it when they are not needed any more."""

    def __init__(self, spark: SparkSession, folder: StoreFolder) -> None:
        """`folder`: a new one is made in it."""
        self._spark = spark
        self._folder = folder / uuid.uuid4().hex

    def keep(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """The frame, to be read from its files, and its number of rows."""
        found = save(frame, self._folder)
        return found.frame(self._spark, frame.schema), found.rows

    def keep_batches(self, batches: Iterable[pa.RecordBatch], fields: pa.Schema) -> DataFrame:
        """Rows that this process makes, to be read from their files. At most one batch is in memory."""
        found = FrameFiles.of(self._folder.store, FileWriter(self._folder.files, fields).files(batches))
        return found.frame(self._spark, from_arrow_schema(fields, prefer_timestamp_ntz=True))

    def batches(self, frame: DataFrame) -> Iterator[pa.RecordBatch]:
        """The rows of a frame, computed by tasks, batch by batch in this process."""
        return save(frame, self._folder).batches()

    def remove(self) -> None:
        """Removes the folder. If that fails, the next start of the pipeline removes it."""
        with suppress(PenstockError):
            self._folder.remove()
