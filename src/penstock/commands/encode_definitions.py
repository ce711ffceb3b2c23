"""The definitions of tables for `penstock encode`: from SQL files, or from a server's catalog.

A log with `binlog_row_metadata=FULL` has the names and labels of columns itself. For others, the definitions
of `--ddl` are true where the log begins. Those of `--server` are of now: tables that a statement in the log
has changed cannot be decoded with them. Statements in the log define and change tables in every case.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock._core import LogEncoder, server_version
from penstock.commands.schema import applied, statements
from penstock.config import Secret, TablesConfig
from penstock.encode.schema_changes import TableChange
from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.model.statement_head import statement_head
from penstock.sources.logged_definitions import said_by
from penstock.sources.mysql.catalog import read_tables
from penstock.sources.mysql.connection import connect
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
from penstock.sources.mysql.ddl.definition import TableDefinition
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.statement import CreateTable, Statement
from penstock.sources.mysql.faults import answers_of
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.statement_reading import session_of
from penstock.sources.table_filter import TableFilter

if TYPE_CHECKING:
    from penstock._core import LogPart


class Definitions:
    """Definitions of tables, which statements in the log change.

    `catalog`: the tables that are known where the log begins. `complete`: there are no others.
    """

    def __init__(self, catalog: Catalog, *, complete: bool = False) -> None:
        self._catalog = catalog
        self._server = catalog.server
        self._complete = complete
        self._gone: set[TableId] = set()
        self._temporary: set[TableId] = set()
        self._uncertain: set[TableId] = set()
        self._unclear: dict[str, str] = {}

    def schemas(self) -> list[str]:
        """The definitions where the log begins, as JSON."""
        return [definition.to_schema().to_json() for definition in self._catalog.tables.values()]

    def cure(self, table: str) -> str:
        """What to do about a table whose definition is not known."""
        if place := self._unclear.get(table):
            return f"A statement in the log changed it in a way that is not clear ({place})"
        return "Give its definition by --ddl or --server"

    def follow(self, encoder: LogEncoder, statement: Mapping[str, Any]) -> list[TableChange]:
        """Tells the encoder what a statement in the log changes. Returns the changes that are known."""
        catalog, before, unknown = self._catalog, dict(self._catalog.tables), set(self._catalog.unknown)
        catalog.reset_session()
        catalog.database = statement["database"]
        catalog.server = session_of(self._server, statement)
        parsed = parse(statement["sql"], statement["database"], catalog.server)
        self._apply(parsed, _place_of(statement))
        changes = []
        for table in sorted(before.keys() | set(catalog.tables) | (catalog.unknown - unknown)):
            now = catalog.tables.get(table)
            if now is before.get(table) and table not in catalog.unknown - unknown:
                continue
            schema = None if now is None else now.to_schema()
            text, certain = None if schema is None else schema.to_json(), table not in self._uncertain
            encoder.define(table.database, table.table, text, certain=certain)
            if table not in catalog.unknown:
                changes.append(_changed(table, before.get(table), now))
        return changes

    def _apply(self, parsed: Statement, place: str) -> None:
        uncertain = isinstance(parsed, CreateTable) and self._is_uncertain(parsed)
        if isinstance(parsed, CreateTable) and parsed.temporary:
            self._temporary.add(parsed.table)
        for change in self._catalog.apply(parsed):
            match change:
                case Created(table=table):
                    (self._uncertain.add if uncertain else self._uncertain.discard)(table)
                case Dropped(table=table):
                    self._gone.add(table)
                case Moved(names=names):
                    self._uncertain |= {name for name, was in names if was in self._uncertain}
                case Altered(table=table) if table not in self._temporary:
                    pass
                # The statement may be about a temporary table of this name.
                case Doubtful(table=TableId() as table) | Altered(table=table):
                    if self._catalog.has(table):
                        self._unclear.setdefault(str(table), place)
                    self._catalog.forget(table)

    def _is_uncertain(self, made: CreateTable) -> bool:
        """Whether the table may have another definition than the statement says: it may have existed (MySQL
        logs CREATE TABLE IF NOT EXISTS also if it does nothing, MariaDB does not), or has the character set
        of a database that was created before the log begins. MySQL 8 logs the character sets of columns."""
        if self._complete:
            return False
        existed = made.if_not_exists and not self._server.mariadb and made.table not in self._gone
        named = made.options.charset or made.options.collation
        inherits = not named and self._catalog.databases.get(made.table.database) is None
        inherits = inherits and not self._server.at_least((8, 0, 1), None)
        return existed or inherits or made.like in self._uncertain


class OfTheLog(Definitions):
    """Definitions that the log itself has: in its statements, and where `binlog_row_metadata` is FULL."""

    def __init__(self, parts: Sequence[LogPart]) -> None:
        super().__init__(_catalog_of(parts))


class OfSqlFiles(Definitions):
    def __init__(self, files: Sequence[Path], version: str) -> None:
        try:
            super().__init__(Catalog(Server.parse(version)), complete=True)
        except ValueError as error:
            raise ConfigError(f"{error}.") from error
        for path in files:
            self._catalog.reset_session()
            for statement in statements(path):
                for problem in applied(self._catalog, statement, str(path)):
                    if problem.touches_table:
                        raise ConfigError(
                            f"{problem.file}:{problem.line}: {problem.statement} …: {problem.reason}.",
                            hint="`penstock schema FILE` shows what is understood.",
                        )


def _changed(table: TableId, before: TableDefinition | None, now: TableDefinition | None) -> TableChange:
    numbered = [] if now is None else [column.name for column in now.columns if column.auto_increment]
    old, new = (None if one is None else one.to_schema() for one in (before, now))
    return TableChange(table, old, new, frozenset(numbered))


class OfServer(Definitions):
    """Definitions in a server's catalog. Tables that the log changes have those of its statements."""

    def __init__(self, url: str, parts: Sequence[LogPart]) -> None:
        super().__init__(_catalog_of(parts))
        self._changed = changed_tables(parts)
        source = _options(url)
        with answers_of(source), closing(connect(source)) as connection:
            tables = TableFilter(TablesConfig(include=["*.*"]))
            tables.sequences = True
            self._found = read_tables(connection, tables)

    def schemas(self) -> list[str]:
        return [schema.to_json() for table, schema in self._found.items() if table not in self._changed]

    def cure(self, table: str) -> str:
        for name, place in self._changed.items():
            if str(name) == table:
                return (
                    "The server's definition is not used, because a statement in the log may have changed it "
                    f"({place}). Give the definition from where the log begins by --ddl"
                )
        return "The server has no such table, or hides it from this account. Give its definition by --ddl"


def _catalog_of(parts: Sequence[LogPart]) -> Catalog:
    version = next((server_version(part[0]) for part in parts), "8.0")
    try:
        return Catalog(Server.parse(version))
    except ValueError:
        return Catalog(Server())


def _options(url: str) -> MySqlOptions:
    place = urlsplit(url)
    hint = "The password is taken from the environment variable PENSTOCK_PASSWORD."
    if place.password:
        raise ConfigError("A password in `--server` would show in the list of processes.", hint=hint)
    if place.scheme not in ("mysql", "mariadb") or not place.hostname or not place.username:
        raise ConfigError("`--server` needs a URL such as mysql://user@host:3306.", hint=hint)
    password = Secret(os.environ.get("PENSTOCK_PASSWORD", ""))
    return MySqlOptions(
        host=place.hostname, port=place.port or 3306, user=unquote(place.username), password=password
    )


def changed_tables(parts: Sequence[LogPart]) -> dict[TableId, str]:
    """The tables that statements in the log define or change, with the place and the head of the first of
    these statements."""
    found: dict[TableId, str] = {}
    # No table has this name, so only statements are read.
    encoder = LogEncoder(list(parts), "json", tables=[("", "")])
    while (step := encoder.read()) is not None:
        for statement in step if isinstance(step, list) else []:
            if said_by(statement) is not None:
                continue  # the log defines its tables itself
            named = named_tables(changes_of(statement))
            found |= dict.fromkeys(named - found.keys(), _place_of(statement))
    return found


def _place_of(statement: Mapping[str, Any]) -> str:
    return f"{statement['position']}: {statement_head(statement['sql'])}"


def changes_of(statement: Mapping[str, Any]) -> list[Change]:
    """The changes that a statement makes, whatever tables there are."""
    server = session_of(Server.parse("8.0"), statement)
    catalog = Catalog(server, tables=_AnyTables())
    return catalog.apply(parse(statement["sql"], statement["database"], server))


class _AnyTables(dict[TableId, TableDefinition]):
    """No definition is known."""


def named_tables(changes: Iterable[Change]) -> set[TableId]:
    found: set[TableId] = set()
    for change in changes:
        if isinstance(change, RowsChanged | Emptied):
            continue
        names = getattr(change, "names", None)
        if names is not None:
            found |= {table for pair in names for table in pair}
        elif (table := getattr(change, "table", None)) is not None:
            found.add(table)
    return found
