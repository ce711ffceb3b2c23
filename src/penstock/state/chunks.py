"""Stores the chunks of snapshots, and partial snapshots."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part, PartialSnapshot, PartStatus
from penstock.model.schema import TableId
from penstock.model.table import Change, ChunkState, ChunkStatus, Reading, TableState, is_splitting
from penstock.state.changes import (
    ChunksAdded,
    ChunksForgotten,
    ChunksPlaced,
    ChunkStaged,
    ChunkVoided,
    PartialBegun,
    PartialEnded,
    PartialSplit,
    StateChange,
)
from penstock.state.tables import Tables

_OPEN = "status IN ('splitting', 'reading')"
_THIS = "WHERE name = ? AND snapshot = ? AND number = ?"
"""A chunk, see `_place`."""


@dataclass(frozen=True)
class Totals:
    """Counts for one table. `chunks`: all chunks; `read`: those that are staged or placed; `placed`: those
    that are placed. `rows_read` and `rows_placed`: the rows in the read and in the placed chunks."""

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
    """Access to chunks and partial snapshots. The argument `snapshot` is 0 for a table's full snapshot, or
    the number of a partial snapshot."""

    def chunks(
        self, table: TableId, status: ChunkStatus | None = None, *, snapshot: int = 0
    ) -> list[ChunkState]:
        sql = "SELECT * FROM chunks WHERE name = ? AND snapshot = ?"
        rows = self._rows(
            f"{sql} AND (? IS NULL OR status = ?) ORDER BY number", str(table), snapshot, status, status
        )
        return [_chunk(row) for row in rows]

    def next_planned(self, table: TableId, taken: set[int], *, snapshot: int = 0) -> Chunk | None:
        """Returns the first planned chunk, or None if there is none. `taken` contains the numbers of chunks
        that are being read now, which are skipped."""
        rows = self._rows(
            "SELECT * FROM chunks WHERE name = ? AND snapshot = ? AND status = 'planned' "
            "ORDER BY number LIMIT ?",
            str(table),
            snapshot,
            len(taken) + 1,
        )
        return next((state.chunk for state in map(_chunk, rows) if state.chunk.number not in taken), None)

    def with_planned(self) -> set[tuple[TableId, int]]:
        """Returns a table and the number of its snapshot for each snapshot with planned chunks."""
        rows = self._rows("SELECT DISTINCT name, snapshot FROM chunks WHERE status = 'planned'")
        return {(TableId.parse(name), snapshot) for name, snapshot in rows}

    def last_chunk(self, table: TableId) -> Chunk | None:
        """Returns the last chunk of the table's full snapshot in the order of keys, or None if it has no
        chunks."""
        sql = "SELECT * FROM chunks WHERE name = ? AND snapshot = 0 ORDER BY number DESC LIMIT 1"
        rows = self._rows(sql, str(table))
        return _chunk(rows[0]).chunk if rows else None

    def add_chunks(self, of: TableState, chunks: Sequence[Chunk], *, rows_guess: int | None = None) -> bool:
        """Adds the next chunks of a table, which follow the known ones. A chunk without an upper bound is the
        last one and ends the splitting. Returns False, and adds nothing, if the table is no longer as in `of`
        or the chunks do not follow the known ones. `rows_guess` is the server's estimate of the table's rows;
        None leaves the stored one."""
        with self.transaction():
            state = self.table(of.table)
            if state is None or not is_splitting(state) or state.start != of.start:
                return False
            last = self.last_chunk(of.table)
            if chunks[0].number != (last.number + 1 if last else 0) or state.schema != of.schema:
                return False
            self.commit([ChunksAdded(chunks)])
            found = replace(state, rows_guess=state.rows_guess if rows_guess is None else rows_guess)
            if chunks[-1].upper is None:
                found = replace(found, phase=Reading(splitting=False))
            if found != state:
                self.put_table(found)
            return True

    def park(
        self,
        table: TableId,
        *,
        offset: Offset,
        reason: str,
        hint: str,
        resnapshot: str = "",
        resumes: Offset | None = None,
    ) -> None:
        """Parks a table: deletes its chunks, stops its partial snapshots, and adds an entry to its history.
        Does nothing if the table is unknown, parked, dropped or removed. `resnapshot`: if it is not empty, a
        new snapshot of the table becomes pending, for this reason. `resumes`: see `Parked`."""
        with self.transaction():
            state = self.table(table)
            if state is not None and state.parked is None and not state.gone:
                parked = state.park(offset, reason, hint, resumes)
                self.put_table(parked.read_again(resnapshot) if resnapshot else parked)
                self.end_partials(table, f"the table was parked: {reason}")
                self.forget_chunks(table)
                version = state.schema.version
                self.add_change(
                    Change(table, version, offset, reason, "read again" if resnapshot else "parked")
                )

    # writing ------------------------------------------------------------------------------------------------

    def _apply(self, change: StateChange) -> None:
        match change:
            case ChunksAdded(chunks):
                self._insert(chunks)
            case ChunkStaged(staged):
                self._stage(staged)
            case ChunkVoided(chunk):
                self._db.execute(
                    f"UPDATE chunks SET status = 'planned', manifest = NULL, rows = 0 {_THIS}", _place(chunk)
                )
            case ChunksPlaced(chunks):
                sql = f"UPDATE chunks SET status = 'placed', manifest = NULL {_THIS}"
                self._db.executemany(sql, map(_place, chunks))
            case ChunksForgotten(table):
                name = (str(table),)
                self._db.execute("DELETE FROM chunks WHERE name = ?", name)
                self._db.execute(
                    f"UPDATE snapshots SET status = 'splitting' WHERE name = ? AND {_OPEN}", name
                )
            case PartialBegun(number, signal, table, since, part):
                self._db.execute(
                    "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, 'splitting', '', 0, 0)",
                    (number, signal, str(table), since, json.dumps(part.to_json())),
                )
            case PartialSplit(number, chunks):
                self._db.execute("DELETE FROM chunks WHERE snapshot = ?", (number,))
                self._insert(chunks)
                self._db.execute("UPDATE snapshots SET status = 'reading' WHERE number = ?", (number,))
            case PartialEnded(number, status, reason):
                placed = "FROM chunks WHERE snapshot = ?1 AND status = 'placed'"
                self._db.execute(
                    f"UPDATE snapshots SET status = ?2, reason = ?3, chunks = (SELECT count(*) {placed}), "
                    f"rows = (SELECT coalesce(sum(rows), 0) {placed}) WHERE number = ?1 AND {_OPEN}",
                    (number, status, reason),
                )
                self._db.execute("DELETE FROM chunks WHERE snapshot = ?", (number,))
            case _:
                super()._apply(change)

    def _stage(self, staged: StagedChunk) -> None:
        chunk = staged.chunk
        self._db.execute(
            f"UPDATE chunks SET status = 'staged', manifest = ?, rows = ?, reads = reads + 1 {_THIS} "
            "AND lower = ? AND upper = ? AND part = ? AND status = 'planned'",
            (
                json.dumps(staged.to_json()), staged.rows, *_place(chunk),
                json.dumps(chunk.lower), json.dumps(chunk.upper), json.dumps(chunk.part()),
            ),
        )  # fmt: skip

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
        """Returns the rows in placed chunks, and the rows in staged or placed chunks."""
        sql = "SELECT status, sum(rows) FROM chunks WHERE name = ? AND snapshot = ? GROUP BY status"
        sums = {status: rows or 0 for status, rows in self._rows(sql, str(table), snapshot)}
        return sums.get("placed", 0), sums.get("placed", 0) + sums.get("staged", 0)

    def totals(self) -> dict[TableId, Totals]:
        """Returns the counts of each table's full snapshot. Tables without chunks are left out."""
        sql = "SELECT name, status, count(*), sum(rows) FROM chunks WHERE snapshot = 0 GROUP BY name, status"
        found: dict[TableId, Totals] = {}
        for name, status, count, rows in self._rows(sql):
            table = TableId.parse(name)
            found[table] = found.get(table, Totals()).plus(status, count, rows or 0)
        return found

    def chunk_staged(self, staged: StagedChunk) -> None:
        """Records a chunk as staged, with its manifest. Does nothing if the chunk is not planned with the
        same bounds: of several attempts to read a chunk, the first recorded one counts."""
        self.commit([ChunkStaged(staged)])

    def chunk_void(self, chunk: Chunk) -> None:
        """Discards the staged rows of a chunk. The chunk is planned again, so it will be read again."""
        self.commit([ChunkVoided(chunk)])

    def forget_chunks(self, table: TableId) -> None:
        """Deletes all chunks of a table. Its open partial snapshots are split again."""
        self.commit([ChunksForgotten(table)])

    def chunks_placed(self, chunks: Collection[StagedChunk]) -> None:
        """Records chunks as placed, and deletes their manifests, which are not needed any more. Ends a
        partial snapshot whose last chunk is placed."""
        with self.transaction():
            self.commit([ChunksPlaced([staged.chunk for staged in chunks])])
            for number in {staged.chunk.snapshot for staged in chunks} - {0}:
                left = "SELECT 1 FROM chunks WHERE snapshot = ? AND status <> 'placed'"
                if not self._rows(left, number):
                    self.end_partial(number, "done")

    # partial snapshots --------------------------------------------------------------------------------------

    def begin_partial(self, signal: str, table: TableId, since: Offset, part: Part) -> int:
        """Stores a new partial snapshot. Returns its number."""
        with self.transaction():
            number = int(self._rows("SELECT coalesce(max(number), 0) + 1 FROM snapshots")[0][0])
            self.commit([PartialBegun(number, signal, table, since, part)])
            return number

    def partials(self, *, signal: str | None = None) -> list[PartialSnapshot]:
        """Returns the partial snapshots that have not ended. With `signal`, returns all that this signal
        requested."""
        where, values = (_OPEN, ()) if signal is None else ("signal = ?", (signal,))
        return [
            PartialSnapshot(number, by, TableId.parse(name), since, Part.from_json(json.loads(part)), *rest)
            for number, by, name, since, part, *rest in self._rows(
                f"SELECT * FROM snapshots WHERE {where} ORDER BY number", *values
            )
        ]

    def set_partial_chunks(self, snapshot: PartialSnapshot, chunks: Sequence[Chunk]) -> None:
        """Stores the chunks of a partial snapshot. Does nothing if it already has chunks or has ended."""
        with self.transaction():
            now = self._rows("SELECT status FROM snapshots WHERE number = ?", snapshot.number)
            if now == [("splitting",)]:
                self.commit([PartialSplit(snapshot.number, chunks)])

    def end_partial(self, number: int, status: PartStatus, reason: str = "") -> None:
        """Ends a partial snapshot and deletes its chunks. Stores how many chunks and rows were placed. If it
        has ended before, its status does not change."""
        self.commit([PartialEnded(number, status, reason)])

    def end_partials(self, table: TableId, reason: str) -> None:
        """Stops all open partial snapshots of a table."""
        with self.transaction():
            for one in self.partials():
                if one.table == table:
                    self.end_partial(one.number, "stopped", reason)


def _place(chunk: Chunk) -> tuple[str, int, int]:
    return str(chunk.table), chunk.snapshot, chunk.number


def _chunk(row: tuple[Any, ...]) -> ChunkState:
    name, snapshot, number, lower, upper, part, status, manifest, reads, _ = row
    lower, upper = (
        None if value is None else tuple(value) for value in (json.loads(lower), json.loads(upper))
    )
    staged = StagedChunk.from_json(json.loads(manifest)) if manifest else None
    more = Part.from_json(json.loads(part))
    chunk = Chunk(TableId.parse(name), number, lower, upper, snapshot, more.condition, more.keys)
    return ChunkState(chunk, status, staged, reads)
