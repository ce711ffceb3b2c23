"""The values of a row in columns that the log leaves out of its insert (`binlog_row_image` MINIMAL or
NOBLOB).

The server leaves out columns that got their literal or implicit default; a default that is an expression is
in the log. So the definition at that time decides the other columns.
"""

from __future__ import annotations

import re

import pyarrow as pa

from penstock._core import arrow_schema
from penstock.errors import TableError
from penstock.model.schema import Column, TableSchema, TypeOptions
from penstock.sources.mysql.added_defaults import existing_value
from penstock.sources.mysql.ddl.definition import Default, DefaultLiteral

_BITS = re.compile(r"b'([01]+)'")
_HEX = re.compile(r"0x([0-9A-Fa-f]*)")
_TEXT_LIKE = frozenset({"date", "datetime", "timestamp", "time", "enum", "set"})


def omitted_values(schema: TableSchema, types: TypeOptions) -> pa.RecordBatch:
    """One row of defaults in layout `rows`, with the columns whose default is known."""
    arrow = arrow_schema(schema.to_json(), "rows", types.to_json())
    fields, arrays = [], []
    for column, field in zip(schema.columns, arrow, strict=True):
        if column.default_is_expression or column.generated:
            continue
        try:
            value = existing_value(schema.table, column, _literal(column), types=types)
            arrays.append(pa.array([value], field.type))
        except (TableError, pa.ArrowException, ValueError, TypeError):
            continue  # only the server knows it: the core says so if it is needed
        fields.append(field.with_nullable(True))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _literal(column: Column) -> Default | None:
    """The constant that information_schema prints as COLUMN_DEFAULT."""
    text = column.default
    if text is None:
        return None
    if column.type == "bit" and (bits := _BITS.fullmatch(text)):
        return DefaultLiteral("bits", bits[1])
    if column.type in ("binary", "varbinary") and (digits := _HEX.fullmatch(text)):
        return DefaultLiteral("hex", digits[1])
    textual = column.charset is not None or column.type in _TEXT_LIKE
    return DefaultLiteral("string" if textual else "number", text)
