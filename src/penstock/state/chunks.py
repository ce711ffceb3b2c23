"""Snapshots and their chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part, PartialSnapshot
from penstock.model.schema import TableId
from penstock.model.table import ChunkState, ChunkStatus, Reading, TableState, is_splitting
from penstock.state.tables import Tables

_OPEN = "status IN ('splitting', 'reading')"


@dataclass(frozen=True)
class Totals:
    """Chunks of a table, of these those that are read and placed, and the rows in those."""

    chunks: int = 0
    read: int = 0
    placed: int = 0
    rows_read: int = 0
    rows_placed: int = 0

    def plus(self, status: str, count: int, rows: int) -> Totals:
        read, placed = status in ("staged", "placed"), status == "placed"
        return Totals(
            self.chunks + count,
            self.read + read * count,
            self.placed + placed * count,
            self.rows_read + read * rows,
            self.rows_placed + placed * rows,
        )


class Chunks(Tables):
    """`snapshot` is 0 for a table's own snapshot, else the number of a partial one."""

    def chunks(
        self, table: TableId, status: ChunkStatus | None = None, *, snapshot: int = 0
    ) -> list[ChunkState]:
        rows = self._rows(
            "SELECT * FROM chunks WHERE name = ? AND snapshot = ? ORDER BY number", str(table), snapshot
        )
        return [known for known in map(_chunk, rows) if status is None or known.status == status]

    def next_planned(self, table: TableId, taken: set[int], *, snapshot: int = 0) -> Chunk | None:
        """The first chunk that is still to be read and that nobody reads now."""
        rows = self._rows(
            "SELECT * FROM chunks WHERE name = ? AND snapshot = ? AND status = 'planned' "
            "ORDER BY number LIMIT ?",
            str(table),
            snapshot,
            len(taken) + 1,
        )
        return next((state.chunk for state in map(_chunk, rows) if state.chunk.number not in taken), None)

    def with_planned(self) -> set[tuple[TableId, int]]:
        """Tables and snapshots of which a chunk is still to be read."""
        rows = self._rows("SELECT DISTINCT name, snapshot FROM chunks WHERE status = 'planned'")
        return {(TableId.parse(name), snapshot) for name, snapshot in rows}

    def last_chunk(self, table: TableId) -> Chunk | None:
        """The one found last, in the order of keys."""
        sql = "SELECT * FROM chunks WHERE name = ? AND snapshot = 0 ORDER BY number DESC LIMIT 1"
        rows = self._rows(sql, str(table))
        return _chunk(rows[0]).chunk if rows else None

    def add_chunks(self, of: TableState, chunks: Sequence[Chunk], *, rows_guess: int | None = None) -> bool:
        """Chunks that were found for the table as it was in `of`, next to those that are known; with the one
        that has no upper bound all are. `rows_guess`: how large the server thinks it is. False: they do not
        belong to what the table is by now."""
        with self.transaction():
            state = self.table(of.table)
            if state is None or not is_splitting(state) or state.start != of.start:
                return False
            last = self.last_chunk(of.table)
            if chunks[0].number != (last.number + 1 if last else 0) or state.schema != of.schema:
                return False
            self._insert(chunks)
            found = replace(state, rows_guess=state.rows_guess if rows_guess is None else rows_guess)
            if chunks[-1].upper is None:
                found = replace(found, phase=Reading(splitting=False))
            if found != state:
                self.put_table(found)
            return True

    def _insert(self, chunks: Iterable[Chunk]) -> None:
        self._db.executemany(
            "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, 'planned', NULL, 0, 0)",
            [
                (str(c.table), c.snapshot, c.number, json.dumps(c.lower), json.dumps(c.upper),
                 json.dumps(c.part()))
                for c in chunks
            ],
        )  # fmt: skip

    def chunk_counts(self, table: TableId, *, snapshot: int = 0) -> dict[str, int]:
        sql = "SELECT status, count(*) FROM chunks WHERE name = ? AND snapshot = ? GROUP BY status"
        return dict(self._rows(sql, str(table), snapshot))

    def rows_placed(self, table: TableId, *, snapshot: int = 0) -> tuple[int, int]:
        """Rows of placed chunks and of all staged or placed ones."""
        sql = "SELECT status, sum(rows) FROM chunks WHERE name = ? AND snapshot = ? GROUP BY status"
        sums = {status: rows or 0 for status, rows in self._rows(sql, str(table), snapshot)}
        return sums.get("placed", 0), sums.get("placed", 0) + sums.get("staged", 0)

    def totals(self) -> dict[TableId, Totals]:
        """Of the own snapshots of all tables that have chunks."""
        sql = "SELECT name, status, count(*), sum(rows) FROM chunks WHERE snapshot = 0 GROUP BY name, status"
        found: dict[TableId, Totals] = {}
        for name, status, count, rows in self._rows(sql):
            table = TableId.parse(name)
            found[table] = found.get(table, Totals()).plus(status, count, rows or 0)
        return found

    def chunk_staged(self, staged: StagedChunk) -> None:
        """Records a manifest. The first attempt of a chunk that was recorded stays."""
        chunk = staged.chunk
        with self.transaction():
            self._db.execute(
                "UPDATE chunks SET status = 'staged', manifest = ?, rows = ?, reads = reads + 1 "
                "WHERE name = ? AND snapshot = ? AND number = ? AND lower = ? AND upper = ? AND part = ? "
                "AND status = 'planned'",
                (
                    json.dumps(staged.to_json()), staged.rows, str(chunk.table), chunk.snapshot, chunk.number,
                    json.dumps(chunk.lower), json.dumps(chunk.upper), json.dumps(chunk.part()),
                ),
            )  # fmt: skip

    def chunk_void(self, chunk: Chunk) -> None:
        """The staged rows are worthless: the chunk is read again."""
        with self.transaction():
            self._db.execute(
                "UPDATE chunks SET status = 'planned', manifest = NULL, rows = 0 "
                "WHERE name = ? AND snapshot = ? AND number = ?",
                (str(chunk.table), chunk.snapshot, chunk.number),
            )

    def forget_chunks(self, table: TableId) -> None:
        """Also those of partial snapshots, which are split again."""
        with self.transaction():
            self._db.execute("DELETE FROM chunks WHERE name = ?", (str(table),))
            self._db.execute(
                f"UPDATE snapshots SET status = 'splitting' WHERE name = ? AND {_OPEN}", (str(table),)
            )

    def chunks_placed(self, chunks: Iterable[StagedChunk]) -> None:
        """A partial snapshot is done with its last chunk. Nobody asks for the manifest of a placed chunk."""
        with self.transaction():
            for staged in chunks:
                self._db.execute(
                    "UPDATE chunks SET status = 'placed', manifest = NULL "
                    "WHERE name = ? AND snapshot = ? AND number = ?",
                    (str(staged.chunk.table), staged.chunk.snapshot, staged.chunk.number),
                )
            for number in {staged.chunk.snapshot for staged in chunks} - {0}:
                left = "SELECT 1 FROM chunks WHERE snapshot = ? AND status <> 'placed'"
                if not self._rows(left, number):
                    self.end_partial(number, "done")

    # partial snapshots --------------------------------------------------------------------------------------

    def begin_partial(self, signal: str, table: TableId, since: Offset, part: Part) -> int:
        """Its number."""
        with self.transaction():
            cursor = self._db.execute(
                "INSERT INTO snapshots VALUES (NULL, ?, ?, ?, ?, 'splitting', '', 0, 0)",
                (signal, str(table), since, json.dumps(part.to_json())),
            )
            return int(cursor.lastrowid or 0)

    def partials(self, *, signal: str | None = None) -> list[PartialSnapshot]:
        """Those that have not ended; of a `signal`: all."""
        where, values = (_OPEN, ()) if signal is None else ("signal = ?", (signal,))
        return [
            PartialSnapshot(number, by, TableId.parse(name), since, Part.from_json(json.loads(part)), *rest)
            for number, by, name, since, part, *rest in self._rows(
                f"SELECT * FROM snapshots WHERE {where} ORDER BY number", *values
            )
        ]

    def set_partial_chunks(self, snapshot: PartialSnapshot, chunks: Sequence[Chunk]) -> None:
        with self.transaction():
            now = self._rows("SELECT status FROM snapshots WHERE number = ?", snapshot.number)
            if now != [("splitting",)]:
                return
            self._db.execute("DELETE FROM chunks WHERE snapshot = ?", (snapshot.number,))
            self._insert(chunks)
            self._db.execute("UPDATE snapshots SET status = 'reading' WHERE number = ?", (snapshot.number,))

    def end_partial(self, number: int, status: str, reason: str = "") -> None:
        """Keeps how much of it was placed. Its chunks are forgotten."""
        with self.transaction():
            placed = "FROM chunks WHERE snapshot = ?1 AND status = 'placed'"
            self._db.execute(
                f"UPDATE snapshots SET status = ?2, reason = ?3, chunks = (SELECT count(*) {placed}), "
                f"rows = (SELECT coalesce(sum(rows), 0) {placed}) "
                f"WHERE number = ?1 AND {_OPEN}",
                (number, status, reason),
            )
            self._db.execute("DELETE FROM chunks WHERE snapshot = ?", (number,))

    def end_partials(self, table: TableId, reason: str) -> None:
        """Of a table that is read as a whole, or left alone."""
        with self.transaction():
            for one in self.partials():
                if one.table == table:
                    self.end_partial(one.number, "stopped", reason)


def _chunk(row: tuple[Any, ...]) -> ChunkState:
    name, snapshot, number, lower, upper, part, status, manifest, reads, _ = row
    lower, upper = (
        None if value is None else tuple(value) for value in (json.loads(lower), json.loads(upper))
    )
    staged = StagedChunk.from_json(json.loads(manifest)) if manifest else None
    more = Part.from_json(json.loads(part))
    chunk = Chunk(TableId.parse(name), number, lower, upper, snapshot, more.condition, more.keys)
    return ChunkState(chunk, status, staged, reads)
