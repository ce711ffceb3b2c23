"""How far a snapshot is: a frozen value, and how it is made from counts. Drawing it is others' business."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class TableProgress:
    """One table. `rows_estimate` is the server's guess at the time of planning; `planned` says all chunks
    are known.
    """

    table: str
    chunks_planned: int
    chunks_read: int
    chunks_placed: int
    rows_read: int
    rows_estimate: int
    planned: bool

    @property
    def done(self) -> bool:
        return self.planned and self.chunks_placed == self.chunks_planned

    @property
    def rows_left(self) -> int:
        """What is still to be read. Chunks know better than the server's guess, once there are some."""
        if self.planned and self.chunks_read == self.chunks_planned:
            return 0
        if self.planned and self.chunks_read:
            return (self.chunks_planned - self.chunks_read) * self.rows_read // self.chunks_read
        return max(self.rows_estimate - self.rows_read, 0)


@dataclass(frozen=True)
class SnapshotProgress:
    """All tables of a snapshot that has been running for `seconds`, with `rows_before` read in earlier
    runs.
    """

    tables: tuple[TableProgress, ...]
    seconds: float
    rows_before: int = 0

    @property
    def tables_done(self) -> int:
        return sum(table.done for table in self.tables)

    @property
    def chunks_planned(self) -> int:
        return sum(table.chunks_planned for table in self.tables)

    @property
    def chunks_read(self) -> int:
        return sum(table.chunks_read for table in self.tables)

    @property
    def chunks_placed(self) -> int:
        return sum(table.chunks_placed for table in self.tables)

    @property
    def rows_read(self) -> int:
        return sum(table.rows_read for table in self.tables)

    @property
    def done(self) -> bool:
        return all(table.done for table in self.tables)

    @property
    def rows_per_second(self) -> float:
        """Of this run alone; 0.0 until something was read."""
        return max(self.rows_read - self.rows_before, 0) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """None while there is no rate to judge by."""
        left = sum(table.rows_left for table in self.tables)
        if left == 0:
            return 0.0
        return left / self.rows_per_second if self.rows_per_second > 0 else None

    def to_json(self) -> dict[str, object]:
        return {
            "tables": len(self.tables),
            "tables_done": self.tables_done,
            "chunks_planned": self.chunks_planned,
            "chunks_read": self.chunks_read,
            "chunks_placed": self.chunks_placed,
            "rows_read": self.rows_read,
            "rows_per_second": round(self.rows_per_second, 1),
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
            "done": self.done,
        }


def combine(tables: Iterable[TableProgress], *, seconds: float, rows_before: int = 0) -> SnapshotProgress:
    """Tables in name order."""
    return SnapshotProgress(tuple(sorted(tables, key=lambda item: item.table)), seconds, rows_before)
