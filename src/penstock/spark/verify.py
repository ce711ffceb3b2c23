"""What Spark does in a verification. The target's part: hashes and sums of its rows, as the source computes
them of its own. And of targets with `transforms`, the source's part: its rows are read, transformed as in a
pipeline, and hashed as the target's rows are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, NumericType, StructField

from penstock._core import arrow_schema
from penstock.errors import PenstockError, TableError
from penstock.failures.crossing import returned
from penstock.failures.messages import one_sentence
from penstock.model.buckets import LOW_BITS, Buckets, BucketSum, KeyExtent, share_of
from penstock.model.change import DELETED, SEQUENCE, free_name
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.printable import argument
from penstock.sinks.base import Sink
from penstock.sinks.names import source_columns
from penstock.sinks.rows import map_batches
from penstock.sinks.spark_sql import quoted
from penstock.sources.read_view import ReadView
from penstock.sources.windows import Window
from penstock.spark.row_failures import sift
from penstock.spark.transform_chain import Chain
from penstock.spark.transformed_sink import TransformedSink
from penstock.state.dead_letters import Letter
from penstock.transforms.comparison import TransformedRows
from penstock.verify.check import Compared
from penstock.verify.sums import LOSSY, bucket_sums, rows_of_buckets, sums_of

OPENED_AT_ONCE = 4
"""Targets that are opened in parallel: most of that time is spent waiting for the JVM and for files."""
ROWS_AT_ONCE = 100_000
"""Rows that are transformed together: each time may cost a Spark job."""
_SUMS = "number int, bucket bigint, rows bigint, high bigint, low bigint"
_ROWS = "key string, hash bigint"


class SparkTarget:
    """Reads tables with a sink's `read(table, version)`."""

    def __init__(
        self,
        read: Callable[[TableId, str | None], DataFrame],
        transformed: Callable[[TableSchema], TransformedRows | None] = lambda schema: None,
    ) -> None:
        """`transformed`: describes the rows of a target that differ from the source's by `transforms`."""
        self._read = read
        self._transformed = transformed

    def sums(
        self, tables: Sequence[Compared], types: TypeOptions
    ) -> dict[TableId, dict[int, BucketSum] | PenstockError]:
        """One Spark job. The driver gets one row per bucket and task, or, for a single table, one per
        bucket. Hashes are summed in two halves of 30 bits, so that no sum overflows a BIGINT."""
        found: dict[TableId, dict[int, BucketSum] | PenstockError] = {}
        frames: dict[int, DataFrame] = {}
        with ThreadPoolExecutor(OPENED_AT_ONCE, thread_name_prefix="targets") as pool:
            opened = pool.map(lambda number: self._partial_frame(number, tables[number], types),
                              range(len(tables)))  # fmt: skip
            for number, frame in enumerate(opened):
                if isinstance(frame, PenstockError):
                    found[tables[number].schema.table] = frame
                else:
                    frames[number] = frame
        if not frames:
            return found
        parts = reduce(DataFrame.unionAll, frames.values())
        if len(frames) == 1:
            parts = parts.groupBy("number", "bucket").sum("rows", "high", "low")
        else:  # fewer tasks than files: each task is sent the plan of all tables
            parts = parts.coalesce(parts.sparkSession.sparkContext.defaultParallelism)
        sums: dict[int, dict[int, BucketSum]] = {number: {} for number in frames}
        try:
            rows_found = parts.collect()
        except (PySparkException, Py4JError) as error:
            return found | self._one_by_one(tables, frames, types, error)
        for number, bucket, rows, high, low in rows_found:
            one = sums[number].get(bucket, BucketSum(0, 0))
            sums[number][bucket] = BucketSum(one.rows + rows, one.hash + (high << LOW_BITS) + low)
        return found | {tables[number].schema.table: one for number, one in sums.items()}

    def _one_by_one(
        self, tables: Sequence[Compared], frames: Collection[int], types: TypeOptions, error: Exception
    ) -> dict[TableId, dict[int, BucketSum] | PenstockError]:
        """Reads the tables one by one after a job over several has failed, and so finds those that cannot be
        read."""
        if len(frames) == 1:
            table = tables[next(iter(frames))].schema.table
            return {table: _unreadable(table, error)}
        found: dict[TableId, dict[int, BucketSum] | PenstockError] = {}
        for number in frames:
            found |= self.sums([tables[number]], types)
        return found

    def _partial_frame(self, number: int, one: Compared, types: TypeOptions) -> DataFrame | PenstockError:
        """Rows and sums per bucket and task. `number` identifies the table."""
        table, share, made = one.schema.to_json(), share_of(one.buckets), self._transformed(one.schema)

        def partial(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _partial_sums(batches, number, table, share, types, made)

        try:
            return map_batches(self._columns(one.schema, one.version, types), partial, _SUMS)
        except PenstockError as error:
            return error
        except (PySparkException, Py4JError) as error:
            return _unreadable(one.schema.table, error)

    def rows(
        self,
        schema: TableSchema,
        buckets: Buckets,
        numbers: Collection[int],
        version: str | None,
        types: TypeOptions,
    ) -> list[tuple[str, int]]:
        table, share, wanted = schema.to_json(), share_of(buckets), sorted(numbers)
        made = self._transformed(schema)

        def listed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return rows_of_buckets(batches, table, share, wanted, types, made)

        frame = map_batches(self._columns(schema, version, types), listed, _ROWS)
        try:
            return [(str(row[0]), int(row[1])) for row in frame.collect()]
        except (PySparkException, Py4JError) as error:
            raise _unreadable(schema.table, error) from error

    def _columns(self, schema: TableSchema, version: str | None, types: TypeOptions) -> DataFrame:
        frame = self._read(schema.table, version)
        made = self._transformed(schema)
        expected = arrow_schema(schema.to_json(), "rows", types.to_json()) if made is None else made.fields
        missing = [name for name in expected.names if name not in frame.columns]
        if missing:
            raise TableError(
                f"The target of {schema.table} lacks the columns {', '.join(missing)} that the source has.",
                hint="Somebody changed the target; `penstock resnapshot FILE TABLE` fills it again.",
                table=str(schema.table),
            )
        # The target's type may be wider than the source's current type. Rows are compared in the latter.
        kinds = from_arrow_schema(expected, prefer_timestamp_ntz=True)
        present = {field.name: field.dataType for field in frame.schema}
        columns = [_fitted(field, present[field.name]) for field in kinds]
        lossy = [_is_lossy(field, present[field.name]) for field in kinds if _is_other(field, present)]
        if lossy:
            columns.append(reduce(lambda one, other: one | other, lossy).alias(LOSSY))
        return frame.select(*columns)


def _unreadable(table: TableId, error: Exception) -> PenstockError:
    ours = returned(error)
    if isinstance(ours, PenstockError):
        return ours
    return TableError(
        f"The target of {table} cannot be read: {one_sentence(error)}",
        hint="If its files are damaged or missing, recreate it: `penstock resnapshot FILE "
        f"{argument(table)} --recreate`.",
        table=str(table),
    )


def _is_other(field: StructField, present: Mapping[str, DataType]) -> bool:
    """Whether the target's column has another type than the source's numbers."""
    return present[field.name] != field.dataType and isinstance(field.dataType, NumericType)


def _fitted(field: StructField, present: DataType) -> Column:
    column = f.col(quoted(field.name))
    if present == field.dataType or not isinstance(field.dataType, NumericType):
        return column
    return column.try_cast(field.dataType).alias(field.name)


def _is_lossy(field: StructField, present: DataType) -> Column:
    """Whether a value of the target is none of the source's type. Its fitted form may be equal to the
    source's value."""
    column = f.col(quoted(field.name))
    fitted = column.try_cast(field.dataType)
    if not isinstance(present, NumericType):
        return column.isNotNull() & fitted.isNull()
    return ~fitted.try_cast(present).eqNullSafe(column)


def _partial_sums(
    batches: Iterable[pa.RecordBatch],
    number: int,
    table: str,
    share: dict[str, Any],
    types: TypeOptions,
    made: TransformedRows | None,
) -> Iterator[pa.RecordBatch]:
    sums = sums_of(batches, table, share, types, made)
    if sums:
        arrays = [pa.array([number] * len(sums), pa.int32()), pa.array(sums.keys(), pa.int64())]
        arrays += [pa.array([total[part] for total in sums.values()], pa.int64()) for part in range(3)]
        yield pa.RecordBatch.from_arrays(arrays, ["number", "bucket", "rows", "high", "low"])


def transformed_rows(sink: Sink, types: TypeOptions) -> Callable[[TableSchema], TransformedRows | None]:
    """For a table, what rows of its target are like. None: as those of the source."""

    def describe(schema: TableSchema) -> TransformedRows | None:
        chain = sink.chain(schema) if isinstance(sink, TransformedSink) else None
        if chain is None:
            return None
        table, options = schema.to_json(), types.to_json()
        fields = chain.columns(arrow_schema(table, "latest", options))
        own = [fields.field(name) for name in source_columns(tuple(fields.names))]
        return TransformedRows(table, options, pa.schema(own), chain.key_after)

    return describe


def transformed_views(
    views: Callable[[], AbstractContextManager[ReadView]], sink: Sink
) -> Callable[[], AbstractContextManager[ReadView]]:
    """The source's views, whose sums and rows are those that its targets should have."""
    if not isinstance(sink, TransformedSink):
        return views

    @contextmanager
    def opened() -> Iterator[ReadView]:
        with views() as view:
            yield TransformedView(view, sink)

    return opened


class TransformedView:
    """A `ReadView`. Tables without rules are summed up by the source."""

    def __init__(self, view: ReadView, sink: TransformedSink) -> None:
        self._view = view
        self._sink = sink

    @property
    def window(self) -> Window:
        return self._view.window

    def extent(self, schema: TableSchema) -> KeyExtent:
        return self._view.extent(schema)

    def batches(self, schema: TableSchema, types: TypeOptions) -> Iterator[pa.RecordBatch]:
        """The rows that the target should have."""
        chain = self._sink.chain(schema)
        assert chain is not None, "only tables with rules are read"
        # The view's session is read to its end, so that a row that fails leaves it usable.
        failure: Exception | None = None
        for table in _together(self._view.batches(schema, types)):
            if failure is None:
                try:
                    yield from _live(chain, table)
                except Exception as error:
                    failure = error
        if failure is not None:
            raise failure

    def sums(self, schema: TableSchema, buckets: Buckets, types: TypeOptions) -> dict[int, BucketSum]:
        made = transformed_rows(self._sink, types)(schema)
        if made is None:
            return self._view.sums(schema, buckets, types)
        return bucket_sums(self.batches(schema, types), schema, buckets, types, made)

    def rows(
        self, schema: TableSchema, buckets: Buckets, numbers: Collection[int], types: TypeOptions
    ) -> dict[str, int]:
        made = transformed_rows(self._sink, types)(schema)
        if made is None:
            return self._view.rows(schema, buckets, numbers, types)
        found: dict[str, int] = {}
        batches = self.batches(schema, types)
        share = share_of(buckets)
        for batch in rows_of_buckets(batches, schema.to_json(), share, sorted(numbers), types, made):
            found.update(zip(*[column.to_pylist() for column in batch.columns], strict=True))
        return found


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= ROWS_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _live(chain: Chain, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows as a pipeline would write them, without those that it would leave out."""
    count = batch.num_rows
    whole = pa.RecordBatch.from_arrays(
        [
            *batch.columns,
            pa.repeat(pa.scalar(False), count),
            pa.repeat(pa.scalar(0, pa.int64()), count),
        ],
        [*batch.schema.names, DELETED, free_name(SEQUENCE, batch.schema.names)],
    )
    made = sift(chain, [whole], chain.key, _ignore) if chain.lists_failures else chain.in_driver([whole])
    for one in made:
        yield one.filter(pc.invert(one.column(DELETED)))


def _ignore(letter: Letter) -> None:
    """A comparison lists no row: the pipeline has."""
