"""Blocks of the format Native. The oracle is ClickHouse's description of it, written out here by hand."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from penstock.sinks.clickhouse.native import block
from penstock.sinks.clickhouse.types import Types

TYPES = Types(native_dates=False, bools=False)


def varint(value: int) -> bytes:
    return varint_above(value) if value >= 128 else bytes([value])


def varint_above(value: int) -> bytes:
    return bytes([value % 128 + 128]) + varint(value // 128)


def text(value: str) -> bytes:
    return varint(len(value.encode())) + value.encode()


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=300), max_size=20))
@example(["a" * 127, "b" * 128, "c" * 16383, "d" * 16384, "", None])
def test_texts_are_their_length_and_their_bytes(values: list[str | None]) -> None:
    padded = pa.array(["before", *values], pa.string()).slice(1)
    batch = pa.RecordBatch.from_arrays([padded], ["s"])
    made = block(batch, StructType([StructField("s", StringType())]), [], TYPES)
    nulls = bytes(int(one is None) for one in values)
    expected = varint(1) + varint(len(values)) + text("s") + text("Nullable(String)") + nulls
    assert made == expected + b"".join(text(one or "") for one in values)


def test_numbers_are_as_in_memory_and_rows_get_the_columns_type() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, -1], pa.int32()), pa.array([Decimal("-1.5"), None], pa.decimal128(3, 1))], ["id", "d"]
    )
    columns = StructType([StructField("id", LongType()), StructField("d", DecimalType(12, 2))])
    made = block(batch, columns, ["id"], TYPES)
    numbers = (1).to_bytes(8, "little") + (-1).to_bytes(8, "little", signed=True)
    head = varint(2) + varint(2) + text("id") + text("Int64") + numbers
    head += text("d") + text("Nullable(Decimal(12, 2))") + b"\0\1"
    head += (-150).to_bytes(8, "little", signed=True)
    assert made[: len(head)] == head and len(made) == len(head) + 8


def test_a_date_that_the_server_would_change_is_found_in_a_column_of_any_name() -> None:
    types = Types(native_dates=True, bools=True)
    inside, outside = datetime.datetime(2299, 12, 31, 23, 59), datetime.datetime(9999, 12, 31)
    for name in ("_until", "until"):
        for values, found in (([inside, None], None), ([inside, outside], name)):
            batch = pa.RecordBatch.from_arrays([pa.array(values, pa.timestamp("us"))], [name])
            assert types.beyond(batch) == found
