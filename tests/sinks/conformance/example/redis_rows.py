"""The rows that the sink `redis` has written, for the conformance suite."""

from __future__ import annotations

import base64
import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegralType, StructType
from tests.sinks.conformance.example.typed_rows import frame_of

from penstock.model.schema import TableId
from penstock.sinks.redis.options import RedisOptions
from penstock.sinks.redis.sink import RedisSink


def written_rows(options: RedisOptions, spark: SparkSession, table: TableId) -> DataFrame:
    sink = RedisSink(options, spark, "")
    record = sink._record(table)
    columns = StructType.fromJson(json.loads(record["columns"]))
    names = sorted(set(sink._keys(options.prefix(table))))
    found = sink._read(names) if names else []
    sink.close()
    rows = [_of_hash(row, columns) if options.value == "hash" else _of_object(row, columns) for row in found]
    return frame_of(spark, rows, columns)


def _of_hash(row: dict[bytes, bytes], columns: StructType) -> tuple[Any, ...]:
    return tuple(_value(row.get(field.name.encode()), field.dataType) for field in columns)


def _value(text: bytes | None, kind: Any) -> Any:
    if text is None or isinstance(kind, BinaryType):
        return text
    return int(text) if isinstance(kind, IntegralType) else text.decode()


def _of_object(row: bytes, columns: StructType) -> tuple[Any, ...]:
    found = json.loads(row)
    return tuple(
        base64.b64decode(value)
        if isinstance(field.dataType, BinaryType) and (value := found[field.name]) is not None
        else found[field.name]
        for field in columns
    )
