"""Compares transformed rows: hashes that depend on the values alone, and not on the source's types.

Both sides of `penstock verify` make them in the same way: from rows of the source after the transforms, and
from the target's rows. Keys are the source's, whatever their columns are called at the target.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.model.schema import Column, TableSchema

_TEXT, _BYTES = "text", "blob"


@dataclass(frozen=True)
class TransformedRows:
    """The rows of one table after its transforms. `fields`: their columns. `key`: the name that each column
    of the table's key has in them. Pickles."""

    table: str
    types: str
    fields: pa.Schema
    key: tuple[str, ...]

    def keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of the key, under the names and in the types of the source."""
        names = TableSchema.from_json(self.table).key
        kinds = _core.arrow_schema(self.table, "rows", self.types)
        arrays = [
            batch.column(at_target).cast(kinds.field(name).type)
            for name, at_target in zip(names, self.key, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, list(names))

    def hashes(self, batch: pa.RecordBatch) -> pa.Array:
        """A hash for each row, over all of `fields`."""
        texts = [_comparable(batch.column(one.name), one.type) for one in self.fields]
        names = [f"c{number}" for number in range(len(texts))]
        columns = [
            Column(name, _BYTES) if pa.types.is_binary(text.type) else Column(name, _TEXT, charset="utf8mb4")
            for name, text in zip(names, texts, strict=True)
        ]
        schema = TableSchema(TableSchema.from_json(self.table).table, tuple(columns))
        return _core.row_hashes(schema.to_json(), pa.RecordBatch.from_arrays(texts, names), names, "{}")


def _comparable(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as texts or bytes."""
    array = array if array.type == kind else array.cast(kind)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return array
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us")) if kind.tz is None else array.cast(pa.timestamp("us", "UTC"))
        return array.cast(pa.int64()).cast(pa.string())
    if pa.types.is_nested(kind):
        return pa.array([None if one is None else _json(one) for one in array.to_pylist()], pa.string())
    return array.cast(pa.string())


def _json(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)
