"""Computes how much of a snapshot is done. Other modules collect the counts and show the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TableProgress:
    """The counts of one table's snapshot. `rows_guess`: the number of rows by the server's statistics.
    `active`: the snapshot has not ended and is not paused. `finding`: the table is still being split into
    chunks."""

    chunks: int
    chunks_read: int
    chunks_placed: int
    rows_read: int
    rows_placed: int
    rows_guess: int
    active: bool
    finding: bool = False

    @property
    def rows_estimate(self) -> int:
        """Estimated rows of the whole snapshot. All chunks have about the same number of rows, so the
        chunks that were read give a better estimate than the server's statistics."""
        if not self.chunks_read:
            return self.rows_guess
        known = round(self.rows_read * self.chunks / self.chunks_read)
        return max(known, self.rows_guess) if self.finding else known

    @property
    def rows_left(self) -> int:
        """Estimated rows that have not been written to the target yet."""
        if not self.active or (self.chunks and self.chunks_placed == self.chunks and not self.finding):
            return 0
        return max(0, self.rows_estimate - self.rows_placed)


@dataclass(frozen=True)
class SnapshotProgress:
    """The snapshots of all tables together."""

    tables: Sequence[TableProgress]

    def seconds_left(self, rows_per_s: float) -> int | None:
        """Estimated time until the end. None if there is no rate yet, or nothing is left."""
        if rows_per_s <= 0:
            return None
        left = sum(table.rows_left for table in self.tables)
        return round(left / rows_per_s) if left else None

    def to_json(self) -> dict[str, int | bool]:
        return {
            "chunks": sum(table.chunks for table in self.tables),
            "chunks_read": sum(table.chunks_read for table in self.tables),
            "chunks_placed": sum(table.chunks_placed for table in self.tables),
            "rows_placed": sum(table.rows_placed for table in self.tables),
            "rows_left": sum(table.rows_left for table in self.tables),
            "done": not any(table.active for table in self.tables),
        }
