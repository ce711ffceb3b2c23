"""Reads table options, with or without commas, after CREATE TABLE (…) or in ALTER TABLE."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood, keywords
from penstock.sources.mysql.ddl.types import charset_clause, collation_name

KNOWN = keywords(
    """AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM COMMENT COMPRESSION CONNECTION
    DELAY_KEY_WRITE ENCRYPTION ENCRYPTED ENCRYPTION_KEY_ID ENGINE ENGINE_ATTRIBUTE INSERT_METHOD
    KEY_BLOCK_SIZE
    MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD ROW_FORMAT
    SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES STORAGE
    TABLESPACE TRANSACTIONAL TYPE IETF_QUOTES SEQUENCE NODEGROUP"""
)
ENGINES_WITH_ROWS = keywords("INNODB MYISAM MEMORY HEAP ARIA ROCKSDB ARCHIVE NDB NDBCLUSTER TOKUDB")
"""Engines that have all rows of a table after it was changed to them."""
SHOWN = {"ENGINE", "COMMENT", "ROW_FORMAT", "AUTO_INCREMENT", "KEY_BLOCK_SIZE"}


@dataclass(frozen=True)
class TableOptions:
    """`charset` and `collation` as written, in lower case (`default`: the database's). `union`: the tables of
    a MERGE table; None: the statement does not say."""

    charset: str | None = None
    collation: str | None = None
    others: tuple[tuple[str, str], ...] = ()
    union: tuple[TableId, ...] | None = None
    versioned: bool = False

    def get(self, name: str) -> str | None:
        return next((value for key, value in reversed(self.others) if key == name), None)


def read_options(cursor: Cursor, *, lenient: bool) -> TableOptions:
    """Reads options. `lenient`: also unknown ones of the form `name = value`."""
    charset = collation = None
    others: list[tuple[str, str]] = []
    union: tuple[TableId, ...] | None = None
    versioned = False
    while not cursor.at_end:
        cursor.take_sign(",")
        cursor.take("DEFAULT")
        if (name := charset_clause(cursor)) is not None:
            charset, collation = name, None
        elif cursor.take("COLLATE"):
            collation = collation_name(cursor)
        elif cursor.take("UNION"):
            cursor.take_sign("=")
            union = _union(cursor)
        elif cursor.take("DATA", "DIRECTORY") or cursor.take("INDEX", "DIRECTORY"):
            cursor.take_sign("=")
            cursor.string()
        elif cursor.take("WITH", "SYSTEM", "VERSIONING"):
            versioned = True
        elif cursor.take("START", "TRANSACTION"):
            pass
        elif cursor.at_any(*KNOWN) or (lenient and _is_assignment(cursor)):
            others.append(_option(cursor))
        else:
            break
    return TableOptions(charset, collation, tuple(others), union, versioned)


def _union(cursor: Cursor) -> tuple[TableId, ...]:
    """`(table, …)`, which may be empty."""
    tables: list[TableId] = []
    if not cursor.take_sign("("):
        raise NotUnderstood("(")
    while not cursor.take_sign(")"):
        tables.append(cursor.table())
        cursor.take_sign(",")
    return tuple(tables)


def _is_assignment(cursor: Cursor) -> bool:
    return (
        cursor.peek().kind in ("word", "name")
        and cursor.peek(1).text == "="
        and cursor.peek(1).kind == "sign"
    )


def _option(cursor: Cursor) -> tuple[str, str]:
    name = cursor.next().text.upper()
    cursor.take_sign("=")
    cursor.take_sign("-")
    value = cursor.next()
    if value.kind == "end" or (value.kind == "sign" and value.text in "(),"):
        raise NotUnderstood("the value of a table option")
    if value.kind in ("string", "double"):
        text = value.value
    elif name == "STORAGE" or value.kind != "word":
        text = value.text
    else:
        text = value.text
        while (
            cursor.peek().kind == "sign"
            and cursor.peek().text == "."
            and cursor.peek().start == cursor.last_end
        ):
            cursor.next()
            text += "." + cursor.next().text
    if name == "TYPE":
        name = "ENGINE"
    return name, text
