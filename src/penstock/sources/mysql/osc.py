"""The helper tables of online-schema-change tools, by their names.

Such a tool makes a table like the one to change, alters it, copies every row, and lets the two change names
in one RENAME TABLE. By its contract the rows are the same rows then, but for what the alteration made of
them.
"""

from __future__ import annotations

import re

from penstock.model.schema import TableId

_NEW = (
    r"_(?P<name>.+)_gho",  # gh-ost
    r"_+(?P<name>.+)_new",  # pt-online-schema-change, Spirit
    r"__osc_new_(?P<name>.+)",  # Facebook's OnlineSchemaChange
    r"lhmn_(?P<name>.+)",  # Large Hadron Migrator
)
_OTHERS = (
    r"_(?P<name>.+)_(?:ghc|del)",
    r"_(?P<name>.+)_\d{14}_del",
    r"_+(?P<name>.+)_old",
    r"__osc_(?:old|chg|tmp)_(?P<name>.+)",
    r"lhma_[\d_]+_(?P<name>.+)",
    r"_(?P<name>.+)_(?:chkpnt|sentinel)",
)
_NAME_LENGTH_MAX = 64


def is_copy_of(copy: TableId, table: TableId) -> bool:
    """`copy` is the table that a tool fills to take the place of `table`."""
    return copy.database == table.database and _names(_NEW, copy.table, table.table)


def is_helper_of(helper: TableId, table: TableId) -> bool:
    return helper.database == table.database and _names((*_NEW, *_OTHERS), helper.table, table.table)


def _names(patterns: tuple[str, ...], helper: str, table: str) -> bool:
    for pattern in patterns:
        match = re.fullmatch(pattern, helper, re.DOTALL)
        if match is None:
            continue
        name = match["name"]
        # A name that would be too long is cut.
        if name == table or (len(helper) == _NAME_LENGTH_MAX and table.startswith(name)):
            return True
    return False
