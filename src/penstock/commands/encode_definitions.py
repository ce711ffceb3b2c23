"""The definitions of tables for `penstock encode`: from SQL files, or from a server's catalog.

A log with `binlog_row_metadata=FULL` has the names and labels of columns itself. For others, the definitions
of `--ddl` are true where the log begins, and statements in the log change them. Those of `--server` are of
now: tables that a statement in the log has changed cannot be decoded with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from penstock._core import LogEncoder
from penstock.commands.schema import applied, statements
from penstock.config import Secret, TablesConfig
from penstock.encode.statements import session_of
from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.sources.mysql.catalog import read_tables
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.change import Change, Emptied, RowsChanged
from penstock.sources.mysql.ddl.definition import TableDefinition
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.faults import answers_of
from penstock.sources.mysql.messages.schema_changes import TableChange
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.table_filter import TableFilter

if TYPE_CHECKING:
    from penstock._core import LogPart


class Definitions(Protocol):
    def schemas(self) -> list[str]:
        """The definitions where the log begins, as JSON."""

    def follow(self, encoder: LogEncoder, statement: Mapping[str, Any]) -> list[TableChange]:
        """Tells the encoder what a statement in the log changes. Returns the changes that are known."""


class OfTheLog:
    """Definitions that the log itself has."""

    def schemas(self) -> list[str]:
        return []

    def follow(self, encoder: LogEncoder, statement: Mapping[str, Any]) -> list[TableChange]:
        return []


class OfSqlFiles:
    def __init__(self, files: Sequence[Path], version: str) -> None:
        try:
            self._server = Server.parse(version)
        except ValueError as error:
            raise ConfigError(f"{error}.") from error
        self._catalog = Catalog(self._server)
        for path in files:
            self._catalog.reset_session()
            for statement in statements(path):
                for problem in applied(self._catalog, statement, str(path)):
                    if problem.touches_table:
                        raise ConfigError(
                            f"{problem.file}:{problem.line}: {problem.statement} …: {problem.reason}.",
                            hint="`penstock schema FILE` shows what is understood.",
                        )

    def schemas(self) -> list[str]:
        return [definition.to_schema().to_json() for definition in self._catalog.tables.values()]

    def follow(self, encoder: LogEncoder, statement: Mapping[str, Any]) -> list[TableChange]:
        before = dict(self._catalog.tables)
        changes = []
        self._catalog.database = statement["database"]
        self._catalog.server = session_of(self._server, statement)
        self._catalog.execute(statement["sql"])
        for table in sorted(before.keys() | set(self._catalog.tables)):
            now = self._catalog.tables.get(table)
            if now is before.get(table) and table not in self._catalog.unknown:
                continue
            schema = None if now is None or table in self._catalog.unknown else now.to_schema()
            encoder.define(table.database, table.table, None if schema is None else schema.to_json())
            if table not in self._catalog.unknown:
                changes.append(_changed(table, before.get(table), now))
        return changes


def _changed(table: TableId, before: TableDefinition | None, now: TableDefinition | None) -> TableChange:
    numbered = [] if now is None else [column.name for column in now.columns if column.auto_increment]
    old, new = (None if one is None else one.to_schema() for one in (before, now))
    return TableChange(table, old, new, frozenset(numbered))


class OfServer:
    """Definitions in a server's catalog, without the tables that the log changes."""

    def __init__(self, url: str, parts: Sequence[LogPart]) -> None:
        changed = changed_tables(parts)
        source = _options(url)
        with answers_of(source), closing(connect(source)) as connection:
            tables = TableFilter(TablesConfig(include=["*.*"]))
            tables.sequences = True
            found = read_tables(connection, tables)
        self._schemas = [schema.to_json() for table, schema in found.items() if table not in changed]

    def schemas(self) -> list[str]:
        return self._schemas

    def follow(self, encoder: LogEncoder, statement: Mapping[str, Any]) -> list[TableChange]:
        return []


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


def changed_tables(parts: Sequence[LogPart]) -> set[TableId]:
    """The tables that statements in the log define or change."""
    found: set[TableId] = set()
    # No table has this name, so only statements are read.
    encoder = LogEncoder(list(parts), "json", tables=[("", "")])
    while (step := encoder.read()) is not None:
        for statement in step if isinstance(step, list) else []:
            found |= named_tables(changes_of(statement))
    return found


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
