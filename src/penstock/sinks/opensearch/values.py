"""Rows as documents: their ids, fields and mapping. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.model.change import SEQUENCE
from penstock.sinks.documents import Text, plain, texts

ID_BYTES_MAX = 512
"""The server's limit."""
_ID_BYTES_KEPT = 400
"""Bytes of a long id that stay in front of its digest."""
NULL_KEY = "%-"
"""A NULL in an id: a zero date."""
EMPTY_KEY = "%."
"""The id of an empty text, because the server takes no empty id."""
KEYWORD_CHARACTERS = 256
"""Longer texts are not found by their whole value. A term has at most 32,766 bytes."""
_RESERVED = frozenset(
    f"_{name}"
    for name in (
        "id", "index", "source", "type", "routing", "version", "seq_no", "primary_term", "field_names",
        "ignored", "nested_path", "size", "doc_count", "tier", "feature", "uid", "all", "parent",
        "timestamp", "ttl", "data_stream_timestamp",
    )
)  # fmt: skip
"""Names that documents cannot have: the server's own."""


def field_name(column: str) -> str:
    """A column's field. A point would mean a field of an object, so it is written `%2E`."""
    name = column.replace("%", "%25").replace(".", "%2E").replace("*", "%2A")
    return f"%5F{name[1:]}" if name in _RESERVED else name


def ids(batch: pa.RecordBatch, key: Sequence[str]) -> list[str]:
    """The ids of the rows' documents: the values of the key, joined by colons."""
    parts = [texts(batch.column(name)) for name in key]
    return [_id(":".join(map(_part, values)) or EMPTY_KEY) for values in zip(*parts, strict=True)]


def _id(text: str) -> str:
    """An id that is too long is cut, and ends in `~` and a digest. No other contains `~`."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= ID_BYTES_MAX:
        return text
    digest = hashlib.sha256(data).hexdigest()
    return f"{data[:_ID_BYTES_KEPT].decode('utf-8', 'ignore')}~{digest}"


def _part(value: Text | None) -> str:
    if value is None:
        return NULL_KEY
    if isinstance(value, bytes):
        return value.hex()
    return value.replace("%", "%25").replace(":", "%3A").replace("~", "%7E")


def documents(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """For each row its fields. A column with NULL is left out."""
    columns = [(field_name(name), plain(batch.column(name), iso=True)) for name in (*names, SEQUENCE)]
    return [
        {name: value for name, values in columns if (value := values[row]) is not None}
        for row in range(batch.num_rows)
    ]


def of_columns(document: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A document's values by column."""
    return {name: document.get(field_name(name)) for name in (*names, SEQUENCE)}


def of_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's document."""
    return {field_name(name): value for name, value in row.items() if value is not None}


def mapping(columns: StructType, chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The properties of an index. `chosen`: other mappings of some columns."""
    return {
        field_name(field.name): dict(chosen.get(field.name) or mapped(field.dataType)) for field in columns
    }


def mapped(kind: DataType) -> dict[str, Any]:
    """The mapping of values of a type. It is how they are searched: documents have them as they came."""
    if isinstance(kind, IntegralType) or (isinstance(kind, DecimalType) and _is_long(kind)):
        return {"type": "long"}
    if isinstance(kind, (DecimalType, FractionalType)):
        # The server has no NaN and no infinities. Such a value is in the document, and not found by it.
        return {"type": "double", "ignore_malformed": True}
    if isinstance(kind, BooleanType):
        return {"type": "boolean"}
    if isinstance(kind, BinaryType):
        return {"type": "binary"}
    if isinstance(kind, (DateType, TimestampType, TimestampNTZType)):
        return {"type": "date", "format": "strict_date_optional_time"}
    if isinstance(kind, ArrayType):
        return mapped(kind.elementType)  # each field may have several values
    assert isinstance(kind, StringType)
    return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": KEYWORD_CHARACTERS}}}


def _is_long(kind: DecimalType) -> bool:
    return kind.scale == 0 and kind.precision <= 18


def fields_of(properties: Mapping[str, Any]) -> int:
    """The number of fields as which a mapping counts."""
    return sum(1 + len(one.get("fields", {})) for one in properties.values())


def as_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
