"""The columns that Penstock adds to rows."""

from __future__ import annotations

SEQUENCE = "_sequence"
"""BIGINT: increasing in the order changes take effect. The offset of the row's own image, or its epoch's end
for a placed snapshot row."""

DELETED = "_deleted"
"""BOOLEAN, in the `latest` layout: whether the last change of this key was a delete."""

CHANGE_TYPE = "_change_type"
"""STRING, in the `changelog` layout: insert, update_preimage, update_postimage, delete, read, truncate."""

PRESENT = "_present"
"""STRING, in the `latest` layout of logs with partial row images: one character for each column of the table.
`0`: the log does not have the value. NULL: the row has all columns."""

BASE = "_base"
"""STRING, between a decoder and the code that computes generated columns: the values that they are computed
from, as SQL literals. NULL where the log has the generated values."""

COMMIT_TIMESTAMP = "_commit_timestamp"
"""TIMESTAMP (UTC, µs): when the transaction was committed at the server that first ran it."""
