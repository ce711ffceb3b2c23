"""Recognises the helper tables of tools for online schema changes by their names.

Such a tool creates a table like the one to change, alters it, copies every row, and swaps the names of the
two in one RENAME TABLE. The tool guarantees that the rows are then the same, apart from the effect of the
alteration.
"""

from __future__ import annotations

from penstock.model.schema import TableId

_NAME_LENGTH_MAX = 64
"""The server's limit for the length of a name. The tools cut longer names."""


def is_copy_of(copy: TableId, table: TableId) -> bool:
    """Whether `copy` is the table that a tool fills and that then replaces `table`."""
    if copy.database != table.database:
        return False
    helper, name = copy.table, table.table
    if helper in (f"_{name}_gho", f"__osc_new_{name}", f"lhmn_{name}"):  # gh-ost, OnlineSchemaChange, LHM
        return True
    if len(helper) == _NAME_LENGTH_MAX and helper.startswith("_") and helper.endswith(("_gho", "_new")):
        return name.startswith(helper[1:-4])
    # pt-online-schema-change puts as many underscores in front as it needs to find a free name.
    return helper.endswith(f"_{name}_new") and not helper.removesuffix(f"{name}_new").strip("_")
