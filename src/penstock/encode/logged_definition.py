"""Statements of logs that define their tables themselves (`sources/logged_definitions.py`), where messages of
statements are made: those formats are about MySQL's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.model.schema import TableId, TableSchema
from penstock.model.statement_head import statement_head
from penstock.sources.logged_definitions import schema_of
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server


def parsed(statement: Mapping[str, Any], server: Server) -> syntax.Statement:
    """A statement in the log (`LogEncoder.read`), as the grammar reads it, or as the log says it."""
    said = said_by(statement)
    if said is None:
        return parse(statement["sql"], statement["database"], server)
    table = TableId(statement["database"], said["table"])
    if "created" in said:
        return syntax.CreateTable(table)
    return syntax.TruncateTable(table) if "emptied" in said else syntax.AlterTable(table, ())


def said_by(statement: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a statement says that is no SQL. None: it is SQL, which never begins with a brace."""
    text = statement["sql"]
    said: dict[str, Any] | None = json.loads(text) if text and text.startswith("{") else None
    return said


def head_of(statement: Mapping[str, Any]) -> str:
    """The beginning of a statement, without values."""
    said = said_by(statement)
    if said is None:
        return statement_head(statement["sql"])
    (what,) = said.keys() & {"created", "altered", "emptied"}
    return f"{TableId(statement['database'], said['table'])} is {what}"


def defined(statement: Mapping[str, Any]) -> tuple[TableId, TableSchema] | None:
    """The table that such a statement defines. None: it defines none."""
    said = said_by(statement) or {}
    definition = said.get("created") or said.get("altered")
    if definition is None:
        return None
    table = TableId(statement["database"], said["table"])
    return table, schema_of(table, definition)
