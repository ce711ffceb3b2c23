"""What a statement of the binary log does to tables.

`effects` reads the statement with a tokenizer and a small grammar of our own instead of a general SQL parser:
only names, ALTER actions, added columns and constant defaults matter, while everything of them has to be
right. (Of 23 everyday MySQL statements sqlglot 30 gave up on 9, ALTER TABLE with a column list or
partitions among them, found no statement in `/*!50003 … */`, and an ALTER TABLE with only ALGORITHM and
ENGINE for one without actions; nested parentheses end in its RecursionError.)

The grammar errs on one side. A statement head that is not known is `Unknown`; an ALTER action that is not
known is `Unsupported` for its table. So the list of what is harmless is closed, and whatever a future
server adds is said instead of skipped. Nothing recurses with the statement's nesting, and time is linear in
its length.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from penstock.model.effect import (
    AddColumns,
    AddedColumn,
    After,
    CreateTable,
    DefaultLiteral,
    DropDatabase,
    Effect,
    First,
    Harmless,
    RowStatement,
    Truncate,
    Unknown,
    Unsupported,
)
from penstock.model.schema import TableId
from penstock.sources.mysql.alter import alter_table, drop_index, renamed
from penstock.sources.mysql.column import cascades
from penstock.sources.mysql.tokens import Cursor, NotUnderstood, Token, keywords, tokenize

__all__ = [
    "AddColumns",
    "AddedColumn",
    "After",
    "CreateTable",
    "DefaultLiteral",
    "DropDatabase",
    "Effect",
    "First",
    "Harmless",
    "RowStatement",
    "Truncate",
    "Unknown",
    "Unsupported",
    "effects",
]

_HARMLESS_HEADS = keywords(
    """ANALYZE BEGIN CHECK CHECKSUM COMMIT DESC DESCRIBE EXPLAIN FLUSH GRANT HELP INSTALL KILL LOCK
    OPTIMIZE PREPARE DEALLOCATE PURGE RELEASE REPAIR RESET REVOKE ROLLBACK SAVEPOINT SET SHOW START STOP
    UNINSTALL
    UNLOCK USE XA"""
)
_HARMLESS_OBJECTS = keywords(
    """DATABASE SCHEMA EVENT FUNCTION INSTANCE LIBRARY LOGFILE PACKAGE PROCEDURE PROFILE RESOURCE ROLE
    SEQUENCE SERVER SPATIAL TABLESPACE TRIGGER UNDO USER VIEW PREPARE"""
)
_BEFORE_OBJECT = keywords(
    "OR REPLACE AGGREGATE SQL SECURITY INVOKER DEFINER ALGORITHM UNDEFINED MERGE TEMPTABLE JSON DUALITY"
)


def effects(
    sql: str,
    database: str,
    *,
    server_version: tuple[int, int, int] | None = None,
    mariadb: bool = False,
    lower_case: bool = False,
) -> list[Effect]:
    """What the statement does, `database` being the session's. Never empty, never raises.

    `server_version` decides which version comments are code (None: all). `lower_case`: names are stored in
    lower case (lower_case_table_names = 1), so they are returned that way.
    """
    cursor = Cursor(
        sql, tokenize(sql, version=server_version, mariadb=mariadb), database=database, lower_case=lower_case
    )
    words: list[str] = []
    try:
        words = [word for word in (cursor.peek(index).keyword for index in range(3)) if word.isalpha()]
        return _statement(cursor)
    except NotUnderstood:
        return [Unknown(" ".join(words)[:60] or "(not SQL)")]


def _statement(cursor: Cursor) -> list[Effect]:
    if cursor.at_end:
        return [Harmless(None, "no statement")]
    while cursor.at("SET", "STATEMENT"):  # MariaDB: SET STATEMENT name = value, … FOR statement
        while not cursor.take("FOR"):
            if cursor.next().kind == "end":
                raise NotUnderstood("FOR")
    head = cursor.peek().keyword
    if head == "START" and cursor.peek(1).keyword not in (
        "TRANSACTION",
        "SLAVE",
        "REPLICA",
        "GROUP_REPLICATION",
    ):
        raise NotUnderstood("START")
    if head in _HARMLESS_HEADS:
        return [Harmless(None, head.lower())]
    parse = _HEADS.get(head)
    if parse is None:
        raise NotUnderstood("a statement that is not known")
    cursor.next()
    return parse(cursor)


def _create(cursor: Cursor) -> list[Effect]:
    replace = cursor.take("OR", "REPLACE")
    if cursor.take("TEMPORARY"):
        return [Harmless(None, "temporary table")]
    if cursor.take("TABLE"):
        return _create_table(cursor, replace=replace)
    unique = cursor.take("UNIQUE")
    cursor.take_any("FULLTEXT", "ONLINE", "OFFLINE", "VECTOR")
    if cursor.at("SPATIAL", "INDEX"):
        cursor.next()
    if cursor.take("INDEX"):
        cursor.take("IF", "NOT", "EXISTS")
        _skip_to(cursor, "ON")
        return [Harmless(cursor.table(), "creates an index", key_may_change=unique)]
    return _other_object(cursor)


def _create_table(cursor: Cursor, *, replace: bool) -> list[Effect]:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    table = cursor.table()
    like: TableId | None = None
    tokens: list[Token] = []
    if cursor.take("LIKE") or (cursor.at_sign("(") and cursor.peek(1).keyword == "LIKE"):
        if cursor.take_sign("("):
            cursor.expect("LIKE")
        like = cursor.table()
    else:
        while not cursor.at_end:
            tokens.append(cursor.next())
    if not tokens and like is None:
        raise NotUnderstood("the definition of a table")
    if replace:
        return [Unsupported(table, "is replaced by another table")]
    return [
        CreateTable(
            table=table,
            like=like,
            as_select=_selects(tokens),
            if_not_exists=if_not_exists,
            cascades=cascades(tokens),
        )
    ]


def _selects(tokens: list[Token]) -> bool:
    """A query follows the definition. No part of a definition itself may hold a query."""
    for token, following in pairwise([*tokens, Token("end", "", 0, 0)]):
        if token.keyword == "SELECT":
            return True
        if token.keyword == "VALUES" and following.keyword == "ROW":
            return True
        if token.keyword == "TABLE" and following.kind in ("word", "name", "double"):
            return True
    return False


def _drop(cursor: Cursor) -> list[Effect]:
    if cursor.take("TEMPORARY"):
        return [Harmless(None, "temporary table")]
    if cursor.take("TABLE") or cursor.take("TABLES"):
        cursor.take("IF", "EXISTS")
        tables = cursor.tables()
        cursor.take_any("RESTRICT", "CASCADE")
        if not cursor.at_end and not cursor.at_any("WAIT", "NOWAIT"):
            raise NotUnderstood("the end of DROP TABLE")
        return [Unsupported(table, "is dropped") for table in tables]
    if cursor.take("DATABASE") or cursor.take("SCHEMA"):
        cursor.take("IF", "EXISTS")
        name = cursor.identifier()
        return [DropDatabase(name.lower() if cursor.lower_case else name)]
    cursor.take_any("ONLINE", "OFFLINE")
    if cursor.take("INDEX"):
        cursor.take("IF", "EXISTS")
        name = cursor.identifier()
        cursor.expect("ON")
        return drop_index(name, cursor.table())
    return _other_object(cursor)


def _alter(cursor: Cursor) -> list[Effect]:
    cursor.take_any("ONLINE", "OFFLINE")
    ignore = cursor.take("IGNORE")
    if cursor.take("TABLE"):
        cursor.take("IF", "EXISTS")
        table = cursor.table()
        if cursor.take("WAIT"):
            cursor.next()
        cursor.take("NOWAIT")
        if ignore:
            return [Unsupported(table, "drops rows that offend a new unique index (ALTER IGNORE)")]
        return alter_table(cursor, table)
    return _other_object(cursor)


def _other_object(cursor: Cursor) -> list[Effect]:
    """CREATE, ALTER and DROP of everything that holds no captured rows."""
    definer = False
    for _ in range(40):
        word = cursor.peek().keyword
        if word in _HARMLESS_OBJECTS and not (definer and cursor.peek(1).text == "@"):
            return [Harmless(None, word.lower())]
        # DEFINER = `user`@`host`, ALGORITHM = MERGE, SQL SECURITY INVOKER
        token = cursor.next()
        definer = definer or word == "DEFINER"
        if not (definer or word in _BEFORE_OBJECT or (token.kind == "sign" and token.text == "=")):
            break
    raise NotUnderstood("the kind of object")


def _rename(cursor: Cursor) -> list[Effect]:
    if cursor.at("USER"):
        return [Harmless(None, "user")]
    if not cursor.take("TABLE") and not cursor.take("TABLES"):
        raise NotUnderstood("RENAME")
    cursor.take("IF", "EXISTS")
    result: list[Effect] = []
    while True:
        old = cursor.table()
        if cursor.take("WAIT"):
            cursor.next()
        cursor.take("NOWAIT")
        cursor.expect("TO")
        result.extend(renamed(old, cursor.table()))
        if not cursor.take_sign(","):
            break
    if not cursor.at_end:
        raise NotUnderstood("the end of RENAME TABLE")
    return result


def _truncate(cursor: Cursor) -> list[Effect]:
    cursor.take("TABLE")
    return [Truncate(cursor.table())]


def _insert(kind: str) -> Callable[[Cursor], list[Effect]]:
    def parse(cursor: Cursor) -> list[Effect]:
        cursor.take_any("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
        return [RowStatement((cursor.table(),), kind)]

    return parse


def _update(cursor: Cursor) -> list[Effect]:
    cursor.take_any("LOW_PRIORITY", "IGNORE")
    return [RowStatement(_table_references(cursor, "SET"), "update")]


def _delete(cursor: Cursor) -> list[Effect]:
    cursor.take_any("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY")
    return [RowStatement(_table_references(cursor, "WHERE"), "delete")]


def _table_references(cursor: Cursor, until: str) -> tuple[TableId, ...]:
    """Every name that stands where a table may, up to a keyword; names in subqueries too.

    In a DELETE of several tables an alias may stand before FROM; it is taken for a table, which does no harm.
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
    """`table`, `database.table`, and both with `.*` behind (DELETE of several tables)."""
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


def _load(cursor: Cursor) -> list[Effect]:
    if cursor.at("INDEX"):
        return [Harmless(None, "load index")]
    if not cursor.take("DATA") and not cursor.take("XML"):
        raise NotUnderstood("LOAD")
    while not cursor.take("INTO", "TABLE"):
        if cursor.next().kind == "end":
            raise NotUnderstood("INTO TABLE")
    return [RowStatement((cursor.table(),), "load")]


def _with(cursor: Cursor) -> list[Effect]:
    """WITH name AS (…), … UPDATE | DELETE | …"""
    depth = 0
    while True:
        token = cursor.peek()
        if token.kind == "end":
            raise NotUnderstood("the statement behind WITH")
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.keyword in ("UPDATE", "DELETE", "INSERT", "REPLACE"):
            return _statement(cursor)
        cursor.next()


def _skip_to(cursor: Cursor, keyword: str) -> None:
    while not cursor.take(keyword):
        if cursor.next().kind == "end":
            raise NotUnderstood(keyword)


_HEADS: dict[str, Callable[[Cursor], list[Effect]]] = {
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": _alter,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "INSERT": _insert("insert"),
    "REPLACE": _insert("replace"),
    "UPDATE": _update,
    "DELETE": _delete,
    "LOAD": _load,
    "WITH": _with,
}
