"""Decides which tables of a source a pipeline captures, including tables that do not exist yet."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.config import TablesConfig
from penstock.model.pattern import TablePattern, is_wild
from penstock.model.schema import TableId

_HELPERS = re.compile(
    r"_.+_(?:gho|ghc|del|new|old)"  # gh-ost, pt-online-schema-change, Spirit
    r"|__osc_(?:new|old|chg|tmp)_.+"  # OnlineSchemaChange
    r"|lhm[na]_.+"  # Large Hadron Migrator
    r"|_vt_[a-z]{3}_.+",  # Vitess
    re.DOTALL | re.IGNORECASE,
)


class TableFilter:
    """The tables that match a pattern of `include` and none of `exclude` (`model/pattern.py`).

    With `fold_case`, letter case does not count. Tools for online schema changes work with helper tables
    (`_t_gho`, `_t_new`, …), whose rows come from the table itself. Only a pattern without a wildcard in its
    table part captures such a table.
    """

    sequences = False
    """Whether sequences of MariaDB count as tables: their rows are in the log."""

    def __init__(self, tables: TablesConfig, *, fold_case: bool = False) -> None:
        self.fold_case = fold_case
        self.removed: frozenset[TableId] = frozenset()
        """Tables that are never captured, even if a pattern matches them."""
        self.set(tables)

    def set(self, tables: TablesConfig, removed: Iterable[TableId] = ()) -> None:
        """Replaces the patterns."""
        fold_case = self.fold_case
        self.tables = tables
        self.removed = frozenset(removed)
        self._include = [TablePattern.of(pattern, fold_case=fold_case) for pattern in tables.include]
        self._exclude = [TablePattern.of(pattern, fold_case=fold_case) for pattern in tables.exclude]

    def __contains__(self, table: TableId) -> bool:
        if table in self.removed:
            return False
        helper = _HELPERS.fullmatch(table.table) is not None
        return any(
            pattern.matches(table) and not (helper and is_wild(text))
            for text, pattern in zip(self.tables.include, self._include, strict=True)
        ) and not any(pattern.matches(table) for pattern in self._exclude)

    def has_database(self, database: str) -> bool:
        """Whether a table of this database could be captured."""
        return any(pattern.database.fullmatch(database) for pattern in self._include)

    def unmatched(self, tables: Iterable[TableId]) -> list[str]:
        """The patterns of `include` that capture none of `tables`."""
        tables = list(tables)
        return [
            text
            for text, pattern in zip(self.tables.include, self._include, strict=True)
            if not any(pattern.matches(table) for table in tables)
        ]
