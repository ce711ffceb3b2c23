"""Messages of statements that define tables: Canal's, and by an option Maxwell's and Debezium's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock import __version__
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.messages.canal import canal_entry, canal_type
from penstock.sources.mysql.messages.schema_changes import TableChange, debezium_message, maxwell_messages

_SERVER = Server.parse("8.0")


def statement_messages(
    format: str, options: str, statement: Mapping[str, Any], changes: Sequence[TableChange]
) -> list[tuple[bytes, bytes]]:
    """Key and value of the messages of one statement in the log (`LogEncoder.read`). `options`: those of the
    format, as JSON. `changes`: what is known of the definitions that the statement changed."""
    chosen = json.loads(options)
    if statement["event"] is not None:
        return []
    parsed = parse(statement["sql"], statement["database"], _SERVER)
    match format:
        case "canal" | "canal-entry":
            kind, tables = canal_type(parsed, statement["sql"])
            if format == "canal":
                return [(b"", _canal(statement, kind, *table).encode()) for table in tables]
            return [(b"", canal_entry(statement, kind, *table)) for table in tables]
        case "maxwell" if chosen.get("output_ddl"):
            return maxwell_messages(statement, changes, _databases(parsed))
        case "debezium" if chosen.get("include_schema_changes"):
            if not changes and not _databases(parsed):
                return []
            prefix = chosen.get("topic_prefix", "penstock")
            return [debezium_message(statement, changes, topic_prefix=prefix, version=__version__)]
    return []


def _databases(parsed: syntax.Statement) -> dict[str, str]:
    """What a statement does to which database."""
    match parsed:
        case syntax.SetDatabase(name=name, create=create):
            return {name: "create" if create else "alter"}
        case syntax.DropDatabase(name=name):
            return {name: "drop"}
    return {}


def _canal(statement: Mapping[str, Any], kind: str, database: str, table: str) -> str:
    message = {
        "data": None,
        "database": database,
        "es": statement["timestamp"] * 1000,
        "gtid": statement["id"] or "",
        "id": statement["end"],
        "isDdl": True,
        "mysqlType": None,
        "old": None,
        "pkNames": None,
        "sql": statement["sql"],
        "sqlType": None,
        "table": table,
        "ts": statement["commit_us"] // 1000,
        "type": kind,
    }
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))
