"""What a statement in the log means for the captured tables.

`ddl.effects` says what a statement does; here that meets the tables we follow and, for definitions, the
catalog. The catalog is ahead of the log, so it is used only for what a statement names (the definition of a
column that was added), and every table map of the log is checked against the result when rows are decoded.
On doubt the table is parked, with the reason and the cure; others go on.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from typing_extensions import assert_never

from penstock.errors import TableError
from penstock.model import plan
from penstock.model.effect import (
    AddCascade,
    AddColumns,
    After,
    CreateTable,
    DropDatabase,
    Effect,
    First,
    Harmless,
    RowStatement,
    TableEffect,
    Truncate,
    Unknown,
    Unsupported,
)
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema, TypeOptions
from penstock.relaylog.reader import Statement
from penstock.sources.base import TableFilter
from penstock.sources.mysql.defaults import Value, existing_value

ReadTable = Callable[[TableId], TableSchema | None]
ReadStatement = Callable[[Statement], list[Effect]]


class MySqlStatements:
    """`planner.StatementReader` for MySQL. `read_table` asks the catalog; it may be None for a table that is
    gone. `parks_cascades`: a table with a cascading foreign key cannot be captured."""

    def __init__(
        self,
        captured: TableFilter,
        read_table: ReadTable,
        read_statement: ReadStatement,
        *,
        types: TypeOptions,
        parks_cascades: bool,
    ) -> None:
        self._captured = captured
        self._read_statement = read_statement
        self._parks_cascades = parks_cascades
        self._read_table = read_table
        self._types = types

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        found: list[TableEffect] = []
        for effect in self._read_statement(statement):
            found += self._effect(effect, statement, live)
        return found

    def _effect(
        self, effect: Effect, statement: Statement, live: dict[TableId, TableSchema]
    ) -> list[TableEffect]:
        match effect:
            case Harmless(table=table, key_may_change=key):
                return self._key_changed(table, statement, live) if key and table in live else []
            case CreateTable():
                return self._created(effect, statement, live)
            case Truncate(table=table):
                return [TableEffect.truncated(table)] if table in live else []
            case AddColumns(table=table):
                return [self._added(effect, statement, live[table])] if table in live else []
            case AddCascade(table=table):
                return [_cascading(table, statement.end)] if table in live and self._parks_cascades else []
            case Unsupported(table=table, what=what):
                return [_unsupported(table, what, statement.end)] if table in live else []
            case DropDatabase(database=database):
                gone = [table for table in live if table.database == database]
                return [_unsupported(table, "its database was dropped", statement.end) for table in gone]
            case RowStatement(tables=tables, kind=kind):
                return [_row_statement(table, kind, statement.offset) for table in tables if table in live]
            case Unknown():
                return self._compare(statement, live)
            case _:
                assert_never(effect)

    def _created(
        self, effect: CreateTable, statement: Statement, live: dict[TableId, TableSchema]
    ) -> list[TableEffect]:
        table = effect.table
        if table in live:
            known = effect.if_not_exists
            return [] if known else [_unsupported(table, "it was created anew", statement.end)]
        schema = self._read_table(table) if table in self._captured else None
        if schema is None:  # not ours, or gone again: whatever dropped it stands later in the log
            return []
        parks = effect.cascades and self._parks_cascades
        steps = _cascading(table, statement.end).steps if parks else ()
        return [TableEffect(table, steps, created=schema, fills=effect.as_select)]

    def _key_changed(
        self, table: TableId | None, statement: Statement, live: dict[TableId, TableSchema]
    ) -> list[TableEffect]:
        assert table is not None
        now = self._read_table(table)
        if now is None or now.key == live[table].key:
            return []
        return [_unsupported(table, "the columns that identify a row changed", statement.end)]

    def _added(self, effect: AddColumns, statement: Statement, known: TableSchema) -> TableEffect:
        catalog = self._read_table(known.table)
        present = {column.name: column for column in catalog.columns} if catalog else {}
        columns = list(known.columns)
        added: list[plan.NewColumn] = []
        for new in effect.columns:
            if any(column.name.lower() == new.name.lower() for column in columns):
                continue  # ADD COLUMN IF NOT EXISTS, or the definition was read after the statement
            definition = next((c for name, c in present.items() if name.lower() == new.name.lower()), None)
            if definition is None:
                return _unsupported(
                    known.table, f"column {new.name} was added and is gone again", statement.end
                )
            if definition.generated:
                return _unsupported(known.table, f"generated column {new.name} was added", statement.end)
            try:
                value = existing_value(known.table, definition, new, types=self._types)
            except TableError as error:
                return TableEffect.parked(
                    known.table, statement.end, reason=error.message, hint=_again(known.table)
                )
            after = _insert(columns, definition, new.position)
            added.append(plan.NewColumn(definition, after, spark_literal(value)))
        schema = replace(known, columns=tuple(columns), version=known.version + 1)
        if not added:
            return TableEffect(known.table)
        return TableEffect(known.table, (plan.AddColumns(tuple(added), schema),))

    def _compare(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        """A statement nobody could read costs a look into the catalog, and only what differs is parked."""
        return [
            _unsupported(
                table, "a statement that could not be understood changed its definition", statement.end
            )
            for table, schema in live.items()
            if not same_definition(self._read_table(table), schema)
        ]


def cascade_reason(table: TableId) -> tuple[str, str]:
    """Reason and cure for a table that is parked because a foreign key changes its rows."""
    reason = (
        f"Rows of table {table} are changed by a foreign key (ON DELETE or UPDATE CASCADE, SET NULL), and "
        "before MySQL 9.6 such changes are not in the log."
    )
    hint = (
        f"Let the application change {table} itself and take the rule off the key (`penstock doctor FILE` "
        "prints the SQL), or accept the gap with `foreign_key_cascades: ignore`; then run "
        f"`penstock resnapshot FILE {table}`."
    )
    return reason, hint


def _cascading(table: TableId, offset: Offset) -> TableEffect:
    reason, hint = cascade_reason(table)
    return TableEffect.parked(table, offset, reason=reason, hint=hint)


def same_definition(one: TableSchema | None, other: TableSchema) -> bool:
    """Columns and key are the same; versions do not count."""
    return one is not None and (one.columns, one.key) == (other.columns, other.key)


def _insert(columns: list[Column], column: Column, position: Any) -> str | None:
    """Puts the column where the statement says; answers in the terms of `NewColumn.after`."""
    match position:
        case First():
            columns.insert(0, column)
            return ""
        case After(column=name):
            at = next((i for i, known in enumerate(columns) if known.name.lower() == name.lower()), None)
            if at is not None:
                columns.insert(at + 1, column)
                return columns[at].name
    columns.append(column)
    return None


def _unsupported(table: TableId, what: str, offset: Offset) -> TableEffect:
    reason = f"Table {table} changed in a way that its target cannot follow yet: {what}."
    return TableEffect.parked(table, offset, reason=reason, hint=_again(table))


def _again(table: TableId) -> str:
    return f"Run `penstock resnapshot FILE {table}` to read it again with its present definition."


def _row_statement(table: TableId, kind: str, offset: Offset) -> TableEffect:
    return TableEffect.parked(
        table,
        offset,
        reason=f"Rows of table {table} were changed by {kind} in statement format, which carries no rows.",
        hint="Make every session of the source write binlog_format=ROW (SET GLOBAL binlog_format = 'ROW'), "
        f"then run `penstock resnapshot FILE {table}`.",
    )


def spark_literal(value: Value) -> str | None:
    """A value as a constant of Spark SQL; None for NULL."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return f"{value:f}BD"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case datetime.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            return f"{kind}'{value.isoformat(' ')}'"
        case datetime.date():
            return f"DATE'{value.isoformat()}'"
        case _:
            assert_never(value)
