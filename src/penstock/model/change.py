"""The columns that Penstock adds to rows. No column of a table may have a name that begins with `PREFIX`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

PREFIX = "_penstock_"

SEQUENCE = "_sequence"
"""BIGINT: increasing in the order changes take effect. The offset of the row's own image, or its epoch's end
for a placed snapshot row."""

DELETED = "_penstock_deleted"
"""BOOLEAN, in the `latest` layout: whether the last change of this key was a delete."""

CHANGE_TYPE = "_change_type"
"""STRING, in the `changelog` layout: insert, update_preimage, update_postimage, delete, read, truncate."""

PRESENT = "_penstock_present"
"""STRING, in the `latest` layout of logs with partial row images: one character for each column of the table.
`0`: the log does not have the value. NULL: the row has all columns."""

BASE = "_penstock_base"
"""STRING, between a decoder and the code that computes generated columns: the values that they are computed
from, as SQL literals. NULL where the log has the generated values."""

COMMIT_TIMESTAMP = "_commit_timestamp"
"""TIMESTAMP (UTC, µs), in the `changelog` layout: when the transaction was committed at the server that
first ran it."""

ROW = "_penstock_row"
"""The number of a row among those that the core has collected for messages."""


_PUBLIC = (SEQUENCE, CHANGE_TYPE, COMMIT_TIMESTAMP)


def hidden(name: str) -> str:
    """The name of Penstock's column `name` in rows of a table that has a column of this name itself, until
    `transforms` has renamed that one (`core/src/column/layout.rs`)."""
    return "_penstock" + name


def free_name(name: str, names: Iterable[str]) -> str:
    """The name of Penstock's column `name` in rows of a table with the columns `names`."""
    return hidden(name) if name in [one.lower() for one in names] else name


def public(name: str) -> str:
    """The name that one of Penstock's columns has at the target."""
    return next((one for one in _PUBLIC if hidden(one) == name), name)


def own_name(name: str, names: Collection[str]) -> str:
    """The name that Penstock's column `name` has among the columns `names`, if they are those of rows with
    this column."""
    return hidden(name) if hidden(name) in names else name


def own_columns(names: Collection[str]) -> frozenset[str]:
    """Those of the columns of rows or of a target that Penstock adds.

    Only the layout `changelog` and its targets have `CHANGE_TYPE` beside `COMMIT_TIMESTAMP`, and rows of
    messages beside `ROW`. No target has columns of its table with both names (`sinks/names.py`).
    """
    sequence, kind, time = (own_name(one, names) for one in _PUBLIC)
    own = {sequence}
    if DELETED not in names and kind in names and (time in names or ROW in names):
        own |= {kind} if ROW in names else {kind, time}
    return frozenset(name for name in names if name in own or name.startswith(PREFIX))
