"""Rows of many tables in the columns of one query: the row and its key are JSON objects.

So a query goes on when a table's columns change, and tables come and go.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasource.options import CdcOptions
from penstock.datasource.partitions import SOURCE_FIELDS, Batches, Surveys, read, singles, table_of
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE, own_name
from penstock.model.schema import TableSchema
from penstock.sinks.documents import are_numbers, float_texts, plain
from penstock.sinks.documents import texts as values_of
from penstock.sinks.names import source_columns
from penstock.sinks.rows import pieces

DATABASE = "_database"
TABLE = "_table"
KEY = "key"
ROW = "row"
_VARIANT = pa.struct([
    pa.field("value", pa.binary(), nullable=False),
    pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
])  # fmt: skip
"""How Spark writes VARIANT in Arrow."""
_ESCAPED = r'["\\\x00-\x1f]'
_TEXT = pa.large_string()


def envelope_schema(options: CdcOptions) -> pa.Schema:
    document = _VARIANT if options.rows == "variant" else pa.string()
    return pa.schema([
        pa.field(DATABASE, pa.string()),
        pa.field(TABLE, pa.string()),
        pa.field(KEY, document),
        pa.field(ROW, document),
        pa.field(CHANGE_TYPE, pa.string()),
        pa.field(SEQUENCE, pa.int64()),
        pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
        *SOURCE_FIELDS,
    ])  # fmt: skip


def read_enveloped(partition: Any, options: CdcOptions) -> Batches:
    """The rows of a partition in the columns of the query."""
    schema, surveys = envelope_schema(options), Surveys()
    for one in singles(partition):
        yield from enveloped(table_of(one), read(one, surveys), schema)


def enveloped(table: TableSchema, batches: Batches, schema: pa.Schema) -> Batches:
    """The rows of one table. A row that says that the table was emptied has neither key nor row."""
    for batch in pieces(batches):
        present = batch.schema.names
        is_row = pc.not_equal(batch.column(own_name(CHANGE_TYPE, present)), "truncate")
        names = source_columns(tuple(batch.schema.names[: -len(SOURCE_FIELDS)]))
        columns = {name: batch.column(name) for name in names}
        keys = {name: columns[name] for name in table.key}
        own = {
            DATABASE: pa.repeat(table.table.database, batch.num_rows),
            TABLE: pa.repeat(table.table.table, batch.num_rows),
            KEY: _documents(keys, is_row, schema.field(KEY).type),
            ROW: _documents(columns, is_row, schema.field(ROW).type),
        }
        arrays = [
            own[name] if name in own else batch.column(own_name(name, present)) for name in schema.names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _documents(columns: Mapping[str, pa.Array], is_row: pa.Array, kind: pa.DataType) -> pa.Array:
    if not columns:
        return pa.nulls(len(is_row), kind)
    made = pc.if_else(is_row, objects(columns), pa.scalar(None, _TEXT))
    return _variants(made) if kind == _VARIANT else made.cast(kind)


def _variants(documents: pa.Array) -> pa.Array:
    from pyspark.sql.types import VariantVal

    found = [None if one is None else VariantVal.parseJson(one) for one in documents.to_pylist()]
    return pa.array(
        [None if one is None else {"value": one.value, "metadata": one.metadata} for one in found], _VARIANT
    )


def objects(columns: Mapping[str, pa.Array]) -> pa.Array:
    """For each row a JSON object. Decimals and times are texts, and bytes are in Base64."""
    parts: list[pa.Array | pa.Scalar] = []
    for name, column in columns.items():
        head = ("," if parts else "{") + json.dumps(name, ensure_ascii=False) + ":"
        parts += [pa.scalar(head, _TEXT), _json(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}", _TEXT), pa.scalar("", _TEXT))


def _json(column: pa.Array) -> pa.Array:
    """The values of a column as JSON."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        coded = [None if one is None else base64.b64encode(one).decode() for one in column.to_pylist()]
        found = _quoted(pa.array(coded, _TEXT))
    elif pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
        found = _quoted(pa.array(values_of(column), _TEXT))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = _quoted(column.cast(_TEXT))
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        found = column.cast(_TEXT)
    elif pa.types.is_floating(kind):
        found = float_texts(column)
        if not are_numbers(column):
            found = pc.if_else(pc.is_finite(column), found, _quoted(found))
    else:
        values = [None if one is None else json.dumps(one, ensure_ascii=False) for one in plain(column)]
        found = pa.array(values, _TEXT)
    return pc.fill_null(found, "null")


def _quoted(texts: pa.Array) -> pa.Array:
    quote, nothing = pa.scalar('"', _TEXT), pa.scalar("", _TEXT)
    plain = pc.binary_join_element_wise(quote, texts, quote, nothing)
    special = pc.fill_null(pc.match_substring_regex(texts, _ESCAPED), False)
    if not pc.any(special).as_py():
        return plain
    escaped = [json.dumps(one, ensure_ascii=False) for one in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special, pa.array(escaped, _TEXT))
