"""Values of rows as texts of Redis: fields of a hash, or one JSON object. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.model.change import SEQUENCE
from penstock.sinks.redis.registration import escaped
from penstock.sinks.sql.arrow_text import decimals

Text = bytes | str
NULL_KEY = "%-"
"""A NULL in the name of a key: a zero date."""


def texts(column: pa.Array) -> list[Text | None]:
    """The values of a column as texts. Bytes stay as they are."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return list(column.to_pylist())
    if pa.types.is_decimal(kind):
        return list(decimals(column).to_pylist())
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    return list(column.cast(pa.large_string()).to_pylist())


def plain(column: pa.Array) -> list[Any]:
    """The values of a column as JSON has them: decimals and times as texts, bytes in Base64."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if one is None else base64.b64encode(one).decode() for one in column.to_pylist()]
    if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
        return texts(column)
    return list(column.to_pylist())


def key_names(prefix: str, batch: pa.RecordBatch, key: Sequence[str]) -> list[bytes]:
    """The names of the rows' keys."""
    parts = [texts(batch.column(name)) for name in key]
    return [
        (prefix + ":".join(map(_key_part, values))).encode("utf-8", "surrogatepass")
        for values in zip(*parts, strict=True)
    ]


def _key_part(value: Text | None) -> str:
    if value is None:
        return NULL_KEY
    return value.hex() if isinstance(value, bytes) else escaped(value)


def hashes(batch: pa.RecordBatch, names: Iterable[str]) -> list[list[Text]]:
    """Of each row its fields and values, one after the other. NULL has no field."""
    columns = [(name, texts(batch.column(name))) for name in names]
    return [
        [part for name, values in columns if (value := values[row]) is not None for part in (name, value)]
        for row in range(batch.num_rows)
    ]


def objects(batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """Of each row a JSON object, whose first member is `_sequence`."""
    columns = {name: plain(batch.column(name)) for name in (SEQUENCE, *names)}
    return [
        as_object({name: values[row] for name, values in columns.items()}) for row in range(batch.num_rows)
    ]


def as_object(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_text)


def _text(value: object) -> str:
    assert isinstance(value, Decimal)
    return format(value, "f")
