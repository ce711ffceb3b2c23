"""What a statement in the log means for captured tables.

A statement is applied to the definitions that the pipeline has (`ddl.Catalog`). The server's catalog is ahead
of the log, so it is not asked. The rules:

- At the end of an epoch, a table has the definition of its last `Evolve`. It is made from the definition
  before by the server's own rules. When rows are decoded, every table map of the log is compared with it. So
  a wrong definition stops the table (`SchemaMismatch`) and never changes a value.
- A pipeline that starts in the past has definitions that are newer than the log. A CREATE TABLE in the log
  replaces the table's definition. If a statement does not fit the known definition, the catalog is asked. If
  the catalog has the same definition, it already includes the statement; otherwise the table is read again.
  Rows that do not fit stop their table, and when it is read again, it begins at the end of the log.
- An unchanged definition proves nothing about rows. If a statement may have changed rows that the log does
  not have, its tables are parked (DML in statement format) or read again (statements that cannot be
  understood), whatever their definitions are. `unlogged_rows.py` says which tables that may be.

Tables that are not captured matter if they may become captured ones: the helper tables of online schema
changes. Their definitions, and the origins of their columns in the original table, are followed by the
statements that create them (`UncapturedTables`). After a restart, they are found by reading the statements of
the relay log again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from typing_extensions import assert_never

from penstock.errors import TableError
from penstock.model import plan
from penstock.model.offset import Offset
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema, TypeOptions
from penstock.model.schema_change import NOT_OF_THEN, TableEffect
from penstock.model.spark_literal import literal_of
from penstock.model.statement_head import statement_head
from penstock.printable import argument
from penstock.relaylog.reader import Statement
from penstock.sources.mysql import unlogged_rows, versioned_tables
from penstock.sources.mysql.added_defaults import existing_value
from penstock.sources.mysql.column_origins import Evolution, what_changed
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.change import (
    Altered,
    Change,
    Created,
    Doubtful,
    Dropped,
    Emptied,
    Moved,
    RowsChanged,
)
from penstock.sources.mysql.ddl.conversion import form, other_form
from penstock.sources.mysql.ddl.definition import ColumnDefinition, TableDefinition
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.event_types import QUERY, XA_PREPARE, event_says, has_sql
from penstock.sources.mysql.foreign_key_statements import ADDED, children_of_changed, keys_after
from penstock.sources.mysql.merge_tables import is_merge, merge_reason, union_of
from penstock.sources.mysql.online_schema_change import is_copy_of
from penstock.sources.mysql.uncaptured_tables import TablesBefore, UncapturedTables, named_tables
from penstock.sources.table_filter import TableFilter

ReadTable = Callable[[TableId], TableSchema | None]
ReadDatabase = Callable[[str], tuple[str, str] | None]
Earlier = Callable[[Offset], Iterable[Statement]]
InFull = Callable[[Statement], Statement | None]


class MySqlStatements:
    """`sources.statements.Statements`.

    `read_table` asks the catalog; None for a table that is gone. `read_database`: the default character set
    and collation. `is_view`: whether the catalog has a view of this name. `earlier`: the statements of the
    relay log that end at or before an offset. `in_full`: a statement as its event has it, None if it is not
    available (`relaylog/full_statements.py`). `may_set_savepoint`: whether a function or trigger may set the
    savepoint of a ROLLBACK TO.
    `parks_cascades`: a table with a cascading foreign key cannot be captured. `with_foreign_keys`:
    definitions have their cascading foreign keys.
    """

    def __init__(
        self,
        captured: TableFilter,
        read_table: ReadTable,
        server: Callable[[], Server],
        *,
        read_database: ReadDatabase = lambda name: None,
        earlier: Earlier = lambda offset: (),
        in_full: InFull = lambda statement: None,
        is_view: Callable[[TableId], bool] = lambda table: False,
        may_set_savepoint: Callable[[str], bool] = lambda rollback: True,
        types: TypeOptions = DEFAULT_TYPES,
        parks_cascades: bool,
        with_foreign_keys: bool = False,
    ) -> None:
        self._captured = captured
        self._server = server
        self._parks_cascades = parks_cascades
        self._with_foreign_keys = with_foreign_keys
        self._read_table = read_table
        self._is_view = is_view
        self._may_set_savepoint = may_set_savepoint
        self._types = types
        self._in_full = in_full
        self._uncaptured = UncapturedTables(captured, server, read_database, earlier, in_full)

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        """See `sources.statements.Statements.effects`."""
        if not has_sql(statement.event):
            return self._of_event(statement, live)
        tables = self._uncaptured.at(statement, live)
        catalog = Catalog(
            statement_server(self._server(), statement),
            tables=tables,
            databases=tables.databases,
            guess_databases=False,
        )
        parsed, statement = read(statement, catalog.server, self._in_full)
        changes = [_by_temporary(change, tables) for change in catalog.apply(parsed)]
        found: list[TableEffect] = []
        for change in changes:
            found += self._effect(change, statement, live, tables)
        found += self._unlogged(parsed, statement, live, {effect.table for effect in found})
        found += _under_merge_table(parsed, statement, live)
        if self._with_foreign_keys:
            found += children_of_changed(changes, live, {effect.table for effect in found})
        self._uncaptured.record(statement, changes, live, tables, parsed)
        return found

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        return touched(self._server(), statement, tables)

    def _of_event(self, statement: Statement, live: Iterable[TableId]) -> list[TableEffect]:
        if statement.event == QUERY and not self._may_set_savepoint(statement.sql):
            return []
        why = event_says(statement.event)
        if statement.event == XA_PREPARE:
            why = f"the log does not have the rows of {statement.sql}"
        concerned = filter(statement.may_concern, live)
        return [TableEffect(table, voids=why, rereads=why, what="unknown") for table in concerned]

    def _unlogged(
        self,
        parsed: syntax.Statement,
        statement: Statement,
        live: dict[TableId, TableSchema],
        done: set[TableId],
    ) -> list[TableEffect]:
        """Tables whose rows the statement may have changed without row events."""
        effects: list[TableEffect] = []
        wrote = unlogged_rows.written(parsed, statement, live, mariadb=self._server().mariadb)
        for table in wrote.tables(live) if wrote is not None else ():
            if wrote is None or table in done:
                continue
            if wrote.known:
                kind = parsed.kind if isinstance(parsed, syntax.RowStatement) else ""
                why = unlogged_rows.reason(table, wrote, statement, kind)
                effects.append(_row_statement(table, why, statement.offset))
            else:
                why = unlogged_rows.reason_not_understood(table, wrote, statement)
                effects.append(TableEffect(table, voids=why, rereads=why, what="unknown"))
        if isinstance(parsed, syntax.AlterTable) and wrote is None:
            effects += _named_by_unknown(parsed, live, done)
        return effects

    def _effect(
        self, change: Change, statement: Statement, live: dict[TableId, TableSchema], tables: TablesBefore
    ) -> list[TableEffect]:
        match change:
            case Created(table=table):
                return self._created(change, statement, live)
            case Altered(table=table):
                return self._altered(change, statement, live[table]) if table in live else []
            case Dropped(table=table):
                return [_dropped(table)] if table in live else []
            case Emptied(table=table):
                return [TableEffect.truncated(table)] if table in live else []
            case Moved():
                return self._moved(change, statement, live, tables)
            case RowsChanged():
                return []  # `_unlogged` says which tables
            case Doubtful(table=table, why=why, rows=rows):
                if table is None or table not in live:
                    return []
                if rows:
                    why = f"{why} (`{statement_head(statement.sql)}`)"
                    return [TableEffect(table, voids=why, rereads=why, what="changed")]
                return self._doubtful(table, why, live[table], statement)
            case _:
                assert_never(change)

    def _created(
        self, change: Created, statement: Statement, live: dict[TableId, TableSchema]
    ) -> list[TableEffect]:
        table, definition = change.table, change.definition
        if table not in live and table not in self._captured:
            return []
        if table not in live and change.if_not_exists and self._is_view(table):
            return []
        schema = self._schema(definition, table)
        if schema is None:
            # The table was dropped by a later statement of the log.
            return [_dropped(table)] if table in live else []
        parks = (
            self._parks_cascades
            and definition is not None
            and any(key.cascades for key in definition.foreign_keys)
        )
        steps = _cascading(table, statement.end).steps if parks else ()
        if definition is not None and is_merge(dict(definition.options).get("ENGINE", "")):
            steps = _parked_for_merge(table, table, statement.end).steps
        steps = (*steps, *versioned_tables.parks(table, definition, statement.end))
        return [
            TableEffect(
                table, steps, voids="CREATE TABLE", created=schema, fills=change.filled,
                rereads=NOT_OF_THEN if definition is None else None,
                what=f"created like {change.like}" if change.like else "created",
            )
        ]  # fmt: skip

    def _schema(self, definition: TableDefinition | None, table: TableId) -> TableSchema | None:
        """The definition that the statement made, or that of the catalog. None: no table, or a sequence."""
        if definition is None:
            return self._read_table(table)
        if definition.sequence and not self._captured.sequences:
            return None
        keys = definition.cascading_keys if self._with_foreign_keys else ()
        return replace(definition.to_schema(), foreign_keys=keys)

    def _altered(self, change: Altered, statement: Statement, known: TableSchema) -> list[TableEffect]:
        cascade = _new_cascade(change)
        evolution = Evolution(change.after, tuple(origin.before for origin in change.origins), change.silent)
        effects = self._evolved(evolution, change.before, known)
        parks = versioned_tables.parks(change.table, change.after, statement.end)
        if cascade and self._parks_cascades:
            parks += _cascading(change.table, statement.end).steps
        if parks:
            effects = effects or [TableEffect(change.table)]
            effects = [replace(one, steps=(*one.steps, *parks[:1])) for one in effects]
        return effects

    def _evolved(
        self, evolution: Evolution, before: TableDefinition, known: TableSchema
    ) -> list[TableEffect]:
        """The effect of a changed definition. The evolution says what is certain about rows."""
        after = evolution.definition.to_schema(known.version)
        reasons = list(evolution.silent)
        if self._with_foreign_keys:
            keys, added = keys_after(known, evolution)
            after = replace(after, foreign_keys=keys)
            reasons += [ADDED] if added else []
        origins: list[plan.ColumnOrigin] = []
        for column, origin in zip(evolution.definition.columns, evolution.origins, strict=True):
            value: str | None = None
            if origin is not None:
                reasons += self._other_form(before, known, origin, column, after)
            else:
                try:
                    default = column.default
                    value = literal_of(existing_value(known.table, column.column, default, types=self._types))
                except TableError as error:
                    if not any(column.name in reason for reason in reasons):
                        reasons.append(error.message.split(": ", 1)[-1].rstrip("."))
            origins.append(plan.ColumnOrigin(origin, value))
        rereads = "; ".join(dict.fromkeys(reasons)) or None
        what = what_changed(before, evolution)
        moved = tuple(origin.before for origin in origins) != tuple(column.name for column in known.columns)
        if _layout(after) != _layout(known) or moved:
            after = replace(after, version=known.version + 1)
        steps: tuple[plan.Step, ...] = ()
        if after != replace(known, table=after.table) or moved:
            evolve = plan.Evolve(replace(after, table=known.table), tuple(origins))
            steps = (evolve,)
        if not steps and rereads is None:
            return []
        return [TableEffect(known.table, steps, voids=rereads, rereads=rereads, what=what)]

    def _other_form(
        self,
        before: TableDefinition,
        known: TableSchema,
        origin: str,
        column: ColumnDefinition,
        after: TableSchema,
    ) -> list[str]:
        found = before.find(origin)
        if found is None:
            return []
        was = form(found.column, self._types, in_key=origin in known.key)
        now = form(column.column, self._types, in_key=column.name in after.key)
        reason = other_form(column.name, was, now)
        return [] if reason is None else [reason]

    def _moved(
        self, change: Moved, statement: Statement, live: dict[TableId, TableSchema], tables: TablesBefore
    ) -> list[TableEffect]:
        """The effects of RENAME TABLE on each captured name."""
        effects: list[TableEffect] = []
        goes_to = {was: name for name, was in change.names}
        for table in change.left:
            if table in live:
                target = goes_to.get(table)
                if target is not None and target in self._captured:
                    what = f"renamed to {target}"
                    effects.append(TableEffect(table, voids="RENAME TABLE", renamed=target, what=what))
                else:
                    effects.append(_dropped(table, f"renamed to {target}" if target else "dropped"))
        for name, was in change.names:
            if name in live and is_copy_of(was, name):
                effects += self._swapped(name, was, statement, live[name], tables)
            elif name in live or name in self._captured:
                effects += self._taken(name, was, tables, statement.end)
        return effects

    def _taken(self, name: TableId, was: TableId, tables: TablesBefore, at: Offset) -> list[TableEffect]:
        """The effect if another table, with its rows, takes the name."""
        definition = tables.get(name)
        schema = self._schema(definition, name)
        if schema is None:
            return [_dropped(name)] if tables.is_live(name) else []
        what = f"renamed from {was}"
        parks = versioned_tables.parks(name, definition, at)
        why = NOT_OF_THEN if definition is None else None
        return [TableEffect(name, parks, "RENAME TABLE", schema, True, why, was=was, what=what)]

    def _swapped(
        self, name: TableId, copy: TableId, statement: Statement, known: TableSchema, tables: TablesBefore
    ) -> list[TableEffect]:
        """The effect of the end of an online schema change: the same rows under another definition."""
        before = TableDefinition.from_schema(known)
        evolution = tables.evolution_of(copy, name)
        if evolution is None:
            schema = self._read_table(name)
            if schema is None:
                return [_dropped(name)]
            evolution = Evolution.compared(before, TableDefinition.from_schema(schema), self._server())
        effects = self._evolved(evolution, before, known)
        return [replace(one, what=f"{one.what} (online, through {copy.table})") for one in effects]

    def _doubtful(
        self, table: TableId, why: str, known: TableSchema, statement: Statement
    ) -> list[TableEffect]:
        """Asks the catalog. If it has the definition that the pipeline has, nothing happens, but for unique
        keys that do not identify rows. Otherwise the table is read again."""
        now = self._read_table(table)
        if now is None:
            return [_unsupported(table, why, statement.end)]
        if same_definition(now, known):
            origins = tuple(plan.ColumnOrigin(column.name) for column in known.columns)
            evolve = plan.Evolve(replace(known, unique=now.unique), origins)
            return [TableEffect(table, (evolve,))] if now.unique != known.unique else []
        return [TableEffect(table, voids=why, rereads=why, what="changed")]


def statement_server(server: Server, statement: Statement) -> Server:
    """The server as the statement's session has it."""
    return server.in_session(statement.sql_mode, statement.server_charset)


def touched(server: Server, statement: Statement, tables: set[TableId]) -> set[TableId]:
    """The tables whose definition or rows the statement may change, and those that it creates."""
    if not has_sql(statement.event):
        return {*filter(statement.may_concern, tables)}
    parsed = parse(statement.sql, statement.database, statement_server(server, statement))
    named = named_tables(parsed, tables)
    return tables if named is None else named


def read(statement: Statement, server: Server, in_full: InFull) -> tuple[syntax.Statement, Statement]:
    """Parses a statement. Also returns it in full, as far as available: the index may have only its
    beginning, or not the databases that its event lists."""
    parsed = parse(statement.sql, statement.database, server)
    if not unlogged_rows.needs_event(parsed, statement, mariadb=server.mariadb):
        return parsed, statement
    found = in_full(statement)
    if found is not None:
        return parse(found.sql, found.database, statement_server(server, found)), found
    if not statement.truncated or isinstance(parsed, syntax.RowStatement):
        return parsed, statement
    if isinstance(parsed, syntax.CreateTable):
        return replace(parsed, elements=(), like=None, unknown="it is very long"), statement
    return syntax.Unknown("a statement that is very long"), statement


def _by_temporary(change: Change, tables: TablesBefore) -> Change:
    """Whether the statement may be about a temporary table. In statement format, the log also has changes of
    temporary tables, under the names of the tables that they hide."""
    why = "a temporary table had this name, and the statement may have been about it"
    match change:
        case Altered(table=table) | Emptied(table=table) | Doubtful(table=TableId() as table):
            return Doubtful(table, why) if tables.may_be_temporary(table) else change
        case _:
            return change


def _under_merge_table(
    parsed: syntax.Statement, statement: Statement, live: dict[TableId, TableSchema]
) -> Iterator[TableEffect]:
    """Captured tables that become parts of a MERGE table. From then on, their rows change under its name."""
    merge = parsed.table if isinstance(parsed, syntax.CreateTable | syntax.AlterTable) else None
    for table in union_of(parsed) if merge is not None else ():
        if merge is not None and table in live:
            yield _parked_for_merge(table, merge, statement.offset)


def _parked_for_merge(table: TableId, merge: TableId, offset: Offset) -> TableEffect:
    reason, hint = merge_reason(table, merge)
    return TableEffect.parked(table, offset, reason=reason, hint=hint)


def _named_by_unknown(
    parsed: syntax.AlterTable, live: dict[TableId, TableSchema], done: set[TableId]
) -> Iterator[TableEffect]:
    """The tables that an unknown action names. It may change them, too."""
    unknown = [one for one in parsed.actions if isinstance(one, syntax.UnknownAction)]
    names = {str(name).lower() for one in unknown for name in one.names}
    for table in live:
        if str(table).lower() in names and table not in done:
            why = f"an ALTER TABLE of {parsed.table} that is not understood names it"
            yield TableEffect(table, voids=why, rereads=why, what="unknown")


def cascade_reason(table: TableId) -> tuple[str, str]:
    """Reason and hint for a table that is parked because a foreign key changes its rows."""
    reason = (
        f"Rows of table {table} are changed by a foreign key (ON DELETE or UPDATE CASCADE, SET NULL), and "
        "before MySQL 9.6 such changes are not in the log."
    )
    hint = (
        f"Let the application change {table} itself and remove the rule from the key (`penstock doctor FILE` "
        "prints the SQL), have them followed with `cascades: apply`, or accept the "
        f"gap with `cascades: ignore`; then run `penstock resnapshot FILE {argument(table)}`."
    )
    return reason, hint


def _cascading(table: TableId, offset: Offset) -> TableEffect:
    reason, hint = cascade_reason(table)
    return TableEffect.parked(table, offset, reason=reason, hint=hint)


def _new_cascade(change: Altered) -> bool:
    known = {key.name for key in change.before.foreign_keys}
    return any(key.cascades and key.name not in known for key in change.after.foreign_keys)


def same_definition(one: TableSchema | None, other: TableSchema) -> bool:
    """Whether columns and keys are the same. Versions do not count, and neither does how an expression is
    printed."""
    return one is not None and (_comparable(one), one.key, one.foreign_keys) == (
        _comparable(other),
        other.key,
        other.foreign_keys,
    )


def _comparable(schema: TableSchema) -> list[Column]:
    """A column without what servers print in different ways. Old servers print no default of a TEXT or BLOB,
    which can only be an expression."""
    return [
        replace(column, default=None, default_is_expression=False, auto_increment=None)
        if column.default_is_expression or column.type.endswith(("text", "blob"))
        else replace(column, auto_increment=None)
        for column in schema.columns
    ]


def _layout(schema: TableSchema) -> object:
    """The parts of a definition that matter for decoding rows and for identifying them."""
    columns = [
        replace(one, default=None, default_is_expression=False, invisible=False, collation=None,
                auto_increment=None) for one in schema.columns
    ]  # fmt: skip
    return columns, schema.key


def _dropped(table: TableId, what: str = "dropped") -> TableEffect:
    return TableEffect(table, voids="DROP TABLE", dropped=True, what=what)


def _unsupported(table: TableId, what: str, offset: Offset) -> TableEffect:
    reason = f"Table {table} changed in a way that its target cannot follow: {what}."
    return TableEffect(table, (plan.Park(offset, reason, _resnapshot_hint(table)),), voids=what)


def _resnapshot_hint(table: TableId) -> str:
    return f"Run `penstock resnapshot FILE {argument(table)}` to read it again with its current definition."


def _row_statement(table: TableId, reason: str, offset: Offset) -> TableEffect:
    return TableEffect.parked(
        table,
        offset,
        reason=reason,
        hint="Make every session of the source write binlog_format=ROW (SET GLOBAL binlog_format = 'ROW'), "
        f"then run `penstock resnapshot FILE {argument(table)}`.",
    )
