"""Parquet files, written by the very tasks that make the rows.

Rows decoded by the core are Arrow; taking them through Spark's row format into its Parquet writer costs more
than decoding them did (measured: 800k rows of 15 columns, two cores, 8 s against 1.5 s). So where files only
have to be added, the task writes them with pyarrow, and the sink makes them visible by a commit of its own.
A file that no commit names is garbage, never a wrong result: names are never used twice.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import InternalError
from penstock.model.change import DELETED
from penstock.sinks.names import source_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_BYTES = 32 * 1024**2
"""Arrow bytes that make a row group: what a task holds while it writes."""

FILE_BYTES_MAX = 256 * 1024**2
"""A file is closed once it has this size; soft by one row group."""

FIELD_ID = b"PARQUET:field_id"

WRITTEN = "path string"

MERGED = "path string, holds string"

Batches = Iterator[pa.RecordBatch]

Consume = Callable[[Iterable[pa.RecordBatch]], Batches]


@dataclass(frozen=True)
class Present:
    """Rows may lack columns, and `_present` says which. `places`: where in it each column of the target
    stands.

    `strict`: the target has every row that an incomplete one can be of; else some are still to be read, and
    what is said of those is left out."""

    places: dict[str, int]
    strict: bool


@dataclass(frozen=True)
class Rows:
    """Rows on their way into a sink. Nothing is made before a sink asks for it.

    `source`: the DataFrame, or what makes it. `make`: a frame of what a function gives that runs over the
    batches inside the tasks that make them; its second argument is the schema of the result. `within`: a
    column and the value that all of them have in it; rows of the target with another value are no matter of
    theirs. `newer`: all that the target has of their keys is older. `here`, where that is so and they are
    few: the same batches, made in this process.
    """

    source: DataFrame | Callable[[], DataFrame]
    make: Callable[[Consume, str], DataFrame] | None = None
    present: Present | None = None
    within: tuple[str, str] | None = None
    newer: bool = False
    here: Callable[[], Batches] | None = None

    @cached_property
    def frame(self) -> DataFrame:
        return self.source() if callable(self.source) else self.source

    def through(self, consume: Consume, schema: str) -> DataFrame:
        if self.make is not None:
            return self.make(consume, schema)
        return map_batches(self.frame, consume, schema)

    def projected(self, projection: Projection, schema: Any) -> Rows:
        """The same rows with other columns; `schema` is Spark's of the projection's."""

        def make(consume: Consume, result: str) -> DataFrame:
            return self.through(lambda batches: consume(projection(batches)), result)

        return Rows(
            lambda: map_batches(self.frame, projection, schema), make, newer=self.newer,
            here=then(projection, self.here),
        )  # fmt: skip


@dataclass(frozen=True)
class Projection:
    """Batches with the columns `fields`, each filled from the column in `sources` (None: NULL). A value that
    the type does not have becomes NULL. Pickles."""

    fields: pa.Schema
    sources: tuple[str | None, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrays = [
                pa.nulls(batch.num_rows, field.type)
                if source is None
                else converted(batch.column(source), field.type)
                for field, source in zip(self.fields, self.sources, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.fields)


@dataclass(frozen=True)
class FileWriter:
    """What a task does with its batches. `fields`: the columns of the files, by name; a field id stands in a
    field's metadata. Rows marked as deleted are left out. `optional` columns may be missing from the rows:
    NULL. `sources`: the rows' columns, one for each field, where they have other names. `strict`: no column
    of the rows may be left out. Pickles."""

    directory: str
    fields: pa.Schema
    compression: str = "zstd"
    optional: frozenset[str] = frozenset()
    sources: tuple[str, ...] | None = None
    strict: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """What the files take from the rows."""
        return tuple(self.fields.names) if self.sources is None else self.sources

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array(self.files(batches), pa.string())], ["path"])

    def files(self, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
        """Writes them: paths, each durable."""
        begun: list[Path] = []
        try:
            yield from self._written(self._groups(batches), begun)
        except Exception:  # nobody will ever name them: the task is tried again, with other files
            for path in begun:
                path.unlink(missing_ok=True)
            raise

    def empty_file(self) -> str:
        """Writes a file without rows: its path, durable."""
        return self._file(None, iter(()), [])[0]

    def _written(self, groups: Iterator[pa.Table], begun: list[Path]) -> Iterator[str]:
        group = next(groups, None)
        while group is not None:
            path, group = self._file(group, groups, begun)
            yield path

    def _file(
        self, group: pa.Table | None, groups: Iterator[pa.Table], begun: list[Path]
    ) -> tuple[str, pa.Table | None]:
        """Writes one file, from `group` on: its path, and the group that no longer fits into it."""
        path = Path(self.directory, f"{uuid.uuid4()}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        begun.append(path)
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
        """Tables of about `ROW_GROUP_BYTES`; none is empty."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            taken = self._fitted(batch)
            if not taken.num_rows:
                continue
            waiting.append(taken)
            size += taken.nbytes
            if size >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
        if waiting:
            yield pa.Table.from_batches(waiting)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if DELETED in batch.schema.names:
            deleted = batch.column(DELETED)
            if pc.any(deleted).as_py():
                batch = batch.filter(pc.invert(deleted))
        if self.strict and (lost := set(source_columns(batch.schema.names)) - set(self.columns)):
            raise InternalError(f"The target lacks the column {min(lost)} that the rows have.")
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
        raise InternalError(f"The rows lack the column {name} that their target has.")


@dataclass(frozen=True)
class MergeWriter:
    """What a task does with its batches: files of the rows, and files of their keys. Tells of each what it
    holds, `rows` or `keys`; or only `null`: a key with NULL came, and what was written is gone. Pickles."""

    rows: FileWriter
    keys: FileWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        found = self.files(batches)
        arrays = [pa.array([one[place] for one in found], pa.string()) for place in (0, 1)]
        yield pa.RecordBatch.from_arrays(arrays, ["path", "holds"])

    def files(self, batches: Iterable[pa.RecordBatch]) -> list[tuple[str, str]]:
        keys: list[pa.RecordBatch] = []
        has_null = False

        def noted() -> Iterator[pa.RecordBatch]:
            nonlocal has_null
            for batch in batches:
                keys.append(batch.select(list(self.keys.columns)))
                has_null = has_null or any(column.null_count for column in keys[-1].columns)
                if has_null:
                    return
                yield batch

        found = [(path, "rows") for path in self.rows.files(noted())]
        if has_null:
            for path, _ in found:
                Path(path).unlink()
            return [("", "null")]
        return found + [(path, "keys") for path in self.keys.files(keys)]


def then(change: Consume, here: Callable[[], Batches] | None) -> Callable[[], Batches] | None:
    """`Rows.here` of changed batches."""
    return None if here is None else lambda: change(here())


def map_batches(frame: DataFrame, consume: Consume, schema: Any) -> DataFrame:
    """`mapInArrow` for columns of any name: PySpark's own takes dots and backticks in them for syntax."""
    names = frame.columns

    def body(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return consume(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)

    return frame.toDF(*[f"c{number}" for number in range(len(names))]).mapInArrow(body, schema)


def written(frame: DataFrame) -> list[str]:
    """Runs the tasks of `Rows.through(FileWriter(…), WRITTEN)`: paths of what they wrote."""
    return [str(row[0]) for row in frame.collect()]


def merged(frame: DataFrame) -> dict[str, list[str]]:
    """Runs the tasks of `Rows.through(MergeWriter(…), MERGED)`: paths by what they hold."""
    return by_content((row[0], row[1]) for row in frame.collect())


def by_content(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {"rows": [], "keys": [], "null": []}
    for path, holds in found:
        paths[holds].append(path)
    return paths


def field_id(field: pa.Field) -> int | None:
    """The number of a Parquet file's column in its table; None: it does not say."""
    known = (field.metadata or {}).get(FIELD_ID)
    return None if known is None else int(known)


def converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values in another type; NULL where there is none."""
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not pa.types.is_string(array.type) and not pa.types.is_string(kind):
            return converted(converted(array, pa.string()), kind)
        if len(array) <= 1:
            return pa.nulls(len(array), kind)
        half = len(array) // 2
        return pa.concat_arrays([converted(array[:half], kind), converted(array[half:], kind)])


def _cast(array: Any, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)
