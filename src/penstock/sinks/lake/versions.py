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
"""So many changes are sorted in memory. More are left to Spark."""
_AT, _BEGINS = "_at", "_begins"


@dataclass(frozen=True)
class Versions:
    """Changes in the order of their keys, and of time for each key. `firsts`: where the changes of each key
    begin. `next_at`: when the version ends that a change begins. NULL: it is current."""

    changes: pa.Table
    firsts: np.ndarray
    next_at: pa.Array
    key: tuple[str, ...]

    @classmethod
    def of(
        cls, batches: Iterable[pa.RecordBatch], key: tuple[str, ...], fields: pa.Schema
    ) -> Versions | None:
        """`batches`: in the layout `changelog`. `fields`: the columns of the target. None: only Spark can
        write these changes."""
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
        columns[_AT] = pc.coalesce(whole[COMMIT_TIMESTAMP].cast(TIME), now)
        columns[_BEGINS] = pc.is_in(whole[CHANGE_TYPE], pa.array(BEGINS)).cast(pa.int8())
        order = [(name, "ascending") for name in (*key, SEQUENCE, _BEGINS)]
        changes = pa.table(columns).sort_by(order).combine_chunks()
        same = np.ones(changes.num_rows - 1, bool)
        for name in key:
            column = changes[name]
            same &= pc.equal(column.slice(0, len(same)), column.slice(1)).to_numpy()
        following = np.append(np.flatnonzero(same) + 1, [])  # rows whose key is that of the row before
        places = np.full(changes.num_rows, -1)
        places[following.astype(int) - 1] = following
        next_at = changes[_AT].take(pa.array(places, mask=places < 0)).combine_chunks()
        return cls(changes, np.flatnonzero(np.append(True, ~same)), next_at, key)

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
        begins = np.flatnonzero(self.changes[_BEGINS].to_numpy())
        begun = self.changes.take(pa.array(begins)).drop_columns([_AT, _BEGINS])
        ends = self.next_at.take(pa.array(begins))
        own = {
            VALID_FROM: self.changes[_AT].take(pa.array(begins)),
            VALID_TO: ends,
            IS_CURRENT: pc.is_null(ends),
        }
        for name, column in own.items():
            begun = begun.append_column(name, column)
        yield from begun.to_batches()
        for rows, places in zip(present.values(), keys, strict=True):
            at = self.changes[_AT].take(pa.array(self.firsts[places]))
            for name, column in ((VALID_TO, at), (IS_CURRENT, pa.repeat(False, len(places)))):
                rows = rows.set_column(rows.column_names.index(name), name, column)
            yield from rows.to_batches()
