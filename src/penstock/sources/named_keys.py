"""Converts keys that a person or a program names into Arrow.

A key has one value for each column of the table's key, in the form of JSON: numbers for numbers, texts for
texts and times, `0x…` for binary columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.model.column_type import (
    ADDRESSES,
    BINARY,
    DATES,
    DECIMAL,
    ENUM,
    INTEGERS,
    NUMERIC,
    TEXTS,
    YEAR,
)
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import Column, TableSchema, TypeOptions

_INTEGERS = INTEGERS | {YEAR}
_TEXTS = TEXTS | ADDRESSES | {ENUM}
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?")
_HEX = re.compile(r"0x(?:[0-9A-Fa-f]{2})*")


class InvalidKey(ValueError):
    """A value does not fit its key column. The message names the value and the column."""


def key_rows(schema: TableSchema, keys: Sequence[KeyValues], types: TypeOptions) -> pa.Table:
    """The keys as columns of layout `rows`, in the key's order. Raises `InvalidKey`."""
    fields = _core.arrow_schema(schema.to_json(), "rows", types.to_json())
    arrays = []
    for place, name in enumerate(schema.key):
        column, kind = schema.column(name), fields.field(name).type
        values = [parse_value(column, key[place]) for key in keys]
        try:
            text = pa.types.is_temporal(kind) or column.type in (DECIMAL, NUMERIC)
            array = pa.array(
                [f"{v:f}" if isinstance(v, Decimal) else str(v) for v in values] if text else values
            )
            arrays.append(array.cast(kind) if kind != array.type else array)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise InvalidKey(f"{name}: {error}") from None
    return pa.Table.from_arrays(arrays, schema=pa.schema([fields.field(name) for name in schema.key]))


def check_keys(schema: TableSchema, keys: Iterable[KeyValues], types: TypeOptions) -> None:
    """Raises `InvalidKey` for values that cannot be a key of the table."""
    keys = list(keys)
    for key in keys:
        if len(key) != len(schema.key):
            raise InvalidKey(f"{list(key)!r}: the key of {schema.table} is ({', '.join(schema.key)})")
    key_rows(schema, keys, types)


def missing_keys(
    schema: TableSchema, keys: Sequence[KeyValues], found: pa.Table, types: TypeOptions
) -> pa.RecordBatch:
    """Rows of layout `rows` with nothing but the keys that are not among the `found` ones."""
    wanted = key_rows(schema, keys, types)
    left = wanted.join(found, list(schema.key), join_type="left anti")
    fields = _core.arrow_schema(schema.to_json(), "rows", types.to_json())
    columns = [left[f.name] if f.name in schema.key else pa.nulls(left.num_rows, f.type) for f in fields]
    nullable = pa.schema([field.with_nullable(True) for field in fields])
    batches = pa.Table.from_arrays(columns, schema=nullable).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=nullable)


def parse_value(column: Column, value: Any) -> int | str | bytes | Decimal:
    """A value of a key column. Raises `InvalidKey` if the column cannot have such a value."""
    refused = InvalidKey(f"{column.name}: {value!r} is no value of {column.column_type or column.type}")
    if isinstance(value, bool) or value is None:
        raise refused
    if column.type in _INTEGERS:
        if isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"-?\d{1,20}", value)):
            return int(value)
        raise refused
    if column.type in (DECIMAL, NUMERIC):
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            raise refused from None
        if not number.is_finite() if column.type == DECIMAL else number.is_snan():
            raise refused
        if number.is_finite() and abs(number.adjusted()) > 100:
            raise refused
        return number
    if not isinstance(value, str):
        raise refused
    if column.type in BINARY or (column.type in _TEXTS and column.charset == "binary"):
        if not _HEX.fullmatch(value):
            raise refused
        return bytes.fromhex(value[2:])
    if column.type in DATES and _TIME.fullmatch(value):
        return value.replace("T", " ")
    if column.type in _TEXTS:
        return value
    raise refused
