"""Rows as JSON documents, for sinks that keep each row as one. Pure, but Spark computes defaults."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, StructType

from penstock.model.change import SEQUENCE
from penstock.model.not_numbers import name_of, with_names
from penstock.sinks.decimals import decimal_texts
from penstock.sinks.evolve import Change
from penstock.sinks.rows import converted
from penstock.sinks.spark_sql import constant

Text = bytes | str


def texts(column: pa.Array) -> list[Text | None]:
    """The values of a column as texts. Bytes stay as they are."""
    kind = column.type
    if is_binary(kind):
        return list(column.to_pylist())
    if pa.types.is_decimal(kind):
        return list(decimal_texts(column).to_pylist())
    if pa.types.is_floating(kind):
        return list(float_texts(column).to_pylist())
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    return list(column.cast(pa.large_string()).to_pylist())


def float_texts(column: pa.Array) -> pa.Array:
    """The texts of floating-point values."""
    found = column.cast(pa.large_string())
    if are_numbers(column):
        return found
    names = [None if one is None else name_of(one) for one in column.to_pylist()]
    return pc.if_else(pc.is_finite(column), found, pa.array(names, pa.large_string()))


def are_numbers(column: pa.Array) -> bool:
    """Whether no floating-point value is NaN or an infinity."""
    return bool(pc.all(pc.is_finite(column), min_count=0).as_py())


def plain(column: pa.Array, *, iso: bool = False) -> list[Any]:
    """The values of a column as JSON has them, also inside of lists: decimals, times and what is no number as
    texts, bytes in Base64. `iso`: with `T` between date and time, and `Z` after a point in time."""
    kind = column.type
    if is_binary(kind):
        return [None if one is None else base64.b64encode(one).decode() for one in column.to_pylist()]
    if iso and pa.types.is_timestamp(kind):
        return list(_iso(column).to_pylist())
    if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
        return texts(column)
    if pa.types.is_list(kind):
        elements = iter(plain(column.flatten(), iso=iso))
        lengths = pc.list_value_length(column).to_pylist()
        return [None if length is None else list(islice(elements, length)) for length in lengths]
    values = list(column.to_pylist())
    return with_names(values) if pa.types.is_floating(kind) and not are_numbers(column) else values


def _iso(column: pa.Array) -> pa.Array:
    text = column.cast(pa.timestamp(column.type.unit)).cast(pa.large_string())
    text = pc.replace_substring(text, " ", "T")
    if column.type.tz is None:
        return text
    zone, nothing = pa.scalar("Z", pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(text, zone, nothing)


def is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def as_json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_text)


def _text(value: object) -> str:
    assert isinstance(value, Decimal)
    return format(value, "f")


def evolved(
    rows: Sequence[Mapping[str, Any]],
    changed: Sequence[Change],
    present: StructType,
    spark: SparkSession,
    *,
    iso: bool = False,
) -> list[dict[str, Any]]:
    """The rows with the columns that a changed definition gives them. `present`: their columns so far."""
    columns: dict[str, list[Any]] = {SEQUENCE: [row[SEQUENCE] for row in rows]}
    for one in changed:
        old = None if one.before is None else [row.get(one.before) for row in rows]
        if old is None or one.how == "convert":
            known = None if old is None else [None if value is None else _as_text(value) for value in old]
            columns[one.name] = plain(evolved_column(one, known, present, spark, len(rows)), iso=iso)
        else:
            columns[one.name] = old
    return [{name: values[row] for name, values in columns.items()} for row in range(len(rows))]


def _as_text(value: Any) -> bytes:
    return (str(int(value)) if isinstance(value, bool) else str(value)).encode("utf-8", "surrogatepass")


def evolved_column(
    change: Change, old: Sequence[bytes | None] | None, present: StructType, spark: SparkSession, count: int
) -> pa.Array:
    """New values of a column: those of the old one in another type, or the default."""
    kind = to_arrow_type(change.kind)
    if old is None:
        default = constant(spark, change.default, change.kind)
        if isinstance(default, bytearray):
            default = bytes(default)
        if isinstance(default, str) and not pa.types.is_string(kind):
            return converted(pa.array([default] * count, pa.string()), kind)
        return pa.array([default] * count, kind)
    assert change.before is not None
    no_text = isinstance(present[change.before].dataType, BinaryType | ArrayType)
    if no_text or pa.types.is_binary(kind) or pa.types.is_nested(kind):
        return pa.nulls(count, kind)
    known = [None if value is None else value.decode("utf-8", "replace") for value in old]
    return converted(pa.array(known, pa.string()), kind)
