"""Messages of statements that define tables: Canal's, and by an option Maxwell's and Debezium's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock import __version__
from penstock.model.plan import DefinitionChange
from penstock.model.schema import TableId
from penstock.sources.logged_definitions import head_of, said_by
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.event_types import event_warns
from penstock.sources.mysql.messages.canal import canal_entry, canal_type, renamed
from penstock.sources.mysql.messages.schema_changes import TableChange, debezium_message, maxwell_messages

_SERVER = Server.parse("8.0")


def parsed(statement: Mapping[str, Any], server: Server) -> syntax.Statement:
    """A statement in the log (`LogEncoder.read`), as the grammar reads it, or as the log says it."""
    said = said_by(statement)
    if said is None:
        return parse(statement["sql"], statement["database"], server)
    table = TableId(statement["database"], said["table"])
    if "created" in said:
        return syntax.CreateTable(table)
    return syntax.TruncateTable(table) if "emptied" in said else syntax.AlterTable(table, ())


def session_of(server: Server, statement: Mapping[str, Any]) -> Server:
    """The server, with the settings of the session that ran a statement in the log."""
    return server.in_session(statement["sql_mode"], statement["server_charset"])


def _parsed(statement: Mapping[str, Any]) -> syntax.Statement:
    return parsed(statement, session_of(_SERVER, statement))


def missing_rows(statement: Mapping[str, Any]) -> str:
    """Which rows have no messages, because the log has no row events for them. Empty: none."""
    if statement["sql"] and _changes_rows(statement):
        return f"rows that a statement changed are not in the log: {head_of(statement)}"
    return "" if statement["event"] is None else f"{event_warns(statement['event'])}."


def _changes_rows(statement: Mapping[str, Any]) -> bool:
    read = _parsed(statement)
    if isinstance(read, syntax.AlterTable):
        return any(isinstance(action, syntax.LosesRows | syntax.ExchangeRows) for action in read.actions)
    return isinstance(read, syntax.RowStatement | syntax.TruncateTable)


def statement_messages(
    format: str, options: str, statement: Mapping[str, Any], changes: Sequence[TableChange]
) -> list[tuple[bytes, bytes]]:
    """Key and value of the messages of one statement in the log (`LogEncoder.read`). `options`: those of the
    format, as JSON. `changes`: what is known of the definitions that the statement changed."""
    chosen = json.loads(options)
    if statement["event"] is not None:
        return []
    read = _parsed(statement)
    match format:
        case "canal" | "canal-entry":
            return [(b"", value) for _, value in _canal_messages(format, statement, read)]
        case "maxwell" if chosen.get("output_ddl"):
            return maxwell_messages(statement, changes, _databases(read))
        case "debezium" if chosen.get("include_schema_changes"):
            if not changes and not _databases(read):
                return []
            prefix = chosen.get("topic_prefix", "penstock")
            return [debezium_message(statement, changes, topic_prefix=prefix, version=__version__)]
    return []


def definition_messages(
    format: str, options: str, statement: Mapping[str, Any], definitions: Sequence[DefinitionChange]
) -> list[tuple[TableId, bytes | None, bytes]]:
    """Table, key and value of the messages of changed definitions. Other tables that the statement names have
    no messages. Debezium writes one message for several tables; it counts as one about the first of them."""
    changes = [TableChange(one.schema.table, one.before, one.after) for one in definitions]
    changed = {change.table for change in changes}
    if format == "canal":
        read = _parsed(statement)
        before = renamed(read)
        found: list[tuple[TableId, bytes | None, bytes]] = []
        for names, value in _canal_messages(format, statement, read):
            # Consumers of the old name are told the new one.
            table = next(
                (one for one in (TableId(*names), before.get(TableId(*names))) if one in changed), None
            )
            found += [] if table is None else [(table, None, value)]
        return found
    if format == "maxwell":
        messages = maxwell_messages(statement, changes)
        return [(change.table, *one) for change, one in zip(changes, messages, strict=True)]
    chosen = json.loads(options)
    if not changes or format != "debezium" or not chosen.get("include_schema_changes"):
        return []
    prefix = chosen.get("topic_prefix", "penstock")
    key, value = debezium_message(statement, changes, topic_prefix=prefix, version=__version__)
    return [(changes[0].table, key, value)]


def _canal_messages(
    format: str, statement: Mapping[str, Any], read: syntax.Statement
) -> list[tuple[tuple[str, str], bytes]]:
    kind, tables = canal_type(read, statement["sql"])
    if format == "canal":
        return [(table, _canal(statement, kind, *table).encode()) for table in tables]
    return [(table, canal_entry(statement, kind, *table)) for table in tables]


def _databases(read: syntax.Statement) -> dict[str, str]:
    """The databases that a statement concerns, and what it does to them."""
    match read:
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
