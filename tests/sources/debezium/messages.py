"""Messages as Debezium's connectors write them, made by hand from its documentation."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Consumed = tuple[str, int, int, int, bytes | None, bytes | None]
COMMITTED_MS = 1_700_000_000_000


def column(name: str, kind: str, semantic: str = "", *, optional: bool = True, **more: Any) -> dict[str, Any]:
    """A field of a Connect schema. `more`: `default`, `parameters`, `fields`."""
    named = {"name": semantic} if semantic else {}
    return {"field": name, "type": kind, "optional": optional, **named, **more}


def decimal(number: int, size: int = 4) -> str:
    """An unscaled decimal number, as Connect writes it in JSON."""
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


ID = column("id", "int64", optional=False)
NOTE = column("note", "string")


@dataclass
class Table:
    """A table of a connector, and the messages of its topic."""

    connector: str = "mysql"
    columns: list[dict[str, Any]] = field(default_factory=lambda: [ID, NOTE])
    key: tuple[str, ...] = ("id",)
    source: dict[str, Any] = field(default_factory=lambda: {"db": "shop", "table": "orders"})
    topic: str = "prefix.shop.orders"
    with_schema: bool = True

    def _schema(self) -> dict[str, Any]:
        row = {"type": "struct", "name": "prefix.Value", "optional": True, "fields": self.columns}
        fields = [{**row, "field": "before"}, {**row, "field": "after"}, column("op", "string")]
        return {"type": "struct", "name": "prefix.Envelope", "fields": fields}

    def key_of(self, row: Mapping[str, Any]) -> bytes | None:
        if not self.key:
            return None
        payload = {name: row[name] for name in self.key}
        if not self.with_schema:
            return json.dumps(payload).encode()
        fields = [one for one in self.columns if one["field"] in self.key]
        return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()

    def value(
        self, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, **source: Any
    ) -> bytes:
        block = {
            "version": "3.6.1.Final", "connector": self.connector, "name": "prefix", "ts_ms": COMMITTED_MS,
            "snapshot": "true" if op == "r" else "false", **self.source, **source,
        }  # fmt: skip
        payload = {"before": before, "after": after, "source": block, "op": op, "ts_ms": COMMITTED_MS + 5}
        wrapped = {"schema": self._schema(), "payload": payload} if self.with_schema else payload
        return json.dumps(wrapped).encode()

    def change(
        self, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, **source: Any
    ) -> tuple[bytes | None, bytes]:
        """Key and value of a message."""
        row = after if after is not None else before
        return (None if row is None else self.key_of(row)), self.value(op, before, after, **source)


def consumed(
    table: Table, offset: int, pair: tuple[bytes | None, bytes | None], *, partition: int = 0
) -> Consumed:
    return (table.topic, partition, offset, COMMITTED_MS, *pair)


def mysql(**more: Any) -> dict[str, Any]:
    """Where an event of MySQL is from."""
    return {"file": "binlog.000007", "row": 0, "server_id": 11, **more}


def postgresql(commit: int, lsn: int, **more: Any) -> dict[str, Any]:
    return {"sequence": json.dumps([str(commit), str(lsn)]), "lsn": lsn, "txId": 7, **more}


def postgres_table(**more: Any) -> Table:
    source = {"db": "shopdb", "schema": "public", "table": "orders"}
    return Table(connector="postgresql", source=source, **more)
