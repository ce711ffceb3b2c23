"""The actions of ALTER TABLE, one by one."""

from __future__ import annotations

from collections.abc import Callable

from penstock.model.effect import AddCascade, AddColumns, AddedColumn, Effect, Harmless, Unsupported
from penstock.model.schema import TableId
from penstock.sources.mysql.column import added_column, cascades
from penstock.sources.mysql.tokens import Cursor, NotUnderstood, Token, keywords

_ENGINES_THAT_KEEP_ROWS = keywords("INNODB MYISAM MEMORY HEAP ARIA ROCKSDB ARCHIVE NDB NDBCLUSTER TOKUDB")
_OPTIONS = keywords(
    """AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHARSET CHECKSUM TABLE_CHECKSUM COLLATE COMMENT
    COMPRESSION CONNECTION DELAY_KEY_WRITE ENCRYPTION ENCRYPTED ENCRYPTION_KEY_ID ENGINE
    ENGINE_ATTRIBUTE INSERT_METHOD
    KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD
    ROW_FORMAT SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE STATS_AUTO_RECALC STATS_PERSISTENT
    STATS_SAMPLE_PAGES STORAGE TABLESPACE TRANSACTIONAL TYPE IETF_QUOTES"""
)
_HARMLESS_STARTS = keywords(
    "ALGORITHM LOCK FORCE WITH WITHOUT ENABLE DISABLE ORDER SECONDARY_LOAD SECONDARY_UNLOAD"
)
_ON_PARTITIONS = {
    **dict.fromkeys(keywords("ANALYZE CHECK OPTIMIZE REBUILD REPAIR COALESCE REORGANIZE ADD"), ""),
    "DROP": "drops partitions",
    "TRUNCATE": "empties partitions",
    "DISCARD": "discards a tablespace",
    "IMPORT": "imports a tablespace",
}
"""Actions on PARTITION and, if rows go away, how. Their lists hold commas, and nothing follows."""
_AFTER_ORDER = keywords("ADD DROP ALTER RENAME CONVERT CHANGE MODIFY FORCE ENGINE ALGORITHM LOCK") | _OPTIONS
_UNSUPPORTED_STARTS = {
    "CHANGE": "changes a column",
    "MODIFY": "changes a column",
    "DISCARD": "discards its tablespace",
    "IMPORT": "imports its tablespace",
    "UNION": "changes the tables under a MERGE table",
}


def alter_table(cursor: Cursor, table: TableId) -> list[Effect]:
    """The effects of everything that follows `ALTER TABLE name`. Added columns come as one `AddColumns`."""
    effects: list[Effect] = []
    ordered = False
    while not cursor.at_end:
        if cursor.peek(1).keyword == "PARTITION" and cursor.at_any(*_ON_PARTITIONS):
            what = _ON_PARTITIONS[cursor.peek().keyword]
            effects.append(Unsupported(table, what) if what else Harmless(table, "rearranges partitions"))
            break
        ordered = ordered or cursor.at("ORDER", "BY")
        tokens = cursor.item()
        if ordered and all(token.kind != "word" or token.keyword not in _AFTER_ORDER for token in tokens[:1]):
            cursor.take_sign(",")
            continue
        action, partitioning = _cut_partitioning(tokens)
        if partitioning:
            effects.append(Harmless(table, "partitions the table anew"))
        if action:
            effects.extend(_action(cursor, action, table))
        if not cursor.take_sign(",") and not cursor.at_end:
            effects.append(Unsupported(table, "an ALTER TABLE that is not understood"))
            break
    columns = [column for effect in effects if isinstance(effect, AddColumns) for column in effect.columns]
    rest = [effect for effect in effects if not isinstance(effect, AddColumns)]
    added: list[Effect] = [AddColumns(table, tuple(columns))] if columns else []
    return added + rest or [Harmless(table, "ALTER TABLE without an action")]


def _cut_partitioning(tokens: list[Token]) -> tuple[list[Token], bool]:
    """PARTITION BY … and REMOVE PARTITIONING follow the last action without a comma."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        following = tokens[index + 1].keyword if index + 1 < len(tokens) else ""
        pair = (token.keyword, following)
        if depth == 0 and pair in (("PARTITION", "BY"), ("REMOVE", "PARTITIONING")):
            return tokens[:index], True
    return tokens, False


def _action(whole: Cursor, tokens: list[Token], table: TableId) -> list[Effect]:
    cursor = Cursor(whole.sql, iter(tokens), database=whole.database, lower_case=whole.lower_case)
    head = cursor.peek().keyword
    try:
        if head in _ACTIONS:
            cursor.next()
            return _ACTIONS[head](cursor, table)
        if head in _UNSUPPORTED_STARTS:
            return [Unsupported(table, _UNSUPPORTED_STARTS[head])]
        if head in _HARMLESS_STARTS:
            return [Harmless(table, head.lower())]
        return _options(cursor, table)
    except NotUnderstood:
        return [Unsupported(table, f"an ALTER TABLE action that is not understood ({head or 'no keyword'})")]


def _add(cursor: Cursor, table: TableId) -> list[Effect]:
    if cursor.at("PERIOD", "FOR") or cursor.at("SYSTEM", "VERSIONING"):
        return [Unsupported(table, "adds system versioning")]
    if (constraint := _add_constraint(cursor, table)) is not None:
        return constraint
    cursor.take("COLUMN")
    cursor.take("IF", "NOT", "EXISTS")
    if not cursor.take_sign("("):
        return _added(table, [added_column(cursor)])
    effects: list[Effect] = []
    columns: list[tuple[AddedColumn, bool]] = []
    while True:
        inner = Cursor(cursor.sql, iter(cursor.item()), database=cursor.database)
        constraint = _add_constraint(inner, table)
        if constraint is None:
            columns.append(added_column(inner))
        else:
            effects.extend(constraint)
        if not cursor.take_sign(","):
            break
    if not cursor.take_sign(")") or not cursor.at_end:
        raise NotUnderstood("the end of the column list")
    return _added(table, columns) + effects


def _add_constraint(cursor: Cursor, table: TableId) -> list[Effect] | None:
    """None: what comes is no index or constraint, so a column."""
    if cursor.take("CONSTRAINT") and not cursor.at_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        cursor.identifier()
    if cursor.at("PRIMARY"):
        return [Unsupported(table, "adds a primary key")]
    if cursor.at("UNIQUE"):
        return [Harmless(table, "adds a unique index", key_may_change=True)]
    if cursor.at("FOREIGN"):
        return [AddCascade(table) if cascades(cursor.item()) else Harmless(table, "adds a foreign key")]
    if cursor.at_any("INDEX", "KEY", "FULLTEXT", "SPATIAL", "VECTOR") and not _is_vector_column(cursor):
        return [Harmless(table, "adds an index")]
    if cursor.at("CHECK"):
        return [Harmless(table, "adds a check")]
    return None


def _is_vector_column(cursor: Cursor) -> bool:
    return cursor.at("VECTOR") and cursor.peek(1).keyword not in ("INDEX", "KEY")


def _added(table: TableId, columns: list[tuple[AddedColumn, bool]]) -> list[Effect]:
    effects: list[Effect] = []
    if columns:
        effects.append(AddColumns(table, tuple(column for column, _ in columns)))
    for column, unique in columns:
        if column.needs_rows:
            effects.append(
                Unsupported(
                    table, f"adds column {column.name}, which {column.needs_rows}: needs a new snapshot"
                )
            )
        if column.cascades:
            effects.append(AddCascade(table))
        if unique:
            effects.append(Harmless(table, "adds a unique index", key_may_change=True))
    return effects


def _drop(cursor: Cursor, table: TableId) -> list[Effect]:
    if cursor.at("PRIMARY"):
        return [Unsupported(table, "drops the primary key")]
    if cursor.at("SYSTEM", "VERSIONING") or cursor.at("PERIOD", "FOR"):
        return [Unsupported(table, "drops system versioning")]
    if cursor.take("FOREIGN") or cursor.take("CHECK"):
        return [Harmless(table, "drops a constraint")]
    if cursor.take("INDEX") or cursor.take("KEY") or cursor.take("CONSTRAINT"):
        cursor.take("IF", "EXISTS")
        return drop_index(cursor.identifier(), table)
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    return [Unsupported(table, f"drops column {cursor.identifier()}")]


def drop_index(name: str, table: TableId) -> list[Effect]:
    if name.upper() == "PRIMARY":
        return [Unsupported(table, "drops the primary key")]
    return [Harmless(table, "drops an index", key_may_change=True)]


def _alter(cursor: Cursor, table: TableId) -> list[Effect]:
    if cursor.at_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        return [Harmless(table, "alters an index or check")]
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    cursor.identifier()
    if cursor.at_any("SET", "DROP"):
        return [Harmless(table, "alters a column's default or visibility")]
    raise NotUnderstood("ALTER COLUMN")


def _rename(cursor: Cursor, table: TableId) -> list[Effect]:
    if cursor.at_any("INDEX", "KEY"):
        return [Harmless(table, "renames an index")]
    if cursor.take("COLUMN"):
        return [Unsupported(table, f"renames column {cursor.identifier()}")]
    if not cursor.take("TO") and not cursor.take("AS"):
        cursor.take_sign("=")
    return renamed(table, cursor.table())


def renamed(old: TableId, new: TableId) -> list[Effect]:
    return [
        Unsupported(old, f"is renamed to {new}"),
        Unsupported(new, f"is another table now, formerly {old}"),
    ]


def _convert(cursor: Cursor, table: TableId) -> list[Effect]:
    if cursor.at("TO"):
        return [Unsupported(table, "converts the character set")]
    if cursor.take("TABLE"):
        return [
            Unsupported(table, "takes a table as a partition"),
            Unsupported(cursor.table(), "becomes a partition"),
        ]
    if cursor.take("PARTITION"):
        cursor.identifier()
        cursor.expect("TO", "TABLE")
        return [
            Unsupported(table, "gives away a partition"),
            Unsupported(cursor.table(), "was a partition"),
        ]
    raise NotUnderstood("CONVERT")


def _exchange(cursor: Cursor, table: TableId) -> list[Effect]:
    cursor.expect("PARTITION")
    cursor.identifier()
    cursor.expect("WITH", "TABLE")
    other = cursor.table()
    return [
        Unsupported(table, f"exchanges a partition with {other}"),
        Unsupported(other, f"exchanges its rows with a partition of {table}"),
    ]


def _options(cursor: Cursor, table: TableId) -> list[Effect]:
    """Table options, side by side without commas."""
    while not cursor.at_end:
        cursor.take("DEFAULT")
        if cursor.take("UNION"):
            return [Unsupported(table, _UNSUPPORTED_STARTS["UNION"])]
        name = cursor.next().keyword
        if name in ("CHARACTER", "DATA", "INDEX", "START"):
            cursor.next()  # SET, DIRECTORY, DIRECTORY, TRANSACTION
        elif name not in _OPTIONS:
            raise NotUnderstood("a table option")
        if name == "START":
            continue
        cursor.take_sign("=")
        value = cursor.next()
        if value.kind == "end":
            raise NotUnderstood("the value of a table option")
        if name in ("ENGINE", "TYPE") and value.text.upper() not in _ENGINES_THAT_KEEP_ROWS:
            return [Unsupported(table, f"moves to the engine {value.text}")]
    return [Harmless(table, "changes table options")]


_ACTIONS: dict[str, Callable[[Cursor, TableId], list[Effect]]] = {
    "ADD": _add,
    "DROP": _drop,
    "ALTER": _alter,
    "RENAME": _rename,
    "CONVERT": _convert,
    "EXCHANGE": _exchange,
}
