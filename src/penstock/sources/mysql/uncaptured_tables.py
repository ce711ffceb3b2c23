"""Follows the definitions of tables that are not captured, by the statements in the log.

An online schema change fills a copy of a table under another name, and in the end the copy takes the name of
the table. Its definition is known if every statement about it was followed. Each table has a history of
definitions, because the planner may ask about a statement twice. Tables in databases without captured tables
are not followed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace

from penstock.model.offset import Offset
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.reader import Statement
from penstock.sources.mysql.column_origins import Evolution
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.change import Altered, Change, Created, Doubtful, Dropped, Moved
from penstock.sources.mysql.ddl.conversion import silent_changes
from penstock.sources.mysql.ddl.definition import TableDefinition
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server, sql_mode
from penstock.sources.mysql.online_schema_change import is_copy_of
from penstock.sources.table_filter import TableFilter

TABLES_MAX = 10_000
"""Tables that are not captured, and temporary ones, of which something is known. More would fill the memory.
The oldest are forgotten, and count as unknown."""
HISTORY_MAX = 64
"""Definitions that are kept per table, so that a table that changes all the time does not fill the memory.
Older ones count as unknown."""


@dataclass(frozen=True)
class UncapturedTable:
    """The definition of a table since an offset. None: it is unknown, or there is no such table. `base`: the
    captured table that it is a copy of. `evolution`: how it differs from that."""

    since: Offset
    definition: TableDefinition | None
    base: TableId | None = None
    evolution: Evolution | None = None


class TablesBefore(MutableMapping[TableId, TableDefinition]):
    """All definitions right before one statement, for `Catalog`. Changes by the statement stay in this
    object."""

    def __init__(
        self, live: dict[TableId, TableSchema], all_uncaptured: UncapturedTables, offset: Offset
    ) -> None:
        self._live = live
        self._all_uncaptured = all_uncaptured
        self._offset = offset
        self._changed: dict[TableId, TableDefinition | None] = {}
        self.databases: MutableMapping[str, tuple[str, str]] = _Databases(all_uncaptured)

    def is_live(self, table: TableId) -> bool:
        return table in self._live

    def before(self, table: TableId) -> TableDefinition | None:
        if table in self._live:
            return TableDefinition.from_schema(self._live[table])
        uncaptured = self._all_uncaptured.find(table, self._offset)
        return uncaptured.definition if uncaptured is not None else None

    def uncaptured(self, table: TableId) -> UncapturedTable | None:
        return None if table in self._live else self._all_uncaptured.find(table, self._offset)

    def evolution_of(self, copy: TableId, original: TableId) -> Evolution | None:
        """How the copy differs from the original table. None if not all statements about the copy are
        known."""
        uncaptured = self.uncaptured(copy)
        return uncaptured.evolution if uncaptured is not None and uncaptured.base == original else None

    def may_be_temporary(self, table: TableId) -> bool:
        """Whether a temporary table of this name was created before and may still exist."""
        return self._all_uncaptured.may_be_temporary(table, self._offset)

    def __getitem__(self, table: TableId) -> TableDefinition:
        found = self._changed[table] if table in self._changed else self.before(table)
        if found is None:
            raise KeyError(table)
        return found

    def __setitem__(self, table: TableId, definition: TableDefinition) -> None:
        self._changed[table] = definition

    def __delitem__(self, table: TableId) -> None:
        if table not in self:
            raise KeyError(table)
        self._changed[table] = None

    def __contains__(self, table: object) -> bool:
        assert isinstance(table, TableId)
        return self._changed[table] is not None if table in self._changed else self.before(table) is not None

    def __iter__(self) -> Iterator[TableId]:
        names = {*self._live, *self._all_uncaptured.names(), *self._changed}
        return iter([name for name in names if name in self])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Databases(MutableMapping[str, tuple[str, str]]):
    """Character sets of databases, from statements in the log or else from the catalog, which is asked once
    per database."""

    def __init__(self, all_uncaptured: UncapturedTables) -> None:
        self._all_uncaptured = all_uncaptured

    def __getitem__(self, name: str) -> tuple[str, str]:
        found = self._all_uncaptured.database(name)
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, charset: tuple[str, str]) -> None:
        self._all_uncaptured.databases[name] = charset

    def __delitem__(self, name: str) -> None:
        self._all_uncaptured.databases.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_uncaptured.databases)

    def __len__(self) -> int:
        return len(self._all_uncaptured.databases)


class UncapturedTables:
    """Follows the statements of the log in order. A statement that comes again changes nothing."""

    def __init__(
        self,
        captured: TableFilter,
        server: Callable[[], Server],
        read_database: Callable[[str], tuple[str, str] | None],
        earlier: Callable[[Offset], Iterable[Statement]],
        in_full: Callable[[Statement], Statement | None],
    ) -> None:
        self._captured = captured
        self._server = server
        self._read_database = read_database
        self._earlier = earlier
        self._in_full = in_full
        self._temporary: dict[TableId, Offset] = {}
        self._recorded: Offset | None = None
        self._histories: dict[TableId, list[UncapturedTable]] = {}
        self.databases: dict[str, tuple[str, str] | None] = {}

    def at(self, statement: Statement, live: dict[TableId, TableSchema]) -> TablesBefore:
        if self._recorded is None:
            self._recorded = Offset(0)
            self._replay(statement.offset, live)
        return TablesBefore(live, self, statement.offset)

    def names(self) -> Iterable[TableId]:
        return self._histories

    def find(self, table: TableId, offset: Offset) -> UncapturedTable | None:
        history = self._histories.get(table, [])
        index = bisect_right(history, offset, key=lambda uncaptured: uncaptured.since)
        return history[index - 1] if index else None

    def may_be_temporary(self, table: TableId, offset: Offset) -> bool:
        since = self._temporary.get(table)
        return since is not None and since <= offset

    def database(self, name: str) -> tuple[str, str] | None:
        if name not in self.databases:
            self.databases[name] = self._read_database(name)
        return self.databases[name]

    def _replay(self, end: Offset, live: dict[TableId, TableSchema]) -> None:
        """Follows the statements that are still in the relay log, after a restart."""
        for statement in self._earlier(end):
            if statement.event is not None:
                continue
            if statement.sql[:6].upper() in ("INSERT", "UPDATE", "DELETE", "REPLAC"):
                continue
            tables_before = TablesBefore(live, self, statement.offset)
            mode = statement.sql_mode
            server = replace(self._server(), sql_mode=None if mode is None else sql_mode(mode))
            catalog = Catalog(
                server, tables=tables_before, databases=tables_before.databases, guess_databases=False
            )
            if statement.truncated:
                statement = self._in_full(statement) or statement
            parsed = parse(statement.sql, statement.database, server)
            changes = catalog.apply(parsed)
            for change in changes:
                # Copies that were made before this are copies of another definition.
                if isinstance(change, Altered | Created | Doubtful) and change.table in live:
                    self._forget_copies(change.table)
            self.record(statement, changes, live, tables_before, parsed)

    def _forget_copies(self, table: TableId) -> None:
        for name, history in list(self._histories.items()):
            if history[-1].base == table:
                history[-1] = replace(history[-1], definition=None, evolution=None)
                self._histories[name] = history

    def record(
        self,
        statement: Statement,
        changes: Iterable[Change],
        live: dict[TableId, TableSchema],
        tables_before: TablesBefore,
        parsed: syntax.Statement,
    ) -> None:
        """Records what the statement did to tables that are not captured."""
        if self._recorded is not None and statement.end <= self._recorded:
            return
        self._recorded = statement.end
        since = statement.end
        if isinstance(parsed, syntax.CreateTable) and parsed.temporary and parsed.table in self._captured:
            self._temporary.setdefault(parsed.table, since)
            while len(self._temporary) > TABLES_MAX:
                del self._temporary[next(iter(self._temporary))]
        for change in changes:
            match change:
                case (
                    Created(table=table) | Altered(table=table) | Dropped(table=table)
                    | Doubtful(table=TableId() as table)
                ) if table in live:  # fmt: skip
                    # If the table is not followed any more later, what was known before is too old.
                    if table in self._histories:
                        self._put(table, UncapturedTable(since, None))
                case Created():
                    self._created(since, change, live, tables_before)
                case Altered():
                    self._altered(since, change, tables_before)
                case Dropped(table=table) | Doubtful(table=TableId() as table):
                    self._put(table, UncapturedTable(since, None))
                case Moved(names=names, left=left):
                    kept = {
                        was: tables_before.uncaptured(was)
                        or UncapturedTable(since, tables_before.before(was))
                        for _, was in names
                    }
                    for name in left:
                        self._put(name, UncapturedTable(since, None))
                    for name, was in names:
                        self._put(name, replace(kept[was], since=since, definition=tables_before.get(name)))
                case _:
                    pass

    def _created(
        self, since: Offset, change: Created, live: dict[TableId, TableSchema], tables_before: TablesBefore
    ) -> None:
        definition = change.definition
        base = change.like
        evolution: Evolution | None = None
        if definition is not None and base is not None:
            evolution = Evolution.identity(definition)
        elif definition is not None:
            base = next((name for name in live if is_copy_of(change.table, name)), None)
            before = tables_before.before(base) if base is not None else None
            if before is not None:
                evolution = Evolution.compared(before, definition, self._server())
        self._put(change.table, UncapturedTable(since, definition, base, evolution))

    def _altered(self, since: Offset, change: Altered, tables_before: TablesBefore) -> None:
        uncaptured = tables_before.uncaptured(change.table)
        evolution = uncaptured.evolution if uncaptured is not None else None
        if evolution is not None:
            pairs = [
                (change.before.find(origin.before) if origin.before else None, column)
                for origin, column in zip(change.origins, change.after.columns, strict=True)
            ]
            # Tools copy rows with INSERT IGNORE, which changes values that do not fit, strict or not.
            silent = (*change.silent, *silent_changes(pairs, self._server(), statement=True))
            keys = {key.parts for key in change.before.keys if key.unique}
            if any(key.unique and key.parts not in keys for key in change.after.keys):
                silent = (*silent, "rows that offend a new unique index are left out of the copy")
            later = Evolution(change.after, tuple(origin.before for origin in change.origins), silent)
            evolution = evolution.then(later)
        base = uncaptured.base if uncaptured is not None else None
        self._put(change.table, UncapturedTable(since, change.after, base, evolution))

    def _put(self, table: TableId, uncaptured: UncapturedTable) -> None:
        if not self._captured.has_database(table.database):
            return
        history = self._histories.setdefault(table, [])
        history.append(uncaptured)
        del history[:-HISTORY_MAX]
        while len(self._histories) > TABLES_MAX:
            del self._histories[next(iter(self._histories))]


def named_tables(parsed: syntax.Statement, tables: set[TableId]) -> set[TableId] | None:
    """The tables among `tables` that the statement may change, and those that it creates. None: unknown."""
    match parsed:
        case syntax.Unknown(tables=named):
            return None if named is None else set(named) & tables
        case syntax.CreateTable(table=table):
            return {table}
        case syntax.AlterTable(table=table, actions=actions):
            others = [
                action for action in actions if isinstance(action, syntax.RenameTo | syntax.ExchangeRows)
            ]
            unknown = {name for a in actions if isinstance(a, syntax.UnknownAction) for name in a.names}
            moved = {one.table if isinstance(one, syntax.RenameTo) else one.other for one in others}
            return {table, *moved, *(unknown & tables)}
        case syntax.TruncateTable(table=table):
            return {table}
        case syntax.DropTables(tables=named) | syntax.RowStatement(tables=named):
            return set(named) & tables
        case syntax.RenameTables(pairs=pairs):
            return {table for pair in pairs for table in pair}
        case syntax.RepairTables(tables=named):
            return set(named) & tables
        case syntax.DropDatabase(name=name) | syntax.SetDatabase(name=name, replaces=True):
            return {table for table in tables if table.database == name}
        case _:
            return set()
