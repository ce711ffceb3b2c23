"""Sharded tables: several tables of the source that share one target."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from penstock.model.change import PREFIX, SEQUENCE
from penstock.model.pattern import TablePattern, named_table, overlap
from penstock.model.schema import TableId

SHARD_COLUMN = "_shard"


@dataclass(frozen=True)
class ShardRule:
    """One entry of `merge_shards` in the pipeline file: the captured tables that match `tables` (its
    shards) share one target, named `into`. Its column `shard_column` has each row's source table
    (`database.table`), and belongs to the row's key."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    tables: str | tuple[str, ...]
    """Patterns as in `tables`, spelled as the server spells the names."""
    into: str
    """Name of the target, `database.table` as a source table would be."""
    shard_column: str = SHARD_COLUMN
    """Column of the target with the row's source table."""

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            if "." not in pattern:
                raise ValueError(f"{pattern!r} in `tables` names no database; write it as database.table")
        if not self.patterns:
            raise ValueError("`tables` names no table")
        into = named_table(self.into)
        if into is None or not into.database or not into.table:
            raise ValueError(f"`into` is {self.into!r}; write it as one name, database.table")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", self.shard_column):
            raise ValueError(f"`shard_column` {self.shard_column!r} is no plain name of a column")
        if (name := self.shard_column.lower()) == SEQUENCE or name.startswith(PREFIX):
            raise ValueError(f"`shard_column` {self.shard_column} is a name of Penstock's own columns")

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.tables,) if isinstance(self.tables, str) else self.tables

    @property
    def target(self) -> TableId:
        return TableId.parse(self.into)

    @cached_property
    def _compiled(self) -> list[TablePattern]:
        return [TablePattern.of(pattern) for pattern in self.patterns]

    def __contains__(self, table: TableId) -> bool:
        return any(pattern.matches(table) for pattern in self._compiled)


class Shards:
    """Decides which tables are shards of which target. A table matches at most one rule (`contradiction`)."""

    def __init__(self, rules: Iterable[ShardRule] = ()) -> None:
        self.rules = tuple(rules)

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def columns(self) -> dict[TableId, str]:
        """Targets that several tables share, each with the column that distinguishes their rows."""
        return {rule.target: rule.shard_column for rule in self.rules}

    def rule(self, table: TableId) -> ShardRule | None:
        return next((rule for rule in self.rules if table in rule), None)

    def into(self, table: TableId) -> str | None:
        """The target that the table shares with others; None if it has its own."""
        rule = self.rule(table)
        return None if rule is None else rule.into

    def together(self, one: TableId, other: TableId) -> bool:
        """Whether both tables are shards of one target."""
        rule = self.rule(one)
        return rule is not None and rule is self.rule(other)


def contradiction(rules: Sequence[ShardRule], include: Sequence[str]) -> str | None:
    """Why the rules contradict each other, for tables that match the patterns `include`. None: they do
    not."""
    for one, other in itertools.combinations(rules, 2):
        if one.target == other.target:
            return f"two rules have `into: {one.into}`; give one rule both patterns, as a list in `tables`"
        for pattern, another in itertools.product(one.patterns, other.patterns):
            if overlap(pattern, another):
                return f"a table can match both `{pattern}` and `{another}`, which go into different tables"
    for rule in rules:
        for pattern in rule.patterns:
            if not any(overlap(pattern, captured) for captured in include):
                return f"no table that `tables` captures can match `{pattern}`"
        if rule.target in map(named_table, include) and rule.target not in rule:
            return f"`into: {rule.into}` is itself a captured table, which has that target; name another one"
    return None
