"""What the text of a statement in the log is about, as messages tell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.column import IndexSpec
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.event_types import event_warns, has_sql
from penstock.sources.statement_reading import StatementReading

_SERVER = Server.parse("8.0")
_ANY_TABLE = TableId("", "")


def read_statement(statement: Mapping[str, Any]) -> StatementReading:
    """`statement`: fields of `LogEncoder.read`."""
    if not has_sql(statement["event"]):
        warning = event_warns(statement["event"])
        return StatementReading(
            kind="QUERY", tables=(_ANY_TABLE,), defines=False, sql=f"-- {warning}", warning=warning
        )
    parsed = parse(statement["sql"], statement["database"], session_of(_SERVER, statement))
    if isinstance(parsed, syntax.RowStatement):
        return StatementReading(
            kind="QUERY", tables=tuple(parsed.tables), defines=False, changes_rows=True, sql=statement["sql"]
        )
    kind, tables = canal_type(parsed, statement["sql"])
    return StatementReading(
        kind=kind,
        tables=tuple(TableId(*table) for table in tables),
        renamed=_renamed(parsed),
        databases=_databases(parsed),
        changes_rows=_loses_rows(parsed),
        sql=statement["sql"],
    )


def session_of(server: Server, statement: Mapping[str, Any]) -> Server:
    """The server, with the settings of the session that ran a statement in the log."""
    return server.in_session(statement["sql_mode"], statement["server_charset"])


def _loses_rows(parsed: syntax.Statement) -> bool:
    if isinstance(parsed, syntax.AlterTable):
        return any(isinstance(action, syntax.LosesRows | syntax.ExchangeRows) for action in parsed.actions)
    return isinstance(parsed, syntax.TruncateTable)


def _databases(parsed: syntax.Statement) -> dict[str, str]:
    """The databases that a statement concerns, and what it does to them."""
    match parsed:
        case syntax.SetDatabase(name=name, create=create):
            return {name: "create" if create else "alter"}
        case syntax.DropDatabase(name=name):
            return {name: "drop"}
    return {}


def canal_type(parsed: syntax.Statement, sql: str) -> tuple[str, list[tuple[str, str]]]:
    """Canal's type of a statement, and database and table of each message."""
    words = [word.upper() for word in sql.split(maxsplit=3)[:3]]
    match parsed:
        case syntax.CreateTable(table=table, temporary=False):
            return "CREATE", [(table.database, table.table)]
        case syntax.AlterTable(table=table, actions=(syntax.RenameTo(table=new), *_)):
            return "RENAME", [(new.database, new.table)]
        case syntax.AlterTable(table=table, actions=actions):
            kind = {"CREATE": "CINDEX", "DROP": "DINDEX"}.get(words[0]) or _alter_type(actions)
            return kind, [(table.database, table.table)]
        case syntax.DropTables(tables=dropped, temporary=False):
            return "ERASE", [(table.database, table.table) for table in dropped]
        case syntax.RenameTables(pairs=pairs):
            return "RENAME", [(after.database, after.table) for _, after in pairs]
        case syntax.TruncateTable(table=table):
            return "TRUNCATE", [(table.database, table.table)]
        case syntax.SetDatabase(name=name) | syntax.DropDatabase(name=name):
            return "QUERY", [(name, "")]
    return "", []


def _alter_type(actions: Sequence[syntax.Action]) -> str:
    """The first action decides, as in Canal 1.1.7."""
    match actions:
        case (syntax.AddElement(element=IndexSpec()), *_):
            return "CINDEX"
        case (syntax.DropKey(name=name, kinds=kinds), *_) if kinds == {"key"} and name != "PRIMARY":
            return "DINDEX"
        case _:
            return "ALTER"


def _renamed(parsed: syntax.Statement) -> Mapping[TableId, TableId]:
    """The old names of the tables that a statement renames, by the new ones."""
    match parsed:
        case syntax.RenameTables(pairs=pairs):
            return {after: before for before, after in pairs}
        case syntax.AlterTable(table=table, actions=actions):
            return {one.table: table for one in actions if isinstance(one, syntax.RenameTo)}
        case _:
            return {}
