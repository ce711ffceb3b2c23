"""What a statement in a log is about, as messages tell of it.

A log that defines its tables itself says so (`logged_definitions.py`). The text of any other statement is
read by the source whose segment format the log has (`SourceKind.read_statement`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.model.schema import TableId
from penstock.sources import registry
from penstock.sources.logged_definitions import said_by


@dataclass(frozen=True, kw_only=True)
class StatementReading:
    """A statement, read without the definitions of tables."""

    kind: str = ""
    """What it does, in Canal's words: `CREATE`, `ALTER`, `ERASE`, `TRUNCATE`, `RENAME`, `CINDEX`, `DINDEX` or
    `QUERY`. Empty: messages do not tell of it."""
    tables: tuple[TableId, ...] = ()
    """The tables that it is about. A database is one without a name."""
    renamed: Mapping[TableId, TableId] = field(default_factory=dict)
    """The old names of tables that it renames, by the new ones."""
    databases: Mapping[str, str] = field(default_factory=dict)
    """The databases that it is about, and what it does to them: `create`, `alter` or `drop`."""
    defines: bool = True
    """Whether it is about definitions. If not, it only changes rows."""
    changes_rows: bool = False
    """Whether it changes rows that the log has no row events for."""
    sql: str = ""
    """Its SQL, or a comment with `warning`. Empty: it is no SQL."""
    warning: str = ""
    """What readers of rows are told, if it is no statement at all."""


def read_statement(statement: Mapping[str, Any]) -> StatementReading:
    """Reads a statement in a log (`LogEncoder.read`)."""
    said = said_by(statement)
    if said is None:
        source = registry.of_format(statement["segment_format"])
        assert source is not None and source.read_statement is not None, statement["segment_format"]
        read: StatementReading = source.read_statement(statement)
        return read
    kind = next((kind for what, kind in _KINDS.items() if what in said), "")
    table = TableId(statement["database"], said["table"])
    if kind == "RENAME":
        to = TableId(*said["moved"])
        return StatementReading(kind=kind, tables=(to,), renamed={to: table})
    unlogged = bool(said.get("filled") or said.get("reread"))
    return StatementReading(kind=kind, tables=(table,), changes_rows=kind == "TRUNCATE" or unlogged)


_KINDS = {
    "moved": "RENAME", "created": "CREATE", "altered": "ALTER", "emptied": "TRUNCATE", "dropped": "ERASE",
}  # fmt: skip
"""What a log says of a table that it defines itself, and Canal's word for it."""
