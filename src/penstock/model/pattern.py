"""Patterns of table names: `database.table`, with `*` and `?` as wildcards in either part.

They match every character, dots too. In backticks (`model.name`) a part has no wildcards: `` `a.b`.* `` means
all tables of the database `a.b`, `a.b*` those of the database `a` whose names begin with `b`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from penstock.model.name import NamePart, quote_part, split_name
from penstock.model.schema import TableId

_WILDCARDS = frozenset("*?")
_ANY, _ONE = "any characters", "one character"


@dataclass(frozen=True)
class TablePattern:
    """A pattern of table names. `fold_case`: letter case is ignored."""

    database: re.Pattern[str]
    table: re.Pattern[str]

    @classmethod
    def of(cls, pattern: str, *, fold_case: bool = False) -> TablePattern:
        flags = re.DOTALL | (re.IGNORECASE if fold_case else 0)
        database, table = split_name(pattern)
        return cls(_compiled(database, flags), _compiled(table, flags))

    def matches(self, table: TableId) -> bool:
        return bool(self.database.fullmatch(table.database) and self.table.fullmatch(table.table))


def is_wild(pattern: str) -> bool:
    """Whether the table part of the pattern has a wildcard."""
    return _is_wild(split_name(pattern)[1])


def named_table(pattern: str) -> TableId | None:
    """The table that a pattern without wildcards means."""
    database, table = split_name(pattern)
    return None if _is_wild(database) or _is_wild(table) else TableId(database.text, table.text)


def named_database(pattern: str) -> str | None:
    """The database of a pattern whose database part has no wildcard."""
    database, _ = split_name(pattern)
    return None if _is_wild(database) else database.text


def exactly(table: TableId) -> str:
    """The pattern that matches this table and no other."""
    database, name = (
        quote_part(part)
        if _WILDCARDS & set(part) or part.startswith("`") or (first and "." in part)
        else part
        for first, part in ((True, table.database), (False, table.table))
    )
    return f"{database}.{name}"


def matches(pattern: str, table: TableId) -> bool:
    return TablePattern.of(pattern).matches(table)


def overlap(one: str, other: str) -> bool:
    """Whether some table matches both patterns."""
    parts = zip(split_name(one), split_name(other), strict=True)
    return all(_share_a_name(_tokens(left), _tokens(right)) for left, right in parts)


def _is_wild(part: NamePart) -> bool:
    return not part.quoted and not _WILDCARDS.isdisjoint(part.text)


def _tokens(part: NamePart) -> tuple[str, ...]:
    if part.quoted:
        return tuple(part.text)
    return tuple({"*": _ANY, "?": _ONE}.get(character, character) for character in part.text)


def _share_a_name(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    @cache
    def share(i: int, j: int) -> bool:
        """Whether `one` from i on and `other` from j on match a common text."""
        if i < len(one) and one[i] == _ANY:
            return share(i + 1, j) or (j < len(other) and share(i, j + 1))
        if j < len(other) and other[j] == _ANY:
            return share(i, j + 1) or (i < len(one) and share(i + 1, j))
        if i == len(one) or j == len(other):
            return i == len(one) and j == len(other)
        return (one[i] == other[j] or _ONE in (one[i], other[j])) and share(i + 1, j + 1)

    return share(0, 0)


def _compiled(part: NamePart, flags: int) -> re.Pattern[str]:
    return re.compile(re.escape(part.text) if part.quoted else _regex(part.text), flags)


def _regex(pattern: str) -> str:
    """A regular expression for a pattern. Text between two `*` is searched only at its first occurrence,
    since no later one would let more match. So the time is linear in the lengths of pattern and name, whoever
    wrote them."""

    def plain(text: str) -> str:
        return "".join("." if c == "?" else re.escape(c) for c in text)

    first, *rest = pattern.split("*")
    if not rest:
        return plain(first)
    middle = [part for part in rest[:-1] if part]
    once = "".join(
        f"(?=(?P<p{number}>.*?{plain(part)}))(?P=p{number})" for number, part in enumerate(middle, 1)
    )
    return f"{plain(first)}{once}.*{plain(rest[-1])}"
