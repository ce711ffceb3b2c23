"""The target's side of a verification: the same hashes and sums, computed by Spark from the target table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, NumericType, StructField

from penstock.errors import TableError
from penstock.model.schema import TableId, TableSchema, TypeOptions, quote
from penstock.sinks.files import map_batches
from penstock.verify.plan import Buckets, BucketSum, HashBuckets, RangeBuckets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOW_BITS = 30
_SUMS = "bucket bigint, rows bigint, high bigint, low bigint"
_ROWS = "key string, hash bigint"


class SparkTarget:
    """Reads tables by `read(table, version)`, which a sink offers."""

    def __init__(self, read: Callable[[TableId, str | None], DataFrame]) -> None:
        self._read = read

    def sums(
        self, schema: TableSchema, buckets: Buckets, version: str | None, types: TypeOptions
    ) -> dict[int, BucketSum]:
        """One row per bucket comes to the driver. Hashes are summed in two halves of 30 bits, so that no sum
        overflows a BIGINT."""
        table, share = schema.to_json(), _share(buckets)

        def partial(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _partial_sums(batches, table, share, types)

        frame = map_batches(self._columns(schema, version, types), partial, _SUMS)
        rows = frame.groupBy("bucket").sum("rows", "high", "low").collect()
        return {int(row[0]): BucketSum(int(row[1]), (int(row[2]) << _LOW_BITS) + int(row[3])) for row in rows}

    def rows(
        self,
        schema: TableSchema,
        buckets: Buckets,
        numbers: Collection[int],
        version: str | None,
        types: TypeOptions,
    ) -> list[tuple[str, int]]:
        table, share, wanted = schema.to_json(), _share(buckets), sorted(numbers)

        def listed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _rows_of_buckets(batches, table, share, wanted, types)

        frame = map_batches(self._columns(schema, version, types), listed, _ROWS)
        return [(str(row[0]), int(row[1])) for row in frame.collect()]

    def _columns(self, schema: TableSchema, version: str | None, types: TypeOptions) -> DataFrame:
        frame = self._read(schema.table, version)
        missing = [column.name for column in schema.columns if column.name not in frame.columns]
        if missing:
            raise TableError(
                f"The target of {schema.table} lacks the columns {', '.join(missing)} that the source has.",
                hint="Somebody changed the target; `penstock resnapshot FILE TABLE` fills it again.",
                table=str(schema.table),
            )
        # A target's type may be wider than the source's is by now; the rows must be the source's.
        kinds = from_arrow_schema(_core_schema(schema, types), prefer_timestamp_ntz=True)
        held = {field.name: field.dataType for field in frame.schema}
        return frame.selectExpr(*[_fitted(field, held[field.name]) for field in kinds])


def _fitted(field: StructField, held: DataType) -> str:
    name = quote(field.name)
    if held == field.dataType or not isinstance(field.dataType, NumericType):
        return name
    return f"try_cast({name} AS {field.dataType.simpleString()}) AS {name}"


def _core_schema(schema: TableSchema, types: TypeOptions) -> pa.Schema:
    from penstock import _core

    return _core.arrow_schema(schema.to_json(), "rows", types.to_json())


def _share(buckets: Buckets) -> dict[str, Any]:
    """How a task computes the bucket; arguments of `_core.row_buckets`."""
    match buckets:
        case RangeBuckets(width=width):
            return {"width": width}
        case HashBuckets(count=count):
            return {"count": count}


def _partial_sums(
    batches: Iterable[pa.RecordBatch], table: str, share: dict[str, Any], types: TypeOptions
) -> Iterator[pa.RecordBatch]:
    sums: dict[int, list[int]] = {}
    for _, bucket, hashes in _hashed(batches, table, share, types):
        part = pa.table(
            {
                "bucket": bucket,
                "high": pc.shift_right(hashes, pa.scalar(_LOW_BITS, pa.uint64())),
                "low": pc.bit_wise_and(hashes, pa.scalar((1 << _LOW_BITS) - 1, pa.uint64())),
            }
        )
        grouped = part.group_by("bucket").aggregate([("high", "count"), ("high", "sum"), ("low", "sum")])
        columns = [
            grouped.column(name).to_pylist() for name in ("bucket", "high_count", "high_sum", "low_sum")
        ]
        for number, rows, high, low in zip(*columns, strict=True):
            total = sums.setdefault(number, [0, 0, 0])
            total[0] += rows
            total[1] += high
            total[2] += low
    if sums:
        arrays = [pa.array(sums.keys(), pa.int64())]
        arrays += [pa.array([total[part] for total in sums.values()], pa.int64()) for part in range(3)]
        yield pa.RecordBatch.from_arrays(arrays, ["bucket", "rows", "high", "low"])


def _rows_of_buckets(
    batches: Iterable[pa.RecordBatch],
    table: str,
    share: dict[str, Any],
    wanted: list[int],
    types: TypeOptions,
) -> Iterator[pa.RecordBatch]:
    from penstock import _core

    key = TableSchema.from_json(table).key
    for batch, bucket, hashes in _hashed(batches, table, share, types):
        chosen = pc.is_in(bucket, value_set=pa.array(wanted, pa.int64()))
        texts = _core.row_texts(table, batch, key, types.to_json())
        rows = pa.RecordBatch.from_arrays([texts, hashes.cast(pa.int64())], ["key", "hash"])
        yield rows.filter(chosen)


def _hashed(
    batches: Iterable[pa.RecordBatch], table: str, share: dict[str, Any], types: TypeOptions
) -> Iterator[tuple[pa.RecordBatch, pa.Array, pa.Array]]:
    """Each batch with the bucket and the hash of its rows."""
    from penstock import _core  # in the task: the module must not be pickled with the function

    schema = TableSchema.from_json(table)
    names = [column.name for column in schema.columns]
    for batch in batches:
        bucket = _core.row_buckets(table, batch, schema.key, **share, types=types.to_json())
        yield batch, bucket, _core.row_hashes(table, batch, names, types.to_json())
