"""Reads the query of CREATE TABLE … SELECT, if its columns are plain columns of one table.

Only the server knows the types of other queries (expressions, joins, unions). For these, None is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.definition import ColumnDefinition, DefaultLiteral, TableDefinition
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood, Token, keywords

_MORE_TABLES = keywords("JOIN STRAIGHT_JOIN UNION INTERSECT EXCEPT")
_SELECT_OPTIONS = keywords("ALL DISTINCT DISTINCTROW SQL_NO_CACHE SQL_CACHE HIGH_PRIORITY SQL_BIG_RESULT")


@dataclass(frozen=True)
class PlainQuery:
    """A plain query. `columns`: pairs of a column and its name in the new table. None: all columns of
    `table`."""

    table: TableId
    columns: tuple[tuple[str, str], ...] | None


def read_query(cursor: Cursor) -> PlainQuery | None:
    """Reads a query. None: it is not plain."""
    try:
        return _read(cursor)
    except NotUnderstood:
        return None


def _read(cursor: Cursor) -> PlainQuery | None:
    cursor.take_any("IGNORE", "REPLACE")
    cursor.take("AS")
    closing = cursor.take_sign("(")
    cursor.expect("SELECT")
    cursor.take_any(*_SELECT_OPTIONS)
    columns: list[tuple[str, str]] | None = []
    while True:
        item = cursor.within(_up_to_from(cursor))
        if item.take_sign("*") or (item.peek(1).text == "." and item.peek(2).text == "*"):
            columns = None
        elif columns is not None:
            name = item.column_name()
            item.take("AS")
            columns.append((name, name if item.at_end else item.identifier()))
            if not item.at_end:
                return None
        if not cursor.take_sign(","):
            break
        if columns is None:
            return None
    cursor.expect("FROM")
    table = cursor.table()
    rest = cursor.rest()
    depth = 0
    for token in rest:
        depth += (token.text == "(") - (token.text == ")") if token.kind == "sign" else 0
        if token.keyword in _MORE_TABLES or (
            token.text == "," and depth == 0 and "WHERE" not in _words(rest)
        ):
            return None
    if closing and not (rest and rest[-1].text == ")"):
        return None
    return PlainQuery(table, None if columns is None else tuple(columns))


def _words(tokens: list[Token]) -> set[str]:
    return {token.keyword for token in tokens}


def _up_to_from(cursor: Cursor) -> list[Token]:
    tokens: list[Token] = []
    while not cursor.at_end and not cursor.at("FROM") and not cursor.at_sign(","):
        if cursor.at_sign("("):
            raise NotUnderstood("a plain column")
        tokens.append(cursor.next())
    if not tokens:
        raise NotUnderstood("a column")
    return tokens


def selected(query: PlainQuery, source: TableDefinition) -> list[ColumnDefinition] | None:
    """Returns the columns that the query adds. They have the types and defaults of the queried table, but not
    its keys and AUTO_INCREMENT."""
    wanted = query.columns
    if wanted is None:
        wanted = tuple((one.name, one.name) for one in source.columns if not one.column.invisible)
    made = []
    for name, new in wanted:
        column = source.find(name)
        if column is None:
            return None
        plain = replace(column.column, name=new, generated=None, invisible=False, auto_increment=False)
        if column.auto_increment:
            plain = replace(plain, default="0")
        made.append(
            replace(
                column, column=plain, expression=None, comment=column.comment,
                default=DefaultLiteral("number", "0") if column.auto_increment else column.default,
            )
        )  # fmt: skip
    return made
