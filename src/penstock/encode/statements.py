"""Messages of statements that define tables: Canal's, and by an option Maxwell's and Debezium's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.encode.canal_entry import canal_entry
from penstock.encode.schema_changes import TableChange, debezium_message, maxwell_messages
from penstock.model.plan import DefinitionChange
from penstock.model.schema import TableId
from penstock.sources.logged_definitions import head_of
from penstock.sources.statement_reading import StatementReading, read_statement


def missing_rows(statement: Mapping[str, Any]) -> str:
    """Which rows have no messages, because the log has no row events for them. Empty: none."""
    read = read_statement(statement)
    if statement["sql"] and read.changes_rows:
        return f"rows that a statement changed are not in the log: {head_of(statement)}"
    return read.warning and f"{read.warning}."


def statement_messages(
    format: str, options: str, statement: Mapping[str, Any], changes: Sequence[TableChange]
) -> list[tuple[bytes, bytes]]:
    """Key and value of the messages of one statement in the log (`LogEncoder.read`). `options`: those of the
    format, as JSON. `changes`: what is known of the definitions that the statement changed."""
    chosen = json.loads(options)
    if statement["event"] is not None:
        return []
    read = read_statement(statement)
    match format:
        case "canal" | "canal-entry":
            return [(b"", value) for _, value in _canal_messages(format, statement, read)]
        case "maxwell" if chosen.get("output_ddl"):
            return maxwell_messages(statement, changes, read.databases)
        case "debezium" if chosen.get("include_schema_changes"):
            if not changes and not read.databases:
                return []
            prefix = chosen.get("topic_prefix", "penstock")
            return [debezium_message(statement, changes, topic_prefix=prefix)]
    return []


def definition_messages(
    format: str, options: str, statement: Mapping[str, Any], definitions: Sequence[DefinitionChange]
) -> list[tuple[TableId, bytes | None, bytes]]:
    """Table, key and value of the messages of changed definitions. Other tables that the statement names have
    no messages. Debezium writes one message for several tables; it counts as one about the first of them."""
    changes = [TableChange(one.schema.table, one.before, one.after) for one in definitions]
    changed = {change.table for change in changes}
    if format == "canal":
        read = read_statement(statement)
        found: list[tuple[TableId, bytes | None, bytes]] = []
        for name, value in _canal_messages(format, statement, read):
            # Consumers of the old name are told the new one.
            table = next((one for one in (name, read.renamed.get(name)) if one in changed), None)
            found += [] if table is None else [(table, None, value)]
        return found
    if format == "maxwell":
        messages = maxwell_messages(statement, changes)
        return [(change.table, *one) for change, one in zip(changes, messages, strict=True)]
    chosen = json.loads(options)
    if not changes or format != "debezium" or not chosen.get("include_schema_changes"):
        return []
    prefix = chosen.get("topic_prefix", "penstock")
    key, value = debezium_message(statement, changes, topic_prefix=prefix)
    return [(changes[0].table, key, value)]


def _canal_messages(
    format: str, statement: Mapping[str, Any], read: StatementReading
) -> list[tuple[TableId, bytes]]:
    tables = read.tables if read.defines else ()
    write = _canal if format == "canal" else canal_entry
    return [(table, write(statement, read, table)) for table in tables]


def _canal(statement: Mapping[str, Any], read: StatementReading, table: TableId) -> bytes:
    message = {
        "data": None,
        "database": table.database,
        "es": statement["timestamp"] * 1000,
        "gtid": statement["id"] or "",
        "id": statement["end"],
        "isDdl": True,
        "mysqlType": None,
        "old": None,
        "pkNames": None,
        "sql": read.sql,
        "sqlType": None,
        "table": table.table,
        "ts": statement["commit_us"] // 1000,
        "type": read.kind,
    }
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
