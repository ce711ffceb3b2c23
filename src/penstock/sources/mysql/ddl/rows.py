"""Rows that change without row events: the tables that statement-format DML names, and the effects of
ALTER TABLE."""

from __future__ import annotations

from collections.abc import Callable

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.column import ColumnSpec, PeriodSpec
from penstock.sources.mysql.ddl.definition import DefaultLiteral
from penstock.sources.mysql.ddl.statement import NoTable, RowStatement, Statement
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood


def _insert(kind: str) -> Callable[[Cursor], Statement]:
    def parse(cursor: Cursor) -> Statement:
        cursor.take_any("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
        return RowStatement((cursor.table(),), kind)

    return parse


def _update(cursor: Cursor) -> Statement:
    cursor.take_any("LOW_PRIORITY", "IGNORE")
    return RowStatement(_table_references(cursor, "SET"), "update")


def _delete(cursor: Cursor) -> Statement:
    cursor.take_any("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY")
    return RowStatement(_table_references(cursor, "WHERE"), "delete")


def _table_references(cursor: Cursor, until: str) -> tuple[TableId, ...]:
    """Returns all names in places where a table can be, up to a keyword, also in subqueries.

    In a DELETE of several tables, an alias before FROM is taken for a table, which does no harm.
    """
    tables: list[TableId] = []
    depth = 0
    expect_table = True
    while not cursor.at_end and not (depth == 0 and cursor.at_any(until, "ORDER", "LIMIT", "RETURNING")):
        token = cursor.peek()
        if token.kind == "sign" and token.text in "()":
            depth += 1 if token.text == "(" else -1
            expect_table = expect_table and token.text == "("
            cursor.next()
        elif expect_table and token.keyword in ("FROM", "SELECT", "LATERAL", "VALUES"):
            expect_table = token.keyword == "FROM"
            cursor.next()
        elif expect_table and token.kind in ("word", "name", "double"):
            tables.append(_written_table(cursor))
            expect_table = False
        else:
            cursor.next()
            expect_table = token.text == "," and token.kind == "sign"
            expect_table = expect_table or token.keyword in ("JOIN", "STRAIGHT_JOIN", "FROM", "USING")
    if not tables:
        raise NotUnderstood("the tables of a statement")
    return tuple(dict.fromkeys(tables))


def _written_table(cursor: Cursor) -> TableId:
    """`table` or `database.table`, with or without `.*` (DELETE of several tables)."""
    parts = [cursor.identifier()]
    while cursor.take_sign("."):
        if cursor.take_sign("*"):
            break
        parts.append(cursor.identifier())
    if len(parts) == 1:
        parts = [cursor.database, *parts]
    if cursor.lower_case:
        parts = [part.lower() for part in parts]
    return TableId(parts[0], parts[1])


def _load(cursor: Cursor) -> Statement:
    if cursor.at("INDEX"):
        return NoTable("load index")
    if not cursor.take("DATA") and not cursor.take("XML"):
        raise NotUnderstood("LOAD")
    while not cursor.take("INTO", "TABLE"):
        if cursor.next().kind == "end":
            raise NotUnderstood("INTO TABLE")
    return RowStatement((cursor.table(),), "load")


def read_with(cursor: Cursor) -> Statement:
    """WITH name AS (…), … UPDATE | DELETE | …"""
    depth = 0
    while True:
        token = cursor.peek()
        if token.kind == "end":
            raise NotUnderstood("the statement behind WITH")
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.keyword in ("UPDATE", "DELETE", "INSERT", "REPLACE"):
            cursor.next()
            return HEADS[token.keyword](cursor)
        cursor.next()


HEADS: dict[str, Callable[[Cursor], Statement]] = {
    "INSERT": _insert("insert"),
    "REPLACE": _insert("replace"),
    "UPDATE": _update,
    "DELETE": _delete,
    "LOAD": _load,
}


def changes_rows(statement: syntax.AlterTable) -> bool:
    """Whether the statement may change rows in a way that does not follow from the new definition.

    It does not if it drops or renames columns, adds columns with constants, changes keys, checks or options
    that have no rows, or creates or removes partitions without losing rows.
    """
    return statement.ignore or any(_changes_rows(action) for action in statement.actions)


def _changes_rows(action: syntax.Action) -> bool:
    match action:
        case syntax.AddElement(element=ColumnSpec() as column):
            constant = column.default is None or isinstance(column.default, DefaultLiteral)
            return not constant or column.generated is not None or column.auto_increment
        case syntax.AddElement(element=element):
            return isinstance(element, PeriodSpec)
        case syntax.SetOptions(options=options):
            return options.get("ENGINE") is not None or options.union is not None
        case (
            syntax.RenameColumn() | syntax.DropColumn() | syntax.AlterColumn() | syntax.DropKey()
            | syntax.RenameKey() | syntax.RenameTo() | syntax.Partitioning() | syntax.NoChange()
        ):  # fmt: skip
            return False
        case _:
            return True
