"""The columns that Penstock adds to rows. No column of a table may have a name that begins with `PREFIX`."""

from __future__ import annotations

from collections.abc import Collection

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


def own_columns(names: Collection[str]) -> frozenset[str]:
    """Those of the columns of rows or of a target that Penstock adds.

    Only the layout `changelog` and its targets have `CHANGE_TYPE` beside `COMMIT_TIMESTAMP`, and rows of
    messages beside `ROW`. No table with a target has columns of both names (`sinks/names.py`).
    """
    has_kinds = DELETED not in names and CHANGE_TYPE in names and (COMMIT_TIMESTAMP in names or ROW in names)
    own = (SEQUENCE, CHANGE_TYPE, COMMIT_TIMESTAMP) if has_kinds else (SEQUENCE,)
    return frozenset(name for name in names if name in own or name.startswith(PREFIX))
