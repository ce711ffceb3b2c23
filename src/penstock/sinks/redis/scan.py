"""Reads the targets in Redis for a comparison."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import redis

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sinks.redis.faults import explained
from penstock.sinks.refusals import lacking_columns, unfit_value
from penstock.sinks.texts import Unfit, document_batch, row_batch


@dataclass(frozen=True)
class RedisScan:
    """A `Scan`. `columns`: those that a target of ours has, or it raises `TableError`. `keys`: the names of
    its keys, in portions; each may come more than once. `read`: their values. It remembers all names
    meanwhile."""

    columns: Callable[[TableId], Sequence[str]]
    keys: Callable[[TableId], Iterable[list[bytes]]]
    read: Callable[[Sequence[bytes]], list[Any]]
    as_json: bool
    isolated: ClassVar[bool] = False

    def batches(self, table: TableId, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        seen: set[bytes] = set()
        try:
            known = self.columns(table)
            if lacking := [name for name in fields.names if name not in known]:
                raise lacking_columns(table, lacking)
            for portion in self.keys(table):
                names = [name for name in dict.fromkeys(portion) if name not in seen]
                seen.update(names)
                rows = [row for row in self.read(names) if row] if names else []
                if rows:
                    yield self._batch(rows, fields)
        except Unfit as error:
            raise unfit_value(table, error.column) from None
        except redis.RedisError as error:
            found = explained(error, f"The target of {table} cannot be read", table)
            raise TableError(found.message, hint=found.hint, table=str(table)) from None

    def _batch(self, rows: Sequence[Any], fields: pa.Schema) -> pa.RecordBatch:
        if self.as_json:
            return document_batch([_object(row, fields) for row in rows], fields)
        names = [field.name.encode("utf-8", "surrogatepass") for field in fields]
        found = [
            [_value(row.get(name), field) for name, field in zip(names, fields, strict=True)] for row in rows
        ]
        return row_batch(found, fields)


def _object(text: bytes, fields: pa.Schema) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unfit(fields.names[0])
    return found


def _value(value: bytes | None, field: pa.Field) -> bytes | str | None:
    if value is None or pa.types.is_binary(field.type):
        return value
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Unfit(field.name) from None
