"""The helper tables of online-schema-change tools, by their names.

Such a tool makes a table like the one to change, alters it, copies every row, and lets the two change names
in one RENAME TABLE. By its contract the rows are the same rows then, but for what the alteration made of
them.
"""

from __future__ import annotations

from penstock.model.schema import TableId

_NAME_LENGTH_MAX = 64
"""Longer names are cut."""


def is_copy_of(copy: TableId, table: TableId) -> bool:
    """`copy` is the table that a tool fills to take the place of `table`."""
    if copy.database != table.database:
        return False
    helper, name = copy.table, table.table
    if helper in (f"_{name}_gho", f"__osc_new_{name}", f"lhmn_{name}"):  # gh-ost, OnlineSchemaChange, LHM
        return True
    if len(helper) == _NAME_LENGTH_MAX and helper.startswith("_") and helper.endswith(("_gho", "_new")):
        return name.startswith(helper[1:-4])
    # pt-online-schema-change puts as many underscores in front as it needs to find a free name.
    return helper.endswith(f"_{name}_new") and not helper.removesuffix(f"{name}_new").strip("_")
