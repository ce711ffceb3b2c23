"""What the changes of a small epoch do to a target that keeps versions: the rows to add, once the versions
are known that they end. `history.py` says what versions are, and does the same in Spark SQL for larger
epochs.

All changes are newer than what the target has of their keys (`Newer`). Rows that were read begin a version
only if they differ, which is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.history import HISTORY_COLUMNS, IS_CURRENT, VALID_FROM, VALID_TO
from penstock.sinks.lake.index.table_index import Matches
from penstock.sinks.lake.index.tables import KeyReader, Live, TableKeys
from penstock.sinks.names import source_columns

BEGINS = ("insert", "update_postimage")
READ = "read"
TIME = pa.timestamp("us", "UTC")
BYTES_MAX = 64 * 1024**2
"""Bytes of changes that are sorted in memory. Spark sorts more than that."""
_AT, _BEGINS = "_penstock_at", "_penstock_begins"


@dataclass(frozen=True)
class Versions:
    """Changes in the order of their keys, and of time for each key. `firsts`: where the changes of each key
    begin. `group`: for each change the number of its key. `at`: its time, in microseconds, which is never
    before that of the change before it."""

    changes: pa.Table
    firsts: np.ndarray
    group: np.ndarray
    at: np.ndarray
    key: tuple[str, ...]

    @classmethod
    def of(
        cls, batches: Iterable[pa.RecordBatch], key: tuple[str, ...], fields: pa.Schema
    ) -> Versions | None:
        """The changes of an epoch. `batches`: in the layout `changelog`. `fields`: the columns of the target.
        None: only Spark can write these changes."""
        found, size = list[pa.RecordBatch](), 0
        for batch in batches:
            found.append(batch)
            if (size := size + batch.nbytes) > BYTES_MAX:
                return None
        if not found or not (whole := pa.Table.from_batches(found)).num_rows:
            return None
        wanted = [field for field in fields if field.name not in HISTORY_COLUMNS]
        if {*source_columns(whole.column_names), SEQUENCE} != {field.name for field in wanted}:
            return None
        if READ in pc.unique(whole[CHANGE_TYPE]).to_pylist():
            return None
        if any(whole[name].null_count for name in key):
            return None  # a zero date arrives as NULL, and two NULLs may be different dates
        now = pa.scalar(datetime.now(timezone.utc), TIME)
        columns = {field.name: whole[field.name].cast(field.type) for field in wanted}
        columns[_AT] = pc.coalesce(whole[COMMIT_TIMESTAMP].cast(TIME), now).cast(pa.int64())
        columns[_BEGINS] = pc.is_in(whole[CHANGE_TYPE], pa.array(BEGINS)).cast(pa.int8())
        order = [(name, "ascending") for name in (*key, SEQUENCE, _BEGINS)]
        changes = pa.table(columns).sort_by(order).combine_chunks()
        same = np.ones(changes.num_rows - 1, bool)
        for name in key:
            column = changes[name]
            same &= pc.equal(column.slice(0, len(same)), column.slice(1)).to_numpy()
        is_first = np.append(True, ~same)
        group = np.cumsum(is_first) - 1
        at = _never_back(changes[_AT].to_numpy(), group)
        return cls(changes, np.flatnonzero(is_first), group, at, key)

    def keys(self, fields: pa.Schema) -> pa.RecordBatch:
        """The keys of the current versions that the changes end, in these columns."""
        first = self.changes.take(pa.array(self.firsts))
        current = pa.repeat(True, first.num_rows)
        arrays = [
            current if field.name == IS_CURRENT else first[field.name].combine_chunks().cast(field.type)
            for field in fields
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=fields)

    def against(
        self, index: TableKeys[Any], fields: pa.Schema, reader: KeyReader, live: Live
    ) -> tuple[Iterator[pa.RecordBatch], dict[str, Matches]]:
        """The rows to add to `live`, and the versions there that they end. `fields`: those of the index.
        `reader`: of all columns. Raises `Unsearchable`, and `OSError` if the disk fails."""
        found = index.matches([self.keys(fields)], live)
        present = index.read(reader, found, live)
        return self.rows(present, [one.keys for one in found.values()]), found

    def rows(self, present: Mapping[str, pa.Table], keys: Sequence[np.ndarray]) -> Iterator[pa.RecordBatch]:
        """The rows to add. `present`: the current versions, with all columns of the target, by data file.
        `keys`: of each its place in what `keys` returned."""
        at = self._after(present, keys)
        ends = _times(np.append(at[1:], 0), np.append(self.group[1:] != self.group[:-1], True))
        begins = pa.array(np.flatnonzero(self.changes[_BEGINS].to_numpy()))
        begun = self.changes.take(begins).drop_columns([_AT, _BEGINS])
        ends = ends.take(begins)
        own = {VALID_FROM: _times(at).take(begins), VALID_TO: ends, IS_CURRENT: pc.is_null(ends)}
        for name, column in own.items():
            begun = begun.append_column(name, column)
        yield from begun.to_batches()
        for rows, places in zip(present.values(), keys, strict=True):
            end = _times(at[self.firsts[places]])
            for name, column in ((VALID_TO, end), (IS_CURRENT, pa.repeat(False, len(places)))):
                rows = rows.set_column(rows.column_names.index(name), name, column)
            yield from rows.to_batches()

    def _after(self, present: Mapping[str, pa.Table], keys: Sequence[np.ndarray]) -> np.ndarray:
        """The times of the changes, none of which is before the version that its key has begun."""
        since = np.full(len(self.firsts), np.iinfo(np.int64).min)
        for rows, places in zip(present.values(), keys, strict=True):
            begun = rows[VALID_FROM].cast(TIME).cast(pa.int64()).fill_null(since.min()).to_numpy()
            np.maximum.at(since, places, begun)
        found: np.ndarray = np.maximum(self.at, since[self.group])
        return found


def _never_back(at: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The greatest of each time and those before it in its group. Groups are side by side."""
    step = 1
    while step < len(at) and (same := group[step:] == group[:-step]).any():
        at = np.append(at[:step], np.where(same, np.maximum(at[step:], at[:-step]), at[step:]))
        step *= 2
    return at


def _times(at: np.ndarray, is_null: np.ndarray | None = None) -> pa.Array:
    return pa.array(at, pa.int64(), mask=is_null).cast(TIME)
