"""How far a snapshot is: arithmetic over counts. Collecting and drawing them is others' business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TableProgress:
    """One table's snapshot. `rows_guess` is the server's, from its statistics; `active`: it is not finished,
    and goes on; `finding`: more chunks are still being found."""

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
        """Rows of the whole snapshot. Chunks hold about the same number each, so those that were read say
        more than the server's guess."""
        if not self.chunks_read:
            return self.rows_guess
        known = round(self.rows_read * self.chunks / self.chunks_read)
        return max(known, self.rows_guess) if self.finding else known

    @property
    def rows_left(self) -> int:
        """Rows that are still to be placed at the target."""
        if not self.active or (self.chunks and self.chunks_placed == self.chunks and not self.finding):
            return 0
        return max(0, self.rows_estimate - self.rows_placed)


@dataclass(frozen=True)
class SnapshotProgress:
    """Of all tables together."""

    tables: Sequence[TableProgress]

    def seconds_left(self, rows_per_s: float) -> int | None:
        """None while there is no rate to judge by, and when nothing is left."""
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
