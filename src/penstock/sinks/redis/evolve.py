"""Rows with the columns that a changed definition gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StructType

from penstock.model.change import SEQUENCE
from penstock.sinks.evolve import Change
from penstock.sinks.redis.values import as_object, plain, texts
from penstock.sinks.rows import converted
from penstock.sinks.spark_sql import constant


def evolved_hash(
    rows: Sequence[Mapping[bytes, bytes]], changed: Sequence[Change], present: StructType, spark: SparkSession
) -> list[list[Any]]:
    """Of each row the fields and values of its hash."""
    columns: dict[str, list[Any]] = {SEQUENCE: [row[SEQUENCE.encode()] for row in rows]}
    for one in changed:
        before = None if one.before is None else one.before.encode("utf-8", "surrogatepass")
        old = None if before is None else [row.get(before) for row in rows]
        if old is None or one.how == "convert":
            columns[one.name] = texts(_column(one, old, present, spark, len(rows)))
        else:
            columns[one.name] = old
    return [
        [part for name, values in columns.items() if values[row] is not None for part in (name, values[row])]
        for row in range(len(rows))
    ]


def evolved_object(
    rows: Sequence[bytes], changed: Sequence[Change], present: StructType, spark: SparkSession
) -> list[list[Any]]:
    """Of each row its JSON object."""
    held = [json.loads(row) for row in rows]
    columns: dict[str, list[Any]] = {SEQUENCE: [row[SEQUENCE] for row in held]}
    for one in changed:
        old = None if one.before is None else [row.get(one.before) for row in held]
        if old is None or one.how == "convert":
            known = None if old is None else [None if value is None else _text(value) for value in old]
            columns[one.name] = plain(_column(one, known, present, spark, len(rows)))
        else:
            columns[one.name] = old
    return [[as_object({name: values[row] for name, values in columns.items()})] for row in range(len(rows))]


def _text(value: Any) -> bytes:
    return (str(int(value)) if isinstance(value, bool) else str(value)).encode("utf-8", "surrogatepass")


def _column(
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
    if isinstance(present[change.before].dataType, BinaryType) or pa.types.is_binary(kind):
        return pa.nulls(count, kind)
    known = [None if value is None else value.decode("utf-8", "replace") for value in old]
    return converted(pa.array(known, pa.string()), kind)
