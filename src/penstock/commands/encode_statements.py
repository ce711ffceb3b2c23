"""Messages of statements that define tables. Of the formats, only Canal's has them so far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server

_SERVER = Server.parse("8.0")


def statement_messages(format: str, statement: Mapping[str, Any]) -> list[str]:
    """The messages of one statement in the log (`LogEncoder.read`)."""
    if format != "canal" or statement["event"] is not None:
        return []
    kind, tables = _canal_type(parse(statement["sql"], statement["database"], _SERVER), statement["sql"])
    return [_canal(statement, kind, *table) for table in tables]


def _canal_type(parsed: syntax.Statement, sql: str) -> tuple[str, list[tuple[str, str]]]:
    """Canal's type of a statement, and database and table of each message."""
    words = [word.upper() for word in sql.split(maxsplit=3)[:3]]
    match parsed:
        case syntax.CreateTable(table=table, temporary=False):
            return "CREATE", [(table.database, table.table)]
        case syntax.AlterTable(table=table):
            kind = {"CREATE": "CINDEX", "DROP": "DINDEX"}.get(words[0], "ALTER")
            return kind, [(table.database, table.table)]
        case syntax.DropTables(tables=dropped, temporary=False):
            return "ERASE", [(table.database, table.table) for table in dropped]
        case syntax.RenameTables(pairs=pairs):
            return "RENAME", [(before.database, before.table) for before, _ in pairs]
        case syntax.TruncateTable(table=table):
            return "TRUNCATE", [(table.database, table.table)]
        case syntax.SetDatabase(name=name) | syntax.DropDatabase(name=name):
            return "QUERY", [(name, "")]
    return "", []


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
