"""Decides which rows of a table have some keys: looks them up, leaves out what is deleted already, and looks
at the keys themselves where hashes may deceive.

An entry holds a hash of 88 bits, so two keys of one table hardly ever have the same: in a table of a hundred
million rows, a key that the table does not have meets the hash of another one in one of 3 * 10^18 look-ups. A
table has each key at most once. So if exactly one live row is found, it is the row of the key. If several are
found, their keys are read and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from penstock.sinks.lake.index.table_index import Matches, TableIndex

Read = Callable[[str], Iterable[pa.RecordBatch]]
"""The columns of the key for all rows of a data file, in their order."""
DeletedRows = Callable[[str], BitMap64]
"""The deleted rows of a data file. Nobody changes the result."""


def live_rows(
    index: TableIndex,
    keys: Sequence[pa.RecordBatch],
    live: Mapping[str, object],
    deleted: DeletedRows,
    read: Read,
) -> dict[str, Matches]:
    """The rows that have one of these keys and are not deleted, by the location of their data file."""
    found = {
        location: left
        for location, matches in index.find(keys, live).items()
        if len((left := _not_deleted(matches, deleted(location))).rows)
    }
    if found:
        found = _without_others(found, keys, read)
    return found


def _not_deleted(matches: Matches, deleted: BitMap64) -> Matches:
    if not deleted:
        return matches
    left = np.fromiter((row not in deleted for row in matches.rows.tolist()), bool, len(matches.rows))
    return Matches(matches.keys[left], matches.rows[left])


def _without_others(
    found: dict[str, Matches], keys: Sequence[pa.RecordBatch], read: Read
) -> dict[str, Matches]:
    """Leaves out rows that have another key with the same hash."""
    numbers, counts = np.unique(np.concatenate([one.keys for one in found.values()]), return_counts=True)
    doubtful = numbers[counts > 1]
    if not len(doubtful):
        return found
    table = pa.Table.from_batches(keys)
    right = {}
    for location, matches in found.items():
        left = ~np.isin(matches.keys, doubtful)
        places = np.flatnonzero(~left)
        if len(places):
            rows = rows_at(read(location), matches.rows[places])
            left[places] = _equal(rows, table.take(pa.array(matches.keys[places])))
        if left.any():
            right[location] = Matches(matches.keys[left], matches.rows[left])
    return right


def rows_at(batches: Iterable[pa.RecordBatch], rows: np.ndarray) -> pa.Table:
    """The rows with these numbers, in this order."""
    order = np.argsort(rows, kind="stable")
    wanted, parts, start = rows[order], [], 0
    for batch in batches:
        first, last = np.searchsorted(wanted, (start, start + batch.num_rows))
        parts.append(batch.take(pa.array(wanted[first:last] - start)))
        start += batch.num_rows
    return pa.Table.from_batches(parts).take(pa.array(np.argsort(order, kind="stable")))


def _equal(rows: pa.Table, keys: pa.Table) -> np.ndarray:
    equal = np.ones(rows.num_rows, bool)
    for one, other in zip(rows.columns, keys.columns, strict=True):
        equal &= pc.fill_null(pc.equal(one, other), False).to_numpy()
    return equal
