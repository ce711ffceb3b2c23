"""Names of tables as text: `database.table`, where people write them and where they are stored.

A name is split at its first dot, so the table's name may contain dots. A database's name that contains dots
is written in backticks, as in SQL: `` `a.b`.t `` is the table `t` of the database `a.b`, and `a.b.t` the
table `b.t` of the database `a`. Either part may be in backticks. A backtick in it is then written twice.
`core/src/table_name.rs` writes the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUOTED = r"`((?:[^`]|``)+)`"
_QUOTED_DATABASE = re.compile(_QUOTED + r"\.(.*)", re.DOTALL)
_QUOTED_TABLE = re.compile(_QUOTED)


@dataclass(frozen=True)
class NamePart:
    """The database or the table in a name. `quoted`: it was in backticks, so `*` and `?` in it are no
    wildcards."""

    text: str
    quoted: bool = False


def split_name(text: str) -> tuple[NamePart, NamePart]:
    """Database and table of a name or pattern; a part that is missing is empty. Backticks that are not
    closed, or not followed by a dot, are characters of the name."""
    if match := _QUOTED_DATABASE.fullmatch(text):
        database, table = NamePart(match[1].replace("``", "`"), quoted=True), match[2]
    else:
        before, _, table = text.partition(".")
        database = NamePart(before)
    if match := _QUOTED_TABLE.fullmatch(table):
        return database, NamePart(match[1].replace("``", "`"), quoted=True)
    return database, NamePart(table)


def join_name(database: str, table: str) -> str:
    """Returns the text of a name, which `split_name` splits into the same parts. A part is quoted only if it
    would be misread otherwise."""
    before = quote_part(database) if "." in database or database.startswith("`") else database
    return f"{before}.{quote_part(table) if table.startswith('`') else table}"


def index_keys(database: str, table: str) -> tuple[str, ...]:
    """The keys that an index entry may have for a table: today's, and the one that was written before names
    were quoted, where that is another one."""
    plain = f"{database}.{table}"
    if "." in table:
        last = quote_part(table) if table.startswith("`") else table
        return f"{quote_part(database)}.{last}", plain
    now = join_name(database, table)
    return (now,) if now == plain else (now, plain)


def index_names(key: str) -> list[tuple[str, str]]:
    """The tables, as (database, table), that a key of an index entry may mean: one, or every way to split a
    key with several dots that was written before names were quoted."""
    database, table = split_name(key)
    if database.quoted or key.count(".") == 1:
        return [(database.text, table.text)]
    dots = [place for place, character in enumerate(key) if character == "."]
    found = [(key[:dot], key[dot + 1 :]) for dot in dots]
    return [pair for pair in found if all(pair)] or found


def quote_part(identifier: str) -> str:
    """Returns a part of a name in backticks. In it, `*` and `?` are no wildcards."""
    return "`" + identifier.replace("`", "``") + "`"
