"""Canal's entries of statements: a RowChange with `isDdl` and the SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.model.schema import TableId
from penstock.sources.statement_reading import StatementReading

EVENT_TYPES = {
    "CREATE": 4, "ALTER": 5, "ERASE": 6, "QUERY": 7, "TRUNCATE": 8, "RENAME": 9, "CINDEX": 10, "DINDEX": 11,
}  # fmt: skip
"""Numbers of `CanalEntry.EventType`."""
_ROW_DATA = 2


def canal_entry(statement: Mapping[str, Any], read: StatementReading, table: TableId) -> bytes:
    """Canal's entry for a statement about a table. `statement`: fields of `LogEncoder.read`."""
    header = b"".join(
        [
            _number(1, 1), _text(2, statement["file"]) if statement["file"] else b"",
            _number(3, statement["event_position"]),
            _number(4, statement["server_id"]), _text(5, "UTF-8"), _number(6, statement["timestamp"] * 1000),
            b"" if statement["canal_type"] is None else _number(7, statement["canal_type"]),
            _text(8, table.database), _text(9, table.table),
            _number(10, statement["event_bytes"]), _number(11, EVENT_TYPES[read.kind]),
        ]
    )  # fmt: skip
    if statement["id"]:
        header += _bytes(12, _text(1, "curtGtid") + _text(2, statement["id"]))
    change = b"".join(
        [
            _number(2, EVENT_TYPES[read.kind]), _number(10, int(read.defines)), _text(11, read.sql),
        ]
    )  # fmt: skip
    if statement["database"]:
        change += _text(14, statement["database"])
    return _bytes(1, header) + _number(2, _ROW_DATA) + _bytes(3, change)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())
