"""Patterns of table names: `database.table`, with `*` and `?` as wildcards in either part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from penstock.model.schema import TableId


@dataclass(frozen=True)
class TablePattern:
    """Split at its first dot, so a table name may contain dots. `fold_case`: letter case does not count."""

    database: re.Pattern[str]
    table: re.Pattern[str]

    @classmethod
    def of(cls, pattern: str, *, fold_case: bool = False) -> TablePattern:
        flags = re.DOTALL | (re.IGNORECASE if fold_case else 0)
        database, _, table = pattern.partition(".")
        return cls(re.compile(_regex(database), flags), re.compile(_regex(table), flags))

    def matches(self, table: TableId) -> bool:
        return bool(self.database.fullmatch(table.database) and self.table.fullmatch(table.table))


def is_wild(pattern: str) -> bool:
    """The table part has a wildcard."""
    return not set("*?").isdisjoint(pattern.partition(".")[2])


def matches(pattern: str, table: TableId) -> bool:
    return TablePattern.of(pattern).matches(table)


def overlap(one: str, other: str) -> bool:
    """Whether some table matches both patterns."""
    (database, _, table), (database_, _, table_) = one.partition("."), other.partition(".")
    return _share_a_name(database, database_) and _share_a_name(table, table_)


def _share_a_name(one: str, other: str) -> bool:
    @cache
    def share(i: int, j: int) -> bool:
        """The rest of `one` from i and the rest of `other` from j."""
        if i < len(one) and one[i] == "*":
            return share(i + 1, j) or (j < len(other) and share(i, j + 1))
        if j < len(other) and other[j] == "*":
            return share(i, j + 1) or (i < len(one) and share(i + 1, j))
        if i == len(one) or j == len(other):
            return i == len(one) and j == len(other)
        return (one[i] == other[j] or "?" in (one[i], other[j])) and share(i + 1, j + 1)

    return share(0, 0)


def _regex(pattern: str) -> str:
    # Runs of `*` are one `*`: otherwise a pattern like `****…x` takes exponential time.
    pattern = re.sub(r"\*+", "*", pattern)
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
