"""Values that a database gives, as Arrow columns of given types: the texts of its CSV, or values of Python.

They are compared with the source's. So a value that the type cannot hold is an error, and never NULL or
another value that might happen to be equal.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.model.lists import list_array
from penstock.model.not_numbers import NAMES

BLOCK_BYTES = 16 * 1024**2
"""CSV is read in blocks of about this size, which have whole rows."""
ROWS_AT_ONCE = 10_000
"""Rows that are taken from a driver together."""
_TRUE, _FALSE = ("t", "true", "1"), ("f", "false", "0")
_ZONE = r"(\+00(:00)?|Z)$"


class Unfit(Exception):
    """A value does not fit the type of its column. Its text has no value."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


def csv_batches(parts: Iterable[bytes], fields: pa.Schema, *, null: str) -> Iterator[pa.RecordBatch]:
    """Rows of CSV without a header. `null`: what stands for NULL, without quotation marks. Bytes are given in
    hexadecimal digits."""
    source = _Parts(parts)
    if not source.peek():
        return
    names = [str(number) for number in range(len(fields))]
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    for block in source.blocks():
        read = pa_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1)
        table = pa_csv.read_csv(
            pa.BufferReader(block), read_options=read, parse_options=parse, convert_options=convert
        )
        for batch in table.to_batches():
            yield batch_of(batch.columns, fields)


class _Parts:
    """Bytes that arrive in parts, cut into blocks that end at the end of a row."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._first = b""

    def peek(self) -> bool:
        """Whether any bytes come. Waits for the first of them."""
        self._first = next((part for part in map(bytes, self._parts) if part), b"")
        return bool(self._first)

    def blocks(self) -> Iterator[bytes]:
        waiting = io.BytesIO()
        quotes, end = 0, 0
        """The number of quotation marks so far, and the end of the last whole row in `waiting`."""
        part = self._first
        while part:
            base = waiting.tell()
            waiting.write(part)
            # A line break ends a row if the number of quotation marks before it is even.
            pieces = part.split(b'"')
            place = base
            for number, piece in enumerate(pieces):
                if (quotes + number) % 2 == 0 and (found := piece.rfind(b"\n")) >= 0:
                    end = place + found + 1
                place += len(piece) + 1
            quotes += len(pieces) - 1
            if end and waiting.tell() >= BLOCK_BYTES:
                whole = waiting.getvalue()
                yield whole[:end]
                waiting = io.BytesIO()
                waiting.write(whole[end:])
                end = 0
            part = next((bytes(one) for one in self._parts if one), b"")
        if waiting.tell():
            yield waiting.getvalue()


def batch_of(columns: Sequence[pa.Array], fields: pa.Schema) -> pa.RecordBatch:
    """The columns, each in the type of its field. Raises `Unfit`."""
    arrays = [_fitted(column, field) for column, field in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def row_batch(rows: Sequence[Sequence[Any]], fields: pa.Schema) -> pa.RecordBatch:
    """Rows of Python's values. Raises `Unfit`."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in fields]
    return batch_of([_array(column, field) for column, field in zip(columns, fields, strict=True)], fields)


def document_batch(rows: Sequence[Mapping[str, Any]], fields: pa.Schema) -> pa.RecordBatch:
    """Rows of JSON objects, with bytes in Base64. What an object lacks is NULL. Raises `Unfit`."""
    columns = [_of_json([row.get(field.name) for row in rows], field) for field in fields]
    return batch_of(columns, fields)


def _of_json(values: list[Any], field: pa.Field) -> pa.Array:
    if pa.types.is_list(field.type):
        if not all(value is None or isinstance(value, list) for value in values):
            raise Unfit(field.name)
        element = pa.field(field.name, field.type.value_type)
        flat = _fitted(_of_json([one for value in values if value for one in value], element), element)
        return list_array((None if value is None else len(value) for value in values), flat)
    if pa.types.is_binary(field.type):
        values = [_of_base64(value, field) for value in values]
    if pa.types.is_floating(field.type):
        values = [float(value) if value in NAMES else value for value in values]
    return _array(values, field)


def _of_base64(value: Any, field: pa.Field) -> bytes | None:
    try:
        return None if value is None else base64.b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise Unfit(field.name) from None


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        if pa.types.is_decimal(field.type):
            values = [None if value is None else str(value) for value in values]
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise Unfit(field.name) from None


def _fitted(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        found = array if array.type == field.type else _cast(array, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        raise Unfit(field.name) from None
    if found.null_count != array.null_count:
        raise Unfit(field.name)
    return found


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _parsed(array, kind)
    if pa.types.is_boolean(kind):
        return _booleans(array.cast(pa.string()))
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_temporal(array.type):
        same = pa.types.is_temporal(array.type) and array.type.id == kind.id
        same = same or (pa.types.is_large_binary(array.type) and pa.types.is_binary(kind))
        if not same:
            raise ValueError("another kind of value")
    found = array.cast(kind)
    if pa.types.is_floating(kind) and not _without_nan(found.cast(array.type)).equals(_without_nan(array)):
        raise ValueError("digits would be lost")
    return found


def _without_nan(array: pa.Array) -> pa.Array:
    """Zero instead of NaN, which equals nothing."""
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(0, array.type), array)


def _parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([None if one is None else _bytes(one) for one in texts.to_pylist()], kind)
    if pa.types.is_boolean(kind):
        return _booleans(texts)
    if pa.types.is_timestamp(kind):
        plain = pc.replace_substring_regex(texts, _ZONE, "").cast(pa.timestamp("us"))
        return plain if kind.tz is None else plain.cast(kind)
    return texts.cast(kind)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


def _booleans(texts: pa.Array) -> pa.Array:
    known = pa.array([*_TRUE, *_FALSE], texts.type)
    if not pc.all(pc.is_in(texts.drop_null(), known), min_count=0).as_py():
        raise ValueError("no truth value")
    found = pc.is_in(texts, pa.array(_TRUE, texts.type))
    return pc.if_else(pc.is_valid(texts), found, pa.scalar(None, pa.bool_()))
