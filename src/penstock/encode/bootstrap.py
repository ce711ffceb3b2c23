"""Maxwell's messages around the rows of a snapshot: `bootstrap-start` and `bootstrap-complete`.

The rows between them are written by `RowEncoder`.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from penstock.model.schema import TableSchema

Phase = Literal["start", "complete"]


def bootstrap_message(
    schema: TableSchema, phase: Phase, *, at_us: int, options: str = "{}", id: str = ""
) -> tuple[bytes, bytes]:
    """Key and value. `options`: those of the format, as JSON. `id`: the name of the snapshot, which stands in
    the key of a table without a primary key."""
    value = {
        "database": schema.table.database,
        "table": schema.table.table,
        "type": f"bootstrap-{phase}",
        "ts": at_us // 1_000_000,
        "data": {},
    }
    return _dumps(_key(schema, json.loads(options).get("kafka_key_format", "hash"), id)), _dumps(value)


def _key(schema: TableSchema, key_format: str, id: str) -> Any:
    names = [name.lower() for name in schema.key]
    if key_format == "array":
        return [schema.table.database, schema.table.table, [{name: None} for name in names]]
    columns: dict[str, Any] = {f"pk.{name}": None for name in names}
    return {"database": schema.table.database, "table": schema.table.table, **(columns or {"_uuid": id})}


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
