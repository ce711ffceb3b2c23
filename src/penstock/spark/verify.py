"""The target's part of a verification: Spark computes the same hashes and sums from the target table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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

from penstock.errors import PenstockError, TableError
from penstock.failures.messages import one_sentence
from penstock.model.buckets import Buckets, BucketSum, HashBuckets, RangeBuckets
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.printable import argument
from penstock.sinks.rows import map_batches
from penstock.sinks.spark_sql import quoted
from penstock.spark.errors import returned
from penstock.transforms.comparison import TransformedRows
from penstock.verify.check import Compared

LOW_BITS = 30
"""Bits of the lower half of a 60-bit hash."""
OPENED_AT_ONCE = 4
"""Targets that are opened in parallel: most of that time is spent waiting for the JVM and for files."""
LOSSY = "_penstock_lossy "
"""A column beside those of a target: whether a value of the row does not fit the source's type, so that the
row differs, whatever the source has. No column of MySQL has a name that ends with a space."""
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
        expected = _core_schema(schema, types) if made is None else made.fields
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


def _core_schema(schema: TableSchema, types: TypeOptions) -> pa.Schema:
    from penstock import _core

    return _core.arrow_schema(schema.to_json(), "rows", types.to_json())


def share_of(buckets: Buckets) -> dict[str, Any]:
    """How a task computes the bucket of a row: arguments of `_core.row_buckets`."""
    match buckets:
        case RangeBuckets(width=width):
            return {"width": width}
        case HashBuckets(count=count):
            return {"count": count}


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


def sums_of(
    batches: Iterable[pa.RecordBatch],
    table: str,
    share: dict[str, Any],
    types: TypeOptions,
    made: TransformedRows | None,
) -> dict[int, list[int]]:
    """Rows, and sums of the halves of their hashes, by bucket. `made`: the rows are transformed."""
    sums: dict[int, list[int]] = {}
    for _, bucket, hashes in _hashed(batches, table, share, types, made):
        part = pa.table(
            {
                "bucket": bucket,
                "high": pc.shift_right(hashes, pa.scalar(LOW_BITS, pa.uint64())),
                "low": pc.bit_wise_and(hashes, pa.scalar((1 << LOW_BITS) - 1, pa.uint64())),
            }
        )
        grouped = part.group_by("bucket").aggregate([("high", "count"), ("high", "sum"), ("low", "sum")])
        columns = [
            grouped.column(name).to_pylist() for name in ("bucket", "high_count", "high_sum", "low_sum")
        ]
        for bucket_number, rows, high, low in zip(*columns, strict=True):
            total = sums.setdefault(bucket_number, [0, 0, 0])
            total[0] += rows
            total[1] += high
            total[2] += low
    return sums


def rows_of_buckets(
    batches: Iterable[pa.RecordBatch],
    table: str,
    share: dict[str, Any],
    wanted: list[int],
    types: TypeOptions,
    made: TransformedRows | None,
) -> Iterator[pa.RecordBatch]:
    """Texts of keys and hashes of the rows in some buckets."""
    from penstock import _core

    key = TableSchema.from_json(table).key
    for batch, bucket, hashes in _hashed(batches, table, share, types, made):
        chosen = pc.is_in(bucket, value_set=pa.array(wanted, pa.int64()))
        texts = _core.row_texts(table, batch, key, types.to_json())
        rows = pa.RecordBatch.from_arrays([texts, hashes.cast(pa.int64())], ["key", "hash"])
        yield rows.filter(chosen)


def _hashed(
    batches: Iterable[pa.RecordBatch],
    table: str,
    share: dict[str, Any],
    types: TypeOptions,
    made: TransformedRows | None,
) -> Iterator[tuple[pa.RecordBatch, pa.Array, pa.Array]]:
    """Each batch, or at least its keys, with the buckets and the hashes of its rows. The hash of a row that
    is `LOSSY` is none of any row of the source."""
    from penstock import _core  # in the task: the module must not be pickled with the function

    schema = TableSchema.from_json(table)
    names = [column.name for column in schema.columns]
    for whole in batches:
        batch, lossy = whole, None
        if whole.schema.names[-1] == LOSSY:
            batch, lossy = whole.select(whole.schema.names[:-1]), whole.column(LOSSY)
        keys = batch if made is None else made.keys(batch)
        bucket = _core.row_buckets(table, keys, schema.key, **share, types=types.to_json())
        if made is None:
            hashes = _core.row_hashes(table, batch, names, types.to_json())
        else:
            hashes = made.hashes(batch)
        if lossy is not None:
            hashes = pc.bit_wise_xor(hashes, lossy.cast(pa.uint8()).cast(pa.uint64()))
        yield keys, bucket, hashes
