"""What the statements of a log of the format `rows` mean.

The log says how its tables are defined: each statement is a JSON object about one table
(`core/src/debezium_log/table.rs` writes them). So no grammar is needed, and nothing is asked of a source.

| field | |
|---|---|
| `table` | the table's name in its database |
| `created`, `altered` | the definition: `key` and `columns`, with the fields of `model.schema.Column` |
| `filled` | of `created`: the table has rows that are not in the log |
| `values` | of `altered`: what existing rows have in an added column; the others are NULL in it |
| `renamed` | of `altered`: the earlier names of columns, by their new ones |
| `reread` | of `altered`: why the rows must be read again |
| `moved` | the table's new name: schema and table. It has the definition `created` under it |
| `emptied` | all rows are gone |
| `dropped` | the table is gone |
| `parked` | why the table cannot be followed any further; `hint`: what helps |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

from penstock.errors import RelayLogCorrupt
from penstock.model import plan
from penstock.model.column_type import (
    DATES,
    DECIMAL,
    FLOATS,
    INTEGER_BITS,
    LIST,
    LONG_BINARY,
    LONG_TEXTS,
    TIME,
)
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.model.spark_literal import Constant, literal_of
from penstock.model.statement_head import statement_head
from penstock.relaylog.reader import Statement
from penstock.relaylog.segment import DAMAGED_HINT
from penstock.sources.table_filter import TableFilter

_FIELDS = frozenset(field.name for field in fields(Column))
"""A definition may say more of a column, for the core alone."""
InFull = Callable[[Statement], Statement | None]

_DIGITS = {8: 3, 16: 5, 24: 7, 32: 10, 64: 19}


_WHAT = {"created", "altered", "emptied", "dropped", "parked"}


class LoggedDefinitions:
    """`sources.statements.Statements`. `in_full`: see `relaylog/full_statements.py`."""

    def __init__(self, captured: TableFilter, in_full: InFull) -> None:
        self._captured = captured
        self._in_full = in_full

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        """See `sources.statements.Statements.effects`."""
        table, said = self._read(statement)
        if "moved" in said:
            return self._moved(table, TableId(*said["moved"]), said["created"], live)
        if "created" in said:
            if table not in live and table not in self._captured:
                return []
            created, fills = schema_of(table, said["created"]), said.get("filled", False)
            return [TableEffect(table, voids="created", created=created, fills=fills, what="created")]
        if table not in live:
            return []
        if "emptied" in said:
            return [TableEffect.truncated(table)]
        if "dropped" in said:
            return [TableEffect(table, voids="DROP TABLE", dropped=True, what="dropped")]
        if "parked" in said:
            reason, hint = said["parked"], said.get("hint", "")
            return [TableEffect.parked(table, statement.end, reason=reason, hint=hint)]
        return _altered(live[table], schema_of(table, said["altered"]), said)

    def _moved(
        self, table: TableId, to: TableId, definition: dict[str, Any], live: dict[TableId, TableSchema]
    ) -> list[TableEffect]:
        effects, goes_on = list[TableEffect](), to in live or to in self._captured
        if table in live and goes_on:
            effects.append(TableEffect(table, voids="RENAME", renamed=to, what=f"renamed to {to}"))
        elif table in live:
            effects.append(TableEffect(table, voids="RENAME", dropped=True, what=f"renamed to {to}"))
        if goes_on:
            schema, was = schema_of(to, definition), f"renamed from {table}"
            effects.append(TableEffect(to, (), "RENAME", schema, True, was=table, what=was))
        return effects

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        table, said = self._read(statement)
        named = {table, TableId(*said["moved"])} if "moved" in said else {table}
        return named if "created" in said else named & tables

    def _read(self, statement: Statement) -> tuple[TableId, dict[str, Any]]:
        whole = self._in_full(statement) if statement.truncated else statement
        try:
            said = json.loads(whole.sql if whole is not None else "")
            if isinstance(said["table"], str) and said.keys() & _WHAT:
                return TableId(statement.database, said["table"]), said
            raise KeyError("table")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RelayLogCorrupt(
                f"The relay log has a statement at offset {statement.offset} that says nothing of a table: "
                f"{type(error).__name__}.",
                hint=DAMAGED_HINT, path="", offset=int(statement.offset),
            ) from error  # fmt: skip


def schema_of(table: TableId, definition: dict[str, Any]) -> TableSchema:
    columns = tuple(
        Column.from_json({name: value for name, value in column.items() if name in _FIELDS})
        for column in definition["columns"]
    )
    return TableSchema(table, columns, tuple(definition["key"]), catalog=definition.get("catalog", ""))


def _altered(known: TableSchema, after: TableSchema, said: dict[str, Any]) -> list[TableEffect]:
    before = {column.name: column for column in known.columns}
    origins, reasons = list[plan.ColumnOrigin](), list[str]()
    values, renamed = said.get("values", {}), said.get("renamed", {})
    for column in after.columns:
        name = renamed.get(column.name, column.name)
        was = before.get(name) or before.get(column.name)
        if was is None:
            value = _constant(column, values.get(column.name))
            origins.append(plan.ColumnOrigin(None, literal_of(value)))
            continue
        origins.append(plan.ColumnOrigin(was.name))
        if not _keeps_values(was, column):
            reasons.append(
                f"values of column {column.name} are converted from {_type(was)} to {_type(column)}"
            )
    after = replace(after, version=known.version + 1)
    reasons += [said["reread"]] if said.get("reread") else []
    why = "; ".join(reasons) or None
    evolve = plan.Evolve(after, tuple(origins))
    return [TableEffect(known.table, (evolve,), voids=why, rereads=why, what=_what(known, after))]


def _constant(column: Column, value: Any) -> Constant:
    """A value of JSON as one of the column."""
    if value is not None and column.type == DECIMAL:
        return Decimal(str(value))
    if value is not None and column.type in FLOATS:
        return float(value)
    constant: Constant = value
    return constant


def _keeps_values(was: Column, now: Column) -> bool:
    """Whether the rows that a target has are right under the new type, too."""
    if was.type == now.type == DECIMAL:
        scale, before = now.scale or 0, was.scale or 0
        return scale >= before and (now.precision or 0) - scale >= (was.precision or 0) - before
    if was.type in INTEGER_BITS and now.type in INTEGER_BITS:
        return INTEGER_BITS[was.type] <= INTEGER_BITS[now.type]
    if was.type in INTEGER_BITS and now.type == DECIMAL:
        return _DIGITS[INTEGER_BITS[was.type]] <= (now.precision or 0) - (now.scale or 0)
    if (was.type, now.type) == ("float", "double"):
        return True
    if was.type == now.type and was.type in DATES | {TIME}:
        return (was.fsp or 0) <= (now.fsp or 0)
    if was.type == now.type == LIST:
        return was.element == now.element
    if was.type in LONG_TEXTS | LONG_BINARY or was.type == now.type:
        return was.type == now.type and was.length == now.length
    return False


def _type(column: Column) -> str:
    return column.column_type or column.type


def _what(known: TableSchema, after: TableSchema) -> str:
    had, has = {one.name for one in known.columns}, {one.name for one in after.columns}
    before = {one.name: one for one in known.columns}
    parts = [f"adds {name}" for name in sorted(has - had)] + [f"drops {name}" for name in sorted(had - has)]
    parts += [f"changes {one.name}" for one in after.columns if before.get(one.name, one) != one]
    if known.key != after.key:
        parts.append(f"key is ({', '.join(after.key)})" if after.key else "has no key")
    return ", ".join(parts) or "changed"


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
    (what,) = said.keys() & _WHAT
    return f"{TableId(statement['database'], said['table'])} is {what}"


def defined(statement: Mapping[str, Any]) -> tuple[TableId, TableSchema] | None:
    """The table that such a statement defines. None: it defines none."""
    said = said_by(statement) or {}
    definition = said.get("created") or said.get("altered")
    if definition is None:
        return None
    table = TableId(*said.get("moved", (statement["database"], said["table"])))
    return table, schema_of(table, definition)
