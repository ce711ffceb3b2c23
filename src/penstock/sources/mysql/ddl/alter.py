"""The actions of ALTER TABLE, one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl import column as columns
from penstock.sources.mysql.ddl.default import read_default
from penstock.sources.mysql.ddl.options import KNOWN as _OPTIONS
from penstock.sources.mysql.ddl.options import read_options
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.statement import (
    Action,
    AddElement,
    After,
    AlterColumn,
    AlterTable,
    ChangeColumn,
    ConvertCharset,
    DropColumn,
    DropKey,
    ExchangeRows,
    First,
    LosesRows,
    NoChange,
    Partitioning,
    Position,
    RenameColumn,
    RenameKey,
    RenameTo,
    SetOptions,
    UnknownAction,
    Versioning,
)
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood, Token, keywords, names_in
from penstock.sources.mysql.ddl.types import charset_clause, collation_name

_NO_CHANGE = keywords(
    "ALGORITHM LOCK FORCE WITH WITHOUT ENABLE DISABLE ORDER SECONDARY_LOAD SECONDARY_UNLOAD"
)
_ON_PARTITIONS = {
    **dict.fromkeys(keywords("ANALYZE CHECK OPTIMIZE REBUILD REPAIR COALESCE REORGANIZE ADD"), ""),
    "DROP": "drops partitions",
    "TRUNCATE": "empties partitions",
    "DISCARD": "discards a tablespace",
    "IMPORT": "imports a tablespace",
}
"""Actions on partitions, each with how it deletes rows, if it does. Their lists contain commas, and no other
action follows them."""
_AFTER_ORDER = keywords("ADD DROP ALTER RENAME CONVERT CHANGE MODIFY FORCE ENGINE ALGORITHM LOCK") | _OPTIONS
_ON_COLUMNS = keywords("ADD CHANGE MODIFY ALTER")
"""Actions about columns and keys of the table itself."""
_LOSES_ROWS = {"DISCARD": "discards its tablespace", "IMPORT": "imports its tablespace"}


def read_alter(cursor: Cursor, table: TableId, server: Server, *, ignore: bool) -> AlterTable:
    """Reads everything after `ALTER TABLE name`. An unknown action becomes an `UnknownAction`."""
    cursor.home = table.database
    actions: list[Action] = []
    ordered = False
    while not cursor.at_end:
        if cursor.peek(1).keyword == "PARTITION" and cursor.at_any(*_ON_PARTITIONS):
            what = _ON_PARTITIONS[cursor.peek().keyword]
            if cursor.at("REORGANIZE") and _lists_values(cursor.rest()):
                what = "reorganizes a list of partitions, and rows whose value is in none of them go"
            actions.append(LosesRows(what) if what else NoChange("rearranges partitions"))
            break
        ordered = ordered or cursor.at("ORDER", "BY")
        tokens = cursor.item()
        if ordered and all(token.kind != "word" or token.keyword not in _AFTER_ORDER for token in tokens[:1]):
            cursor.take_sign(",")
            continue
        action, partitioning = _cut_partitioning(tokens)
        if action:
            actions.extend(_actions(cursor.within(action), server, action))
        if partitioning is not None:
            actions.append(Partitioning(partitioning))
        if not cursor.take_sign(",") and not cursor.at_end:
            names = names_in(cursor.rest(), cursor)
            actions.append(UnknownAction("an ALTER TABLE that is not understood", names))
            break
    return AlterTable(table, tuple(actions), ignore=ignore)


def _lists_values(tokens: list[Token]) -> bool:
    """Whether a partition has `VALUES IN (…)`. The server refuses partitions by range without their range."""
    return any(one.keyword == "VALUES" and other.keyword == "IN" for one, other in pairwise(tokens))


def _cut_partitioning(tokens: list[Token]) -> tuple[list[Token], bool | None]:
    """Splits off PARTITION BY … or REMOVE PARTITIONING, which follow the last action without a comma."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        following = tokens[index + 1].keyword if index + 1 < len(tokens) else ""
        if depth == 0 and token.keyword == "PARTITION" and following == "BY":
            return tokens[:index], True
        if depth == 0 and token.keyword == "REMOVE" and following == "PARTITIONING":
            return tokens[:index], False
    return tokens, None


def _actions(cursor: Cursor, server: Server, tokens: list[Token]) -> list[Action]:
    head = cursor.peek().keyword
    try:
        if head == "ADD":
            cursor.next()
            return _add(cursor, server)
        if head in _ACTIONS:
            cursor.next()
            action = _ACTIONS[head](cursor, server)
        elif head in _LOSES_ROWS:
            return [LosesRows(_LOSES_ROWS[head])]
        elif head in _NO_CHANGE:
            return [NoChange(head.lower())]
        else:
            return _options(cursor)
        if not cursor.at_end:
            raise NotUnderstood("the end of an action")
        return [action]
    except NotUnderstood:
        names = () if head in _ON_COLUMNS else names_in(tokens, cursor)
        what = f"an ALTER TABLE action that is not understood ({head or 'no keyword'})"
        return [UnknownAction(what, names)]


def _add(cursor: Cursor, server: Server) -> list[Action]:
    if cursor.take("SYSTEM", "VERSIONING"):
        return [Versioning(True)]
    constraint = columns.read_constraint(cursor)
    if constraint is not None:
        if not cursor.at_end:
            raise NotUnderstood("the end of an index")
        return [AddElement(constraint)]
    cursor.take("COLUMN")
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    if not cursor.take_sign("("):
        spec = columns.read_column(cursor, server)
        action = AddElement(spec, read_position(cursor), if_not_exists)
        if not cursor.at_end:
            raise NotUnderstood("the end of a column")
        return [action]
    added: list[Action] = []
    while True:
        inner = cursor.within(cursor.item())
        added.append(AddElement(columns.read_element(inner, server), None, if_not_exists))
        if not inner.at_end:
            raise NotUnderstood("the end of a column")
        if not cursor.take_sign(","):
            break
    if not cursor.take_sign(")") or not cursor.at_end:
        raise NotUnderstood("the end of the column list")
    return added


def read_position(cursor: Cursor) -> Position:
    if cursor.take("FIRST"):
        return First()
    if cursor.take("AFTER"):
        return After(cursor.column_name())
    return None


def _change(cursor: Cursor, server: Server) -> Action:
    cursor.take("COLUMN")
    if_exists = cursor.take("IF", "EXISTS")
    old = cursor.column_name()
    spec = columns.read_column(cursor, server)
    return ChangeColumn(old, spec, read_position(cursor), if_exists)


def _modify(cursor: Cursor, server: Server) -> Action:
    cursor.take("COLUMN")
    if_exists = cursor.take("IF", "EXISTS")
    spec = columns.read_column(cursor, server)
    return ChangeColumn(spec.name, spec, read_position(cursor), if_exists)


def _drop(cursor: Cursor, server: Server) -> Action:
    if cursor.take("PRIMARY", "KEY"):
        return DropKey("PRIMARY", frozenset({"key"}))
    if cursor.take("SYSTEM", "VERSIONING"):
        return Versioning(False)
    if cursor.take("PERIOD", "FOR"):
        cursor.rest()
        return NoChange("drops a period")
    for words, kinds in (
        (("FOREIGN", "KEY"), {"foreign"}),
        (("CHECK",), {"check"}),
        (("INDEX",), {"key"}),
        (("KEY",), {"key"}),
        (("CONSTRAINT",), {"key", "foreign", "check"}),
    ):
        if cursor.take(*words):
            cursor.take("IF", "EXISTS")
            return DropKey(cursor.identifier(), frozenset(kinds))
    cursor.take("COLUMN")
    if_exists = cursor.take("IF", "EXISTS")
    name = cursor.column_name()
    cursor.take_any("RESTRICT", "CASCADE")
    return DropColumn(name, if_exists)


def _alter(cursor: Cursor, server: Server) -> Action:
    if cursor.at_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        cursor.rest()
        return NoChange("alters an index or check")
    cursor.take("COLUMN")
    if_exists = cursor.take("IF", "EXISTS")
    name = cursor.column_name()
    if cursor.take("DROP", "DEFAULT"):
        return AlterColumn(name, if_exists=if_exists)
    cursor.expect("SET")
    if cursor.take("DEFAULT"):
        return AlterColumn(name, default=read_default(cursor), if_exists=if_exists)
    if cursor.take("VISIBLE"):
        return AlterColumn(name, invisible=False)
    cursor.expect("INVISIBLE")
    return AlterColumn(name, invisible=True)


def _rename(cursor: Cursor, server: Server) -> Action:
    if cursor.take("COLUMN"):
        if_exists = cursor.take("IF", "EXISTS")
        old = cursor.column_name()
        cursor.expect("TO")
        return RenameColumn(old, cursor.identifier(), if_exists)
    if cursor.take_any_of("INDEX", "KEY"):
        cursor.take("IF", "EXISTS")
        old = cursor.identifier()
        cursor.expect("TO")
        return RenameKey(old, cursor.identifier())
    if not cursor.take("TO") and not cursor.take("AS"):
        cursor.take_sign("=")
    return RenameTo(cursor.table())


def _convert(cursor: Cursor, server: Server) -> Action:
    if cursor.take("TO"):
        charset = charset_clause(cursor)
        if charset is None:
            raise NotUnderstood("CHARACTER SET")
        collation = collation_name(cursor) if cursor.take("COLLATE") else None
        return ConvertCharset(charset, collation)
    if cursor.take("TABLE"):
        other = cursor.table()
        cursor.rest()
        return ExchangeRows(other, "takes another table as a partition", drops=True)
    cursor.expect("PARTITION")
    cursor.identifier()
    cursor.expect("TO", "TABLE")
    return ExchangeRows(cursor.table(), "gives away a partition", creates=True)


def _exchange(cursor: Cursor, server: Server) -> Action:
    cursor.expect("PARTITION")
    cursor.identifier()
    cursor.expect("WITH", "TABLE")
    other = cursor.table()
    cursor.rest()
    return ExchangeRows(other, "exchanges a partition with another table")


def _options(cursor: Cursor) -> list[Action]:
    """Reads table options that follow each other without commas."""
    options = read_options(cursor, lenient=False)
    if not cursor.at_end:
        raise NotUnderstood("a table option")
    return [SetOptions(options)]


_ACTIONS: dict[str, Callable[[Cursor, Server], Action]] = {
    "CHANGE": _change,
    "MODIFY": _modify,
    "DROP": _drop,
    "ALTER": _alter,
    "RENAME": _rename,
    "CONVERT": _convert,
    "EXCHANGE": _exchange,
}
