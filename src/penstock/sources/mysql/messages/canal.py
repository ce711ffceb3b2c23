"""Canal's entries of statements: a RowChange with `isDdl` and the SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.column import IndexSpec

EVENT_TYPES = {
    "CREATE": 4, "ALTER": 5, "ERASE": 6, "QUERY": 7, "TRUNCATE": 8, "RENAME": 9, "CINDEX": 10, "DINDEX": 11,
}  # fmt: skip
"""Numbers of `CanalEntry.EventType`."""
_ROW_DATA = 2
_MYSQL = 2


def canal_entry(
    statement: Mapping[str, Any], kind: str, database: str, table: str, *, defines: bool = True
) -> bytes:
    """Canal's entry for a statement. `statement`: fields of `LogEncoder.read`. `kind`: one of `EVENT_TYPES`.
    `database` and `table`: what the statement is about. `defines`: it is DDL."""
    header = b"".join(
        [
            _number(1, 1), _text(2, statement["file"]), _number(3, statement["event_position"]),
            _number(4, statement["server_id"]), _text(5, "UTF-8"), _number(6, statement["timestamp"] * 1000),
            _number(7, _MYSQL), _text(8, database), _text(9, table), _number(10, statement["event_bytes"]),
            _number(11, EVENT_TYPES[kind]),
        ]
    )  # fmt: skip
    if statement["id"]:
        header += _bytes(12, _text(1, "curtGtid") + _text(2, statement["id"]))
    change = b"".join(
        [
            _number(2, EVENT_TYPES[kind]), _number(10, int(defines)), _text(11, statement["sql"]),
        ]
    )  # fmt: skip
    if statement["database"]:
        change += _text(14, statement["database"])
    return _bytes(1, header) + _number(2, _ROW_DATA) + _bytes(3, change)


def canal_type(parsed: syntax.Statement, sql: str) -> tuple[str, list[tuple[str, str]]]:
    """Canal's type of a statement, and database and table of each message."""
    words = [word.upper() for word in sql.split(maxsplit=3)[:3]]
    match parsed:
        case syntax.CreateTable(table=table, temporary=False):
            return "CREATE", [(table.database, table.table)]
        case syntax.AlterTable(table=table, actions=(syntax.RenameTo(table=new), *_)):
            return "RENAME", [(new.database, new.table)]
        case syntax.AlterTable(table=table, actions=actions):
            kind = {"CREATE": "CINDEX", "DROP": "DINDEX"}.get(words[0]) or _alter_type(actions)
            return kind, [(table.database, table.table)]
        case syntax.DropTables(tables=dropped, temporary=False):
            return "ERASE", [(table.database, table.table) for table in dropped]
        case syntax.RenameTables(pairs=pairs):
            return "RENAME", [(after.database, after.table) for _, after in pairs]
        case syntax.TruncateTable(table=table):
            return "TRUNCATE", [(table.database, table.table)]
        case syntax.SetDatabase(name=name) | syntax.DropDatabase(name=name):
            return "QUERY", [(name, "")]
    return "", []


def _alter_type(actions: Sequence[syntax.Action]) -> str:
    """The first action decides, as in Canal 1.1.7."""
    match actions:
        case (syntax.AddElement(element=IndexSpec()), *_):
            return "CINDEX"
        case (syntax.DropKey(name=name, kinds=kinds), *_) if kinds == {"key"} and name != "PRIMARY":
            return "DINDEX"
        case _:
            return "ALTER"


def renamed(parsed: syntax.Statement) -> Mapping[TableId, TableId]:
    """The old names of the tables that a statement renames, by the new ones."""
    match parsed:
        case syntax.RenameTables(pairs=pairs):
            return {after: before for before, after in pairs}
        case syntax.AlterTable(table=table, actions=actions):
            return {one.table: table for one in actions if isinstance(one, syntax.RenameTo)}
        case _:
            return {}


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
