"""Which tables of a source a pipeline captures, also those that do not exist yet."""

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
    """Which tables a pipeline captures: `include` less `exclude`, `*` and `?` as wildcards in either part.

    Patterns are those of `model.pattern`. With `fold_case` (the server's
    lower_case_table_names is not 0) letter case does not count. The helper tables of online schema changes
    (`_t_gho`, `_t_new`, …) are captured only by a pattern whose table part has no wildcard: what they hold
    comes from the table itself.
    """

    def __init__(self, tables: TablesConfig, *, fold_case: bool = False) -> None:
        self.fold_case = fold_case
        self.removed: frozenset[TableId] = frozenset()
        """Tables that are left out, whatever the patterns say."""
        self.set(tables)

    def set(self, tables: TablesConfig, removed: Iterable[TableId] = ()) -> None:
        """Other patterns from now on."""
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
        """Some table of this database could be captured."""
        return any(pattern.database.fullmatch(database) for pattern in self._include)

    def unmatched(self, tables: Iterable[TableId]) -> list[str]:
        """The include patterns that capture none of `tables`."""
        tables = list(tables)
        return [
            text
            for text, pattern in zip(self.tables.include, self._include, strict=True)
            if not any(pattern.matches(table) for table in tables)
        ]
