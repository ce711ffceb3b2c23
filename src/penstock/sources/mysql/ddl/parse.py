"""Parses SQL text into a `Statement`: the heads of statements, CREATE TABLE, and statement-format DML.

There is no recursion over the statement's nesting, and the time is linear in its length. A statement with an
unknown head becomes `Unknown`. So statements of future servers are reported, and never skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl import column as columns
from penstock.sources.mysql.ddl import rows
from penstock.sources.mysql.ddl.alter import read_alter
from penstock.sources.mysql.ddl.definition import KeyKind
from penstock.sources.mysql.ddl.options import read_options
from penstock.sources.mysql.ddl.query import read_query
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.statement import (
    AddElement,
    AlterTable,
    CreateTable,
    DropDatabase,
    DropKey,
    DropTables,
    NoTable,
    RenameTables,
    RepairTables,
    SetDatabase,
    SetVariables,
    Statement,
    TruncateTable,
    Unknown,
    UnknownAction,
    UseDatabase,
)
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood, Token, cursor_over, keywords, names_in
from penstock.sources.mysql.ddl.types import charset_clause, collation_name, type_name

_HARMLESS_HEADS = keywords(
    """COMMIT FLUSH GET GRANT HELP INSTALL KILL LOCK PREPARE DEALLOCATE PURGE RELEASE RESET RESIGNAL RESTART
    REVOKE ROLLBACK SAVEPOINT SHOW SHUTDOWN SIGNAL STOP UNINSTALL UNLOCK XA CHANGE BACKUP CACHE"""
)
"""Statements with these first words change no row of an existing table. They are about accounts, plugins,
locks, transactions, replication, caches and the server itself. PREPARE only stores a text. The statement
that is executed later is logged with its own first word."""
_TABLE_UPKEEP = keywords("ANALYZE CHECK CHECKSUM OPTIMIZE")
"""Maintenance of tables. Rows are read, or rewritten unchanged. (`ANALYZE UPDATE …` of MariaDB runs the
UPDATE.)"""
_HARMLESS_OBJECTS = keywords(
    """EVENT FUNCTION INSTANCE LIBRARY LOGFILE PACKAGE PROCEDURE PROFILE RESOURCE ROLE
    SERVER SPATIAL TABLESPACE TRIGGER UNDO USER VIEW PREPARE"""
)
_ABOUT_TABLES = keywords("CREATE ALTER DROP RENAME TRUNCATE REPAIR")
_BEFORE_TABLES = keywords(
    """OR REPLACE TEMPORARY EXTERNAL ONLINE OFFLINE IGNORE UNIQUE FULLTEXT SPATIAL VECTOR LOCAL
    NO_WRITE_TO_BINLOG"""
)
_BEFORE_OBJECT = keywords(
    """OR REPLACE AGGREGATE SQL SECURITY INVOKER DEFINER ALGORITHM UNDEFINED MERGE TEMPTABLE JSON RELATIONAL
    DUALITY MATERIALIZED"""
)


def parse(sql: str, database: str, server: Server) -> Statement:
    """Parses a statement. `database` is the session's. Never raises."""
    cursor = cursor_over(sql, database, server)
    words: list[str] = []
    try:
        words = [word for word in (cursor.peek(index).keyword for index in range(3)) if word.isalpha()]
        return _statement(cursor, server)
    except NotUnderstood:
        tables = _only_about(cursor_over(sql, database, server))
        return Unknown(" ".join(words)[:60] or "(not SQL)", tables)


def _only_about(cursor: Cursor) -> tuple[TableId, ...] | None:
    """The names in a statement that is about the tables which it names, by its head. None: it may be about
    others, or its end is not certain."""
    try:
        head = cursor.next().keyword
        cursor.take_any(*_BEFORE_TABLES)
        if head not in _ABOUT_TABLES or not (
            cursor.take_any_of("TABLE", "TABLES", "SEQUENCE", "INDEX") or head == "TRUNCATE"
        ):
            return None
        tokens = cursor.rest()
    except NotUnderstood:
        return None
    return None if selects(tokens) else names_in(tokens, cursor) or None


def _statement(cursor: Cursor, server: Server) -> Statement:
    if cursor.at_end:
        return NoTable("no statement")
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
        "ALL",
    ):
        raise NotUnderstood("START")
    if head == "BEGIN" and cursor.peek(1).keyword != "NOT":  # BEGIN NOT ATOMIC of MariaDB contains statements
        return NoTable("begin")
    if head in _TABLE_UPKEEP and _upkeep(cursor):
        return NoTable(head.lower())
    if head in _HARMLESS_HEADS or head == "START":
        return NoTable(head.lower())
    if (read_rows := rows.HEADS.get(head)) is not None:
        cursor.next()
        return read_rows(cursor)
    if head == "WITH":
        return rows.read_with(cursor)
    parse_head = _HEADS.get(head)
    if parse_head is None:
        raise NotUnderstood("a statement that is not known")
    cursor.next()
    return parse_head(cursor, server)


def _upkeep(cursor: Cursor) -> bool:
    """`ANALYZE [LOCAL | NO_WRITE_TO_BINLOG] TABLE …`"""
    after = 2 if cursor.peek(1).keyword in ("LOCAL", "NO_WRITE_TO_BINLOG") else 1
    return cursor.peek(after).keyword in ("TABLE", "TABLES")


def _repair(cursor: Cursor, server: Server) -> Statement:
    cursor.take_any("LOCAL", "NO_WRITE_TO_BINLOG")
    if cursor.take("VIEW"):
        return NoTable("repair view")
    if not cursor.take_any_of("TABLE", "TABLES"):
        raise NotUnderstood("REPAIR TABLE")
    return RepairTables(tuple(cursor.tables()))


def _do(cursor: Cursor, server: Server) -> Statement:
    """Reads DO. Servers before 5.7 log `DO RELEASE_LOCK("name")` in any format. It calls no stored
    function."""
    if cursor.take("RELEASE_LOCK") and cursor.take_sign("("):
        cursor.string()
        if cursor.take_sign(")") and cursor.at_end:
            return NoTable("release lock")
    raise NotUnderstood("DO")


def _create(cursor: Cursor, server: Server) -> Statement:
    replaces = cursor.take("OR", "REPLACE")
    temporary = cursor.take("TEMPORARY")
    cursor.take_any("EXTERNAL")
    if cursor.take("TABLE"):
        return _create_table(cursor, server, or_replace=replaces, temporary=temporary)
    if cursor.take("SEQUENCE"):
        return _create_sequence(cursor, server, or_replace=replaces, temporary=temporary)
    if cursor.take_any_of("DATABASE", "SCHEMA"):
        if_not_exists = cursor.take("IF", "NOT", "EXISTS")
        made = _database(cursor, create=True)
        if not isinstance(made, SetDatabase):
            return made
        return replace(made, replaces=replaces, if_not_exists=if_not_exists)
    kind = _index_kind(cursor)
    if cursor.take("INDEX"):
        return _create_index(cursor, kind, replaces=replaces)
    return _other_object(cursor)


def _index_kind(cursor: Cursor) -> KeyKind:
    cursor.take_any("ONLINE", "OFFLINE")
    if cursor.take("UNIQUE"):
        return "unique"
    if cursor.take("FULLTEXT"):
        return "fulltext"
    if cursor.take("VECTOR"):
        return "vector"
    if cursor.at("SPATIAL", "INDEX") and cursor.take("SPATIAL"):
        return "spatial"
    return "index"


def _create_index(cursor: Cursor, kind: KeyKind, *, replaces: bool) -> AlterTable:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.identifier()
    while cursor.take_any_of("USING", "TYPE"):
        cursor.identifier()
    cursor.expect("ON")
    table = cursor.table()
    try:
        parts = columns.read_index_body(cursor)
    except NotUnderstood:
        return AlterTable(table, (UnknownAction("a CREATE INDEX that is not understood"),))
    added = AddElement(columns.IndexSpec(kind, name, parts, if_not_exists))
    return AlterTable(table, (DropKey(name, frozenset({"key"})), added) if replaces else (added,))


_OF_SEQUENCES = """CREATE TABLE d.s (next_not_cached_value {0} NOT NULL,
minimum_value {0} NOT NULL, maximum_value {0} NOT NULL, start_value {0} NOT NULL,
increment BIGINT(21) NOT NULL, cache_size BIGINT(21) UNSIGNED NOT NULL,
cycle_option TINYINT(1) UNSIGNED NOT NULL, cycle_count BIGINT(21) NOT NULL)"""
"""A sequence of MariaDB is a table with one row, as SHOW CREATE TABLE prints it."""
_CHANGED_SEQUENCE = "ALTER TABLE d.s " + ", ".join(
    f"MODIFY {name} {{0}} NOT NULL"
    for name in ("next_not_cached_value", "minimum_value", "maximum_value", "start_value")
)
_WIDTHS = {"tinyint": 5, "smallint": 7, "mediumint": 10, "int": 12, "bigint": 21}
"""How wide values are shown, by the type of a sequence."""


def _create_sequence(cursor: Cursor, server: Server, *, or_replace: bool, temporary: bool) -> Statement:
    cursor.take("IF", "NOT", "EXISTS")
    made = CreateTable(cursor.table(), or_replace=or_replace, temporary=temporary, sequence=True)
    try:
        table = parse(_OF_SEQUENCES.format(_type_of_sequence(cursor) or "BIGINT(21)"), "", server)
    except NotUnderstood:
        return replace(made, unknown="the type of a sequence")
    assert isinstance(table, CreateTable)
    return replace(made, elements=table.elements)


def _alter_sequence(cursor: Cursor, server: Server) -> Statement:
    if_exists = cursor.take("IF", "EXISTS")
    sequence = cursor.table()
    try:
        changed = _type_of_sequence(cursor)
    except NotUnderstood:
        return AlterTable(sequence, (UnknownAction("the type of a sequence"),))
    if changed is None:
        return NoTable("sequence")
    altered = parse(_CHANGED_SEQUENCE.format(changed), "", server)
    assert isinstance(altered, AlterTable)
    return replace(altered, table=sequence, if_exists=if_exists)


def _type_of_sequence(cursor: Cursor) -> str | None:
    """The type of its values. MariaDB 11.5 and newer let one choose it (`AS SMALLINT UNSIGNED`, also behind
    other options). None: the statement says nothing about it."""
    while not cursor.at_end:
        if cursor.next().keyword != "AS":
            continue
        name = type_name(cursor.next().keyword)
        if name not in _WIDTHS:
            raise NotUnderstood("the type of a sequence")
        return f"{name}({_WIDTHS[name]})" + (" UNSIGNED" if cursor.take("UNSIGNED") else "")
    return None


def _create_table(cursor: Cursor, server: Server, *, or_replace: bool, temporary: bool) -> Statement:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    table = cursor.table()
    made = CreateTable(table, if_not_exists=if_not_exists, or_replace=or_replace, temporary=temporary)
    if cursor.take("LIKE") or (cursor.at_sign("(") and cursor.peek(1).keyword == "LIKE"):
        if cursor.take_sign("("):
            cursor.expect("LIKE")
        return replace(made, like=cursor.table())
    if cursor.at_end:
        raise NotUnderstood("the definition of a table")
    try:
        tokens = cursor.rest()
    except NotUnderstood as error:  # rows may come with it, from a query that may call functions
        return replace(made, as_select=True, calls=True, unknown=f"expected: {error}")
    body = cursor.within(tokens)
    body.home = table.database
    try:
        return _definition(made, body, server)
    except NotUnderstood as error:
        return replace(made, as_select=selects(tokens), calls=True, unknown=f"expected: {error}")


def _definition(made: CreateTable, cursor: Cursor, server: Server) -> CreateTable:
    elements: list[columns.Element] = []
    if cursor.at_sign("(") and not _query_in_parentheses(cursor):
        cursor.next()
        while True:
            elements.append(columns.read_element(cursor, server))
            if not cursor.take_sign(","):
                break
        if not cursor.take_sign(")"):
            raise NotUnderstood(") at the end of the columns")
    options = read_options(cursor, lenient=True)
    partitioned = cursor.at("PARTITION", "BY")
    rest = cursor.rest()
    as_select = selects(rest)
    if rest and not partitioned and not as_select:
        raise NotUnderstood("the end of CREATE TABLE")
    if not elements and not as_select:
        raise NotUnderstood("columns")
    query = read_query(cursor.within(rest)) if as_select and not partitioned else None
    return replace(
        made,
        elements=tuple(elements),
        options=options,
        partitioned=partitioned,
        as_select=as_select,
        query=query,
        calls=any(token.kind == "sign" and token.text == "(" for token in rest),
    )


def _query_in_parentheses(cursor: Cursor) -> bool:
    distance = 1
    while cursor.peek(distance).text == "(" and cursor.peek(distance).kind == "sign" and distance < 16:
        distance += 1
    return (
        cursor.peek(distance).keyword in ("SELECT", "VALUES", "WITH")
        and cursor.peek(distance + 1).kind != "end"
    )


def selects(tokens: list[Token]) -> bool:
    """Whether a query follows. No part of a table's definition can contain one."""
    for token, following in pairwise([*tokens, Token("end", "", 0, 0)]):
        if token.keyword == "SELECT":
            return True
        if token.keyword == "VALUES" and (following.keyword == "ROW" or following.text == "("):
            return True
        if token.keyword == "TABLE" and following.kind in ("word", "name", "double"):
            return True
    return False


_DATABASE_OPTIONS = keywords("DEFAULT CHARACTER CHAR CHARSET COLLATE ENCRYPTION UPGRADE READ")


def _database(cursor: Cursor, *, create: bool) -> Statement:
    name = cursor.database
    following = cursor.peek(1)
    option = cursor.at_any(*_DATABASE_OPTIONS) or (
        cursor.at("COMMENT") and (following.kind in ("string", "double") or following.text == "=")
    )
    if create or not option:
        name = cursor.identifier()
    charset = collation = None
    while not cursor.at_end:
        cursor.take("DEFAULT")
        if (found := charset_clause(cursor)) is not None:
            charset = found
        elif cursor.take("COLLATE"):
            collation = collation_name(cursor)
        elif cursor.take_any_of("ENCRYPTION", "COMMENT") or cursor.take("READ", "ONLY"):
            cursor.take_sign("=")
            cursor.next()
        elif cursor.take("UPGRADE"):
            return NoTable("upgrade data directory name")
        else:
            raise NotUnderstood("an option of a database")
    if not name:
        raise NotUnderstood("a database")
    return SetDatabase(name.lower() if cursor.lower_case else name, charset, collation, create)


def _drop(cursor: Cursor, server: Server) -> Statement:
    temporary = cursor.take("TEMPORARY")
    if (kind := cursor.take_any_of("TABLE", "TABLES", "SEQUENCE")) is not None:
        if_exists = cursor.take("IF", "EXISTS")
        tables = cursor.tables()
        cursor.take_any("RESTRICT", "CASCADE")
        if not cursor.at_end and not cursor.at_any("WAIT", "NOWAIT"):
            raise NotUnderstood("the end of DROP TABLE")
        return DropTables(tuple(tables), if_exists, temporary, sequences=kind == "SEQUENCE")
    if cursor.take_any_of("DATABASE", "SCHEMA"):
        cursor.take("IF", "EXISTS")
        name = cursor.identifier()
        return DropDatabase(name.lower() if cursor.lower_case else name)
    cursor.take_any("ONLINE", "OFFLINE")
    if cursor.take("INDEX"):
        cursor.take("IF", "EXISTS")
        name = cursor.identifier()
        cursor.expect("ON")
        return AlterTable(cursor.table(), (DropKey(name, frozenset({"key"})),))
    return _other_object(cursor)


def _alter(cursor: Cursor, server: Server) -> Statement:
    cursor.take_any("ONLINE", "OFFLINE")
    ignore = cursor.take("IGNORE")
    if cursor.take("TABLE"):
        if_exists = cursor.take("IF", "EXISTS")
        table = cursor.table()
        if cursor.take("WAIT"):
            cursor.next()
        cursor.take("NOWAIT")
        try:
            return replace(read_alter(cursor, table, server, ignore=ignore), if_exists=if_exists)
        except NotUnderstood:
            names = _only_about(cursor_over(cursor.sql, cursor.database, server)) or ()
            return AlterTable(table, (UnknownAction("an ALTER TABLE that is not understood", names),))
    if cursor.take("SEQUENCE"):
        return _alter_sequence(cursor, server)
    if cursor.take_any_of("DATABASE", "SCHEMA"):
        return _database(cursor, create=False)
    return _other_object(cursor)


def _other_object(cursor: Cursor) -> Statement:
    """Reads CREATE, ALTER and DROP of objects that have no captured rows."""
    definer = False
    for _ in range(40):
        word = cursor.peek().keyword
        if word in _HARMLESS_OBJECTS and not (definer and cursor.peek(1).text == "@"):
            return NoTable(word.lower())
        # DEFINER = `user`@`host`, ALGORITHM = MERGE, SQL SECURITY INVOKER
        token = cursor.next()
        definer = definer or word == "DEFINER"
        if not (definer or word in _BEFORE_OBJECT or (token.kind == "sign" and token.text == "=")):
            break
    raise NotUnderstood("the kind of object")


def _rename(cursor: Cursor, server: Server) -> Statement:
    if cursor.at("USER"):
        return NoTable("user")
    if not cursor.take_any_of("TABLE", "TABLES"):
        raise NotUnderstood("RENAME")
    if_exists = cursor.take("IF", "EXISTS")
    pairs: list[tuple[TableId, TableId]] = []
    while True:
        old = cursor.table()
        if cursor.take("WAIT"):
            cursor.next()
        cursor.take("NOWAIT")
        cursor.expect("TO")
        pairs.append((old, cursor.table()))
        if not cursor.take_sign(","):
            break
    if not cursor.at_end:
        raise NotUnderstood("the end of RENAME TABLE")
    return RenameTables(tuple(pairs), if_exists)


def _truncate(cursor: Cursor, server: Server) -> Statement:
    cursor.take("TABLE")
    return TruncateTable(cursor.table())


def _use(cursor: Cursor, server: Server) -> Statement:
    name = cursor.identifier()
    return UseDatabase(name.lower() if cursor.lower_case else name)


def _set(cursor: Cursor, server: Server) -> Statement:
    """Reads SET name = value, …. Returns only plain names with constants, and whether another value may come
    from a function."""
    if cursor.at_any("PASSWORD", "ROLE", "RESOURCE", "TRANSACTION") or cursor.at("DEFAULT", "ROLE"):
        return NoTable("set")
    values: list[tuple[str, str | None]] = []
    calls = False
    try:
        if cursor.take("NAMES") or charset_clause(cursor) is not None:
            return NoTable("set")
        while not cursor.at_end:
            tokens = cursor.item()
            calls = calls or any(token.kind == "sign" and token.text == "(" for token in tokens)
            if (value := _assignment(tokens)) is not None:
                values.append(value)
            if not cursor.take_sign(","):
                break
    except NotUnderstood:
        calls = True
    return SetVariables(tuple(values), calls)


def _assignment(tokens: list[Token]) -> tuple[str, str | None] | None:
    words = [token for token in tokens if not (token.kind == "sign" and token.text in "@:.")]
    if (
        any(token.kind == "sign" and token.text == "@" for token in tokens[:1])
        and tokens[1:2]
        and tokens[1].text != "@"
    ):
        return None  # a variable of the session
    while words and words[0].keyword in ("GLOBAL", "SESSION", "LOCAL", "PERSIST", "PERSIST_ONLY"):
        if words[0].keyword != "SESSION" and words[0].keyword != "LOCAL":
            return None
        words = words[1:]
    if len(words) < 3 or words[1].text != "=":
        return None
    value = words[2].value if words[2].kind in ("string", "double") else words[2].text
    return words[0].text.lower(), value if len(words) == 3 and words[2].kind != "sign" else None


_HEADS: dict[str, Callable[[Cursor, Server], Statement]] = {
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": _alter,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "USE": _use,
    "SET": _set,
    "REPAIR": _repair,
    "DO": _do,
}
