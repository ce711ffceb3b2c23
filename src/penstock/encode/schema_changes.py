"""Messages of changed definitions (Maxwell, Debezium).

The core returns statements in their place in the log (`LogEncoder.read`). The caller knows the definitions
before and after a statement, makes `TableChange`s of them, and gets the messages here. The messages were
compared with the examples in the documentation of both tools, not with the tools themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock._core import source_fields
from penstock.model.column_type import INTEGERS, JDBC_TYPES
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.logged_definitions import said_by

Keyed = tuple[bytes, bytes]
"""Key and value."""


@dataclass(frozen=True)
class TableChange:
    """A table that a statement created (`before` None), dropped (`after` None) or changed."""

    table: TableId
    before: TableSchema | None
    after: TableSchema | None
    auto_increment: frozenset[str] = frozenset()
    """The columns that the server numbers."""


def sql_of(statement: Mapping[str, Any]) -> str | None:
    """None: the log defines its tables itself, or the SQL must not be shown."""
    sql: str | None = statement["sql"]
    return sql if said_by(statement) is None else None


# Maxwell


def maxwell_messages(
    statement: Mapping[str, Any], changes: Sequence[TableChange], databases: Mapping[str, str] | None = None
) -> list[Keyed]:
    """What Maxwell writes with `output_ddl`. `databases`: what the statement does to which database:
    `create`, `alter` or `drop`. The key, which is random in Maxwell, is the offset at which the statement
    ends."""
    end = {
        "ts": statement["timestamp"] * 1000,
        "sql": sql_of(statement),
        "position": statement["event_place"],
        **({"gtid": statement["id"]} if statement["id"] else {}),
    }
    found: list[dict[str, Any]] = [
        {"type": f"database-{what}", "database": name, **end} for name, what in (databases or {}).items()
    ]
    for change in changes:
        kind = "create" if change.before is None else "drop" if change.after is None else "alter"
        of: dict[str, Any] = {
            "type": f"table-{kind}",
            "database": change.table.database,
            "table": change.table.table,
        }
        if change.before is not None and change.after is not None:
            of["old"] = _maxwell_table(change.before)
        if change.after is not None:
            of["def"] = _maxwell_table(change.after)
        found.append({**of, **end})
    return [(str(statement["end"]).encode(), _dumps(one)) for one in found]


def _maxwell_table(schema: TableSchema) -> dict[str, Any]:
    return {
        "database": schema.table.database,
        "charset": schema.charset,
        "table": schema.table.table,
        "columns": [_maxwell_column(column) for column in schema.columns],
        "primary-key": [name.lower() for name in schema.key],
    }


def _maxwell_column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"type": column.type, "name": column.name}
    if column.type in INTEGERS:
        found["signed"] = not column.unsigned
    if column.labels is not None:
        found["enum-values"] = list(column.labels)
    elif column.charset is not None and column.charset != "binary":
        found["charset"] = column.charset
    if column.fsp:
        found["column-length"] = column.fsp
    return found


# Debezium


def debezium_message(
    statement: Mapping[str, Any], changes: Sequence[TableChange], *, topic_prefix: str
) -> Keyed:
    """The message of a statement in the topic of schema changes, whose name is the prefix. Without Connect's
    schema."""
    database = changes[0].table.database if changes else statement["database"]
    known = next((schema for change in changes for schema in (change.after, change.before) if schema), None)
    source = source_fields(
        statement["segment_format"], "debezium", prefix=topic_prefix, place=statement["event_place"],
        at_us=statement["commit_us"], database=database, transaction=statement["id"],
        table=",".join(dict.fromkeys(change.table.table for change in changes)),
        server_id=statement["server_id"], catalog=known.catalog if known else "",
    )  # fmt: skip
    value = {
        "source": json.loads(source),
        "ts_ms": statement["commit_us"] // 1000,
        "databaseName": database,
        "schemaName": None,
        "ddl": sql_of(statement),
        "tableChanges": [_debezium_change(change) for change in changes],
    }
    return _dumps({"databaseName": database}), _dumps(value)


def _debezium_change(change: TableChange) -> dict[str, Any]:
    kind = "CREATE" if change.before is None else "DROP" if change.after is None else "ALTER"
    table = None if change.after is None else _debezium_table(change.after, change.auto_increment)
    name = ".".join(f'"{part}"' for part in (change.table.database, change.table.table))
    return {"type": kind, "id": name, "table": table}


def _debezium_table(schema: TableSchema, auto_increment: frozenset[str]) -> dict[str, Any]:
    columns = enumerate(schema.columns, 1)
    return {
        "defaultCharsetName": schema.charset,
        "primaryKeyColumnNames": list(schema.key),
        "columns": [_debezium_column(column, at, column.name in auto_increment) for at, column in columns],
    }


def _debezium_column(column: Column, position: int, auto_increment: bool) -> dict[str, Any]:
    kind = column.type.upper() + (" UNSIGNED" if column.unsigned else "")
    length = column.length if column.precision is None else column.precision
    return {
        "name": column.name,
        "jdbcType": JDBC_TYPES.get(column.type, 1111),
        "nativeType": None,
        "typeName": kind,
        "typeExpression": kind,
        "charsetName": None if column.charset == "binary" else column.charset,
        "length": column.fsp or length,
        "scale": column.scale,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": auto_increment,
        "generated": auto_increment or column.generated is not None,
        "comment": None,
        "hasDefaultValue": column.default is not None or column.nullable,
        "defaultValueExpression": column.default,
        "enumValues": None if column.labels is None else [f"'{label}'" for label in column.labels],
    }


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
