"""Values of rows as texts of Redis: fields of a hash, or one JSON object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from penstock.model.change import SEQUENCE
from penstock.sinks.documents import Text, as_json, plain, texts
from penstock.sinks.redis.options import escaped

NULL_KEY = "%-"
"""A NULL in the name of a key: a zero date."""


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
    """For each row, its fields and values in turn. A column with NULL is left out."""
    columns = [(name, texts(batch.column(name))) for name in names]
    return [
        [part for name, values in columns if (value := values[row]) is not None for part in (name, value)]
        for row in range(batch.num_rows)
    ]


def objects(batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """For each row, a JSON object whose first member is `_sequence`."""
    columns = {name: plain(batch.column(name)) for name in (SEQUENCE, *names)}
    return [as_json({name: values[row] for name, values in columns.items()}) for row in range(batch.num_rows)]
