"""Time stamps of cells: what makes a repeated write, and a late one, change nothing. Pure.

HBase shows the cell with the greatest time stamp, whenever it was written, and a deletion hides what is not
greater than its own. So the time of a cell grows with the row's `_sequence`, and so in the order of changes.

A changed definition rewrites rows whose `_sequence` stays. Their new cells must be greater than the markers
that hide the old ones. So the lowest bits count how often the table was rewritten: its *revision*.

The times lie in a future that no clock reaches. So what somebody else writes to a cell that is there, or
deletes, as a rule with the present time, changes nothing, and no TTL removes a cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FIRST = 1 << 62
"""Times of Penstock begin here, so that they are greater than any clock's and never meet one."""
REVISION_BITS = 10
"""Lowest bits of a time, which count the rewritings of a table."""
REVISION_MAX = (1 << REVISION_BITS) - 1
"""A table can be rewritten for so many changed definitions. Then it has to be created again."""
SEQUENCE_MAX = (1 << (62 - REVISION_BITS)) - 2
"""The greatest sequence: a relay log of 4.5 petabytes. HBase takes the very last time for the present one."""
NONE = -1
"""Instead of a `_sequence`: there is no such row, or its time is not Penstock's."""

Numbers = np.ndarray[Any, Any]


def times_of(sequences: Numbers, revision: int) -> Numbers:
    """The times of cells."""
    found: Numbers = FIRST + (np.asarray(sequences, np.int64) << REVISION_BITS) + revision
    return found


def time_of(sequence: int, revision: int) -> int:
    """The time of one cell."""
    return FIRST + (sequence << REVISION_BITS) + revision


def sequences_of(times: Numbers) -> Numbers:
    """For each time its `_sequence`, or `NONE`."""
    return np.where(times >= FIRST, (times - FIRST) >> REVISION_BITS, NONE)


def revisions_of(times: Numbers) -> Numbers:
    found: Numbers = times & REVISION_MAX
    return found
