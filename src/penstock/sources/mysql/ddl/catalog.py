"""Applies statements to table definitions, without a server. `Catalog.apply` returns all effects of a
statement."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import Protocol

from typing_extensions import assert_never

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl import parse
from penstock.sources.mysql.ddl.build import CannotApply, make_table
from penstock.sources.mysql.ddl.change import (
    Altered,
    Change,
    Created,
    Doubtful,
    Dropped,
    Emptied,
    Moved,
    Origin,
    RowsChanged,
)
from penstock.sources.mysql.ddl.column import ColumnSpec
from penstock.sources.mysql.ddl.definition import ColumnDefinition, TableDefinition
from penstock.sources.mysql.ddl.evolve import Evolved, evolve, table_charset
from penstock.sources.mysql.ddl.options import SHOWN
from penstock.sources.mysql.ddl.query import selected
from penstock.sources.mysql.ddl.rows import changes_rows
from penstock.sources.mysql.ddl.server import Server, sql_mode
from penstock.sources.mysql.ddl.statement import (
    AlterTable,
    CreateTable,
    DropDatabase,
    DropTables,
    ExchangeRows,
    NoTable,
    RenameTables,
    RenameTo,
    RepairTables,
    RowStatement,
    SetDatabase,
    SetVariables,
    Statement,
    TruncateTable,
    Unknown,
    UseDatabase,
)


class Databases(Protocol):
    """The character set and collation of a database. None: not known."""

    def get(self, name: str, /) -> tuple[str, str] | None: ...


class Catalog:
    """Definitions by name. `tables` and `databases` may be mappings that compute their values.

    A table whose definition is not known is in `unknown`. Some tables name no character set and are in a
    database whose character set is not known, either. With `guess_databases` they get the server's default.
    Otherwise they are doubtful.
    """

    def __init__(
        self,
        server: Server,
        *,
        tables: MutableMapping[TableId, TableDefinition] | None = None,
        databases: MutableMapping[str, tuple[str, str]] | None = None,
        guess_databases: bool = True,
    ) -> None:
        self.server = server
        self._initial = server
        self.tables: MutableMapping[TableId, TableDefinition] = {} if tables is None else tables
        self.databases: MutableMapping[str, tuple[str, str]] = {} if databases is None else databases
        self.unknown: set[TableId] = set()
        self.database = ""
        self._guess_databases = guess_databases
        self._temporary: set[TableId] = set()

    def reset_session(self) -> None:
        """Begins another session, with its own settings and without temporary tables."""
        self.server = self._initial
        self._temporary.clear()

    def has(self, table: TableId) -> bool:
        """Whether the table exists, also if its definition is not known."""
        return table in self.tables or table in self.unknown

    def forget(self, table: TableId) -> None:
        """The table's definition is not known from here on."""
        self._forget(table)
        self.unknown.add(table)

    def execute(self, sql: str) -> list[Change]:
        """Applies a statement of a script."""
        return self.apply(parse.parse(sql, self.database, self.server))

    def apply(self, statement: Statement) -> list[Change]:
        """Applies a statement and returns its changes. It never raises. An uncertain effect is `Doubtful` and
        leaves the definition unchanged."""
        match statement:
            case CreateTable():
                return self._create(statement)
            case AlterTable():
                return self._alter(statement)
            case DropTables():
                return self._drop(statement)
            case RenameTables():
                return self._rename(statement)
            case TruncateTable(table=table):
                return [] if table in self._temporary else [Emptied(table)]
            case SetDatabase(name=name, replaces=replaces):
                gone = self._drop_database(name) if replaces else []
                self._set_database(statement)
                return gone
            case DropDatabase(name=name):
                return self._drop_database(name)
            case UseDatabase(name=name):
                self.database = name
                return []
            case SetVariables(values=values):
                self._set(dict(values))
                return []
            case RowStatement(tables=tables, kind=kind):
                return [RowsChanged(tables, kind)]
            case RepairTables(tables=tables):
                return [
                    self._silently(table, "REPAIR TABLE may lose rows")
                    for table in tables
                    if table in self.tables
                ]
            case NoTable():
                return []
            case Unknown(head=head):
                return [Doubtful(None, f"a statement that is not understood ({head})")]
            case _:
                assert_never(statement)

    def _charset_of(self, database: str) -> tuple[str, str] | None:
        known = self.databases.get(database)
        if known is None and self._guess_databases:
            return self.server.default_charset
        return known

    def _set_database(self, statement: SetDatabase) -> None:
        known = self._charset_of(statement.name) or self.server.default_charset
        inherited = self.server.default_charset if statement.create else known
        if statement.if_not_exists and self.databases.get(statement.name) is not None:
            return
        self.databases[statement.name] = table_charset(
            statement.charset, statement.collation, self.server, inherited
        )

    def _drop_database(self, name: str) -> list[Change]:
        self.databases.pop(name, None)
        gone = [table for table in self.tables if table.database == name]
        for table in gone:
            self._forget(table)
        return [Dropped(table) for table in gone]

    def _silently(self, table: TableId, why: str) -> Change:
        """Returns the change by a statement that changes rows but no definition."""
        known = self.tables[table]
        origins = tuple(Origin(column.name) for column in known.columns)
        return Altered(table, known, known, origins, (why,))

    def _set(self, values: dict[str, str | None]) -> None:
        if "sql_mode" in values:
            mode = values["sql_mode"]  # a value restored from a variable is the one before
            modes = self._initial.sql_mode if mode is None or mode.upper() == "DEFAULT" else sql_mode(mode)
            self.server = replace(self.server, sql_mode=modes)
        if (explicit := values.get("explicit_defaults_for_timestamp")) is not None:
            self.server = replace(self.server, explicit_timestamps=explicit.upper() in ("1", "ON", "TRUE"))

    def _create(self, statement: CreateTable) -> list[Change]:
        table = statement.table
        if statement.temporary:
            self._temporary.add(table)
            return []
        self._temporary.discard(table)
        exists = self.has(table)
        if exists and statement.if_not_exists:
            return []
        replaces = exists
        why: str | None = None
        definition: TableDefinition | None = None
        try:
            definition = self._made(statement)
        except CannotApply as error:
            why = str(error)
        filled = statement.as_select
        if definition is None:
            self.forget(table)
        else:
            self.unknown.discard(table)
            self.tables[table] = definition
        return [Created(table, definition, filled, replaces, statement.like, why, statement.if_not_exists)]

    def _made(self, statement: CreateTable) -> TableDefinition:
        table = statement.table
        if statement.like is not None:
            pattern = self.tables.get(statement.like)
            if pattern is None:
                raise CannotApply(f"the definition of {statement.like}, which it copies, is not known")
            return replace(pattern, table=table, foreign_keys=())
        if statement.unknown is not None:
            raise CannotApply(f"its definition is not understood ({statement.unknown})")
        added = self._selected(statement) if statement.as_select else []
        options = statement.options
        database = self._charset_of(table.database)
        if database is None:
            if not options.charset and not options.collation:
                raise CannotApply(f"the character set of the database {table.database} is not known")
            database = self.server.default_charset
        charset = table_charset(options.charset, options.collation, self.server, database)
        made = make_table(
            table,
            statement.elements,
            charset=charset,
            server=self.server,
            engine=options.get("ENGINE") or "",
            selected=added,
        )
        made = replace(
            made,
            partitioned=statement.partitioned,
            versioned=options.versioned
            or any(isinstance(one, ColumnSpec) and one.versioned for one in statement.elements),
            sequence=statement.sequence or options.get("SEQUENCE") == "1",
            options=tuple({name: value for name, value in options.others if name in SHOWN}.items()),
        )
        return replace(made, keys=made.sorted_keys())

    def _selected(self, statement: CreateTable) -> list[ColumnDefinition]:
        """Returns the columns from the query of CREATE TABLE … SELECT."""
        source = self.tables.get(statement.query.table) if statement.query is not None else None
        if statement.query is None or source is None:
            raise CannotApply("a query decides its columns")
        added = selected(statement.query, source)
        if added is None or any(
            isinstance(one, ColumnSpec) and one.name.lower() in {column.name.lower() for column in added}
            for one in statement.elements
        ):
            raise CannotApply("a query decides its columns")
        return added

    def _alter(self, statement: AlterTable) -> list[Change]:
        table = statement.table
        if table in self._temporary:
            for action in statement.actions:
                if isinstance(action, RenameTo):
                    self._temporary ^= {table, action.table}
            return []
        before = self.tables.get(table)
        if before is None:
            doubtful = Doubtful(table, "its definition is not known", changes_rows(statement))
            return [doubtful, *self._others(statement)]
        database = self._charset_of(table.database) or self.server.default_charset
        try:
            evolved = evolve(before, statement, self.server, database=database)
        except CannotApply as error:
            return [Doubtful(table, str(error), changes_rows(statement)), *self._others(statement)]
        self.tables[table] = evolved.definition
        self._follow_columns(evolved)
        changes: list[Change] = [Altered(table, before, evolved.definition, evolved.origins, evolved.silent)]
        changes += [self._exchanged(table, one) for one in evolved.exchanged]
        if evolved.renamed is not None and evolved.renamed != table:
            changes.append(self._move(((table, evolved.renamed),)))
        return changes

    def _others(self, statement: AlterTable) -> list[Change]:
        """Returns the effects on other tables that the statement names, if the effect on its own table is not
        certain. They may be captured even if that table is not."""
        changes: list[Change] = []
        for action in statement.actions:
            if isinstance(action, ExchangeRows):
                changes.append(self._exchanged(statement.table, action))
            elif isinstance(action, RenameTo) and action.table != statement.table:
                self._forget(statement.table)
                changes.append(self._move(((statement.table, action.table),)))
        return changes

    def _exchanged(self, table: TableId, exchange: ExchangeRows) -> Change:
        other = exchange.other
        if exchange.drops:
            self._forget(other)
            return Dropped(other)
        made = None
        if exchange.creates and table in self.tables:
            made = replace(self.tables[table], table=other, foreign_keys=(), partitioned=False)
            self.tables[other] = made
        if exchange.creates or other not in self.tables:
            return Created(other, made, filled=True, why=f"it was a partition of {table}")
        return self._silently(other, f"{exchange.what}: {table}")

    def _drop(self, statement: DropTables) -> list[Change]:
        changes: list[Change] = []
        for table in statement.tables:
            known = self.tables.get(table)
            if table in self._temporary:
                self._temporary.discard(table)
            elif statement.sequences and known is not None and not known.sequence:
                pass
            elif not statement.temporary:
                self._forget(table)
                changes.append(Dropped(table))
        return changes

    def _forget(self, table: TableId) -> None:
        self.tables.pop(table, None)
        self.unknown.discard(table)

    def _rename(self, statement: RenameTables) -> list[Change]:
        """If there is a temporary table of the old name, MariaDB renames it, and MySQL the other table of
        this name. A pair of IF EXISTS whose new name is taken was skipped: it would have been refused."""
        moved = []
        exists: dict[TableId, bool] = {}
        for old, new in statement.pairs:
            was = exists.get(old, self.has(old))
            if self.server.mariadb and old in self._temporary:
                self._temporary ^= {old, new}
            elif was or not (statement.if_exists and exists.get(new, self.has(new))):
                moved.append((old, new))
                exists |= {old: False, new: was}
        return [self._move(tuple(moved))] if moved else []

    def _move(self, pairs: tuple[tuple[TableId, TableId], ...]) -> Moved:
        """Renames one pair after the other, because a name may occur in several pairs."""
        tables_at: dict[TableId, TableId | None] = {}
        for old, new in pairs:
            moved = tables_at.get(old, old)
            tables_at[old] = None
            tables_at[new] = moved
        names = tuple((name, was) for name, was in tables_at.items() if was is not None and was != name)
        free = tuple(name for name, was in tables_at.items() if was is None)
        definitions = {was: self.tables.get(was) for _, was in names}
        unknown = {was for _, was in names if was in self.unknown}
        for name in tables_at:
            self._forget(name)
        for name, was in names:
            definition = definitions[was]
            if definition is not None:
                self.tables[name] = _renamed(definition, name)
            elif was in unknown:
                self.unknown.add(name)
        self._follow_references({was: name for name, was in names})
        return Moved(names, free)

    def _follow_columns(self, evolved: Evolved) -> None:
        """Renames columns in the foreign keys that refer to them."""
        table = evolved.definition.table
        names = {
            origin.before: column.name
            for origin, column in zip(evolved.origins, evolved.definition.columns, strict=True)
            if origin.before is not None and origin.before != column.name
        }
        for name, definition in list(self._items()) if names else ():
            if any(key.references == table for key in definition.foreign_keys):
                keys = tuple(
                    replace(key, referenced=tuple(names.get(column, column) for column in key.referenced))
                    if key.references == table
                    else key
                    for key in definition.foreign_keys
                )
                self.tables[name] = replace(definition, foreign_keys=keys)

    def _follow_references(self, moved: dict[TableId, TableId]) -> None:
        """Changes the table in the foreign keys that refer to it."""
        for name, definition in list(self._items()):
            if any(key.references in moved for key in definition.foreign_keys):
                keys = tuple(
                    replace(key, references=moved.get(key.references, key.references))
                    for key in definition.foreign_keys
                )
                self.tables[name] = replace(definition, foreign_keys=keys)

    def _items(self) -> Iterator[tuple[TableId, TableDefinition]]:
        yield from self.tables.items()


def _renamed(definition: TableDefinition, name: TableId) -> TableDefinition:
    """Renames the keys whose names the server made from the table's name."""
    old = definition.table.table
    foreign = tuple(
        replace(key, name=name.table + key.name.removeprefix(old))
        if key.name.startswith(f"{old}_ibfk_")
        else key
        for key in definition.foreign_keys
    )
    checks = tuple(
        name.table + check.removeprefix(old) if check.startswith(f"{old}_chk_") else check
        for check in definition.checks
    )
    return replace(definition, table=name, foreign_keys=foreign, checks=checks)
