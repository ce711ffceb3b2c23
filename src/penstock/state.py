"""What a pipeline remembers: one SQLite file, `state.sqlite`, written only by the running pipeline.

Why SQLite: a plan, the tables it changes and the chunks it places become durable in one transaction, and a
kill -9 at any point leaves the state before or after it. `synchronous=FULL` makes a commit survive power
loss. Other processes (`penstock status`, `verify`) read it while it is written (WAL).

Order of facts, which everything else relies on (invariant 5):

1. a table's start is committed before its first chunk is read;
2. a plan is committed before any of its steps runs;
3. `applied` is committed after the sinks made every step durable.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors import BEGIN_ANEW, ConfigError
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import EpochPlan, Kept
from penstock.model.schema import TableId, TableSchema
from penstock.model.table import Change, ChunkState, ChunkStatus, TableState

FORMAT = 4

_UPGRADED = "3"
"""The format that a run turns into the present one."""

_DDL = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tables (
    name TEXT PRIMARY KEY, status TEXT NOT NULL, start INTEGER NOT NULL, schema TEXT NOT NULL,
    snapshot TEXT NOT NULL, written INTEGER NOT NULL, last_epoch INTEGER NOT NULL,
    reason TEXT NOT NULL, hint TEXT NOT NULL, parked_at INTEGER, replaces INTEGER NOT NULL,
    rows_guess INTEGER NOT NULL, begins TEXT NOT NULL, due TEXT NOT NULL, kept TEXT,
    resumes INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS chunks (
    name TEXT NOT NULL, number INTEGER NOT NULL, lower TEXT, upper TEXT, status TEXT NOT NULL,
    manifest TEXT, reads INTEGER NOT NULL, PRIMARY KEY (name, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS epochs (
    epoch INTEGER PRIMARY KEY, start INTEGER NOT NULL, end INTEGER NOT NULL, plan TEXT NOT NULL,
    planned_us INTEGER NOT NULL, applied_us INTEGER, result TEXT
);
CREATE TABLE IF NOT EXISTS schemas (
    name TEXT NOT NULL, version INTEGER NOT NULL, since INTEGER NOT NULL, schema TEXT NOT NULL,
    PRIMARY KEY (name, version)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL, offset INTEGER NOT NULL,
    commit_us INTEGER, noted_us INTEGER NOT NULL, what TEXT NOT NULL, decision TEXT NOT NULL,
    statement TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, argument TEXT NOT NULL, answer TEXT
);
"""


@dataclass(frozen=True)
class Epoch:
    plan: EpochPlan
    applied: bool


class StateStore:
    """Typed access to `state.sqlite`. Thread-safe; one connection, short transactions."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.path = directory / "state.sqlite"
        self._lock = threading.RLock()
        try:
            if read_only:
                self._db = sqlite3.connect(
                    f"file:{self.path}?mode=ro", uri=True, check_same_thread=False, timeout=30
                )
            else:
                directory.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(
                    self.path, check_same_thread=False, timeout=30, isolation_level=None
                )
                self._prepare()
            self._check_format()
            self._check_pages()
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_DDL)
        with self.transaction():
            if self.meta("format") == _UPGRADED:
                self._db.execute("ALTER TABLE tables ADD COLUMN resumes INTEGER")
                self._db.execute("UPDATE meta SET value = '4' WHERE name = 'format'")
            for name, value in (("format", str(FORMAT)), ("uuid", str(uuid.uuid4())), ("position", "")):
                self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))

    def _check_pages(self) -> None:
        """Reads the whole file once: damage is found now, not in the middle of an epoch."""
        [(found, *_), *_] = self._rows("PRAGMA quick_check(1)")
        if found != "ok":
            raise self._unusable(sqlite3.DatabaseError(str(found).replace("\n", " ")))

    def _unusable(self, error: Exception) -> ConfigError:
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if damaged:
            return ConfigError(
                f"The pipeline state {self.path} is damaged: {error}.",
                hint=f"Restore the newest copy of the whole `state` directory. Without one, {BEGIN_ANEW}",
                path=str(self.path),
            )
        return ConfigError(
            f"The pipeline state {self.path} cannot be opened: {error}.",
            hint="Has this pipeline been run with this `state` directory yet? Is the disk full or read-only?",
            path=str(self.path),
        )

    def _check_format(self) -> None:
        if (found := self.meta("format")) != str(FORMAT):
            raise ConfigError(
                f"{self.path} has format {found}, this Penstock knows {FORMAT}.",
                hint="Run the pipeline: it goes on with this state, in the new format."
                if found == _UPGRADED
                else "Use the version of Penstock that wrote it, or start with a new `state` directory.",
            )

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing. Nests: only the outermost commits."""
        with self._lock:
            if self._db.in_transaction:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._unusable(error) from error

    # meta ---------------------------------------------------------------------------------------------------

    def meta(self, name: str) -> str | None:
        rows = self._rows("SELECT value FROM meta WHERE name = ?", name)
        return rows[0][0] if rows else None

    def set_meta(self, name: str, value: str) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    @property
    def uuid(self) -> str:
        return str(self.meta("uuid"))

    @property
    def position(self) -> Offset | None:
        """Everything up to here is planned (or concerns no captured table). None: nothing yet."""
        text = self.meta("position")
        return Offset(int(text)) if text else None

    def advance(self, position: Offset) -> None:
        """Moves over log that concerns no captured table."""
        self.set_meta("position", str(position))

    # tables -------------------------------------------------------------------------------------------------

    def tables(self) -> dict[TableId, TableState]:
        return {state.table: state for state in map(_table, self._rows("SELECT * FROM tables ORDER BY name"))}

    def table(self, table: TableId) -> TableState | None:
        rows = self._rows("SELECT * FROM tables WHERE name = ?", str(table))
        return _table(rows[0]) if rows else None

    def put_table(self, state: TableState) -> None:
        with self.transaction():
            self._db.execute(
                f"INSERT OR REPLACE INTO tables VALUES ({', '.join('?' * 16)})",
                (
                    str(state.table), state.status, state.start, state.schema.to_json(), state.snapshot,
                    int(state.written), state.last_epoch, state.reason, state.hint, state.parked_at,
                    state.replaces, state.rows_guess, state.begins, state.due,
                    json.dumps(state.kept.to_json()) if state.kept else None, state.resumes,
                ),
            )  # fmt: skip
            self._db.execute(
                "INSERT OR IGNORE INTO schemas VALUES (?, ?, ?, ?)",
                (str(state.table), state.schema.version, state.start, state.schema.to_json()),
            )

    def park(
        self,
        table: TableId,
        *,
        offset: Offset,
        reason: str,
        hint: str,
        due: str = "",
        resumes: Offset | None = None,
    ) -> None:
        """The table is left alone; `due`: until it has been read again, for that reason. `resumes`: see
        `TableState`."""
        with self.transaction():
            state = self.table(table)
            if state is not None and state.status != "parked":
                parked = replace(state, status="parked", reason=reason, hint=hint, parked_at=offset)
                self.put_table(replace(parked, due=due, resumes=resumes))
                self._db.execute("DELETE FROM chunks WHERE name = ?", (str(table),))
                version = state.schema.version
                self.note(Change(table, version, offset, reason, "parked" if not due else "read again"))

    def note(self, change: Change) -> None:
        """Appends to the history of tables' definitions."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO history VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    str(change.table), change.version, change.offset, change.commit_us, _now_us(),
                    change.what, change.decision, change.statement,
                ),
            )  # fmt: skip

    def history(self, *, last_only: bool = False) -> list[Change]:
        """What happened to definitions, oldest first; `last_only`: each table's newest entry."""
        newest = "WHERE id IN (SELECT max(id) FROM history GROUP BY name) " if last_only else ""
        rows = self._rows(
            "SELECT name, version, offset, what, decision, statement, commit_us, noted_us FROM history "
            f"{newest}ORDER BY id"
        )
        return [Change(TableId.parse(name), *rest) for name, *rest in rows]

    def last_change(self) -> int:
        """The id of the history's newest entry; 0: it is empty."""
        return int(self._rows("SELECT coalesce(max(id), 0) FROM history")[0][0])

    def history_after(self, entry: int) -> list[tuple[int, Change]]:
        """What was noted after an entry, with ids, in their order."""
        rows = self._rows(
            "SELECT id, name, version, offset, what, decision, statement, commit_us, noted_us FROM history "
            "WHERE id > ? ORDER BY id",
            entry,
        )
        return [(number, Change(TableId.parse(name), *rest)) for number, name, *rest in rows]

    # chunks -------------------------------------------------------------------------------------------------

    def chunks(self, table: TableId, status: ChunkStatus | None = None) -> list[ChunkState]:
        rows = self._rows("SELECT * FROM chunks WHERE name = ? ORDER BY number", str(table))
        return [_chunk(row) for row in rows if status is None or row[4] == status]

    def next_planned(self, table: TableId, taken: set[int]) -> Chunk | None:
        """The first chunk that is still to be read and that nobody reads now."""
        rows = self._rows(
            "SELECT * FROM chunks WHERE name = ? AND status = 'planned' ORDER BY number LIMIT ?",
            str(table),
            len(taken) + 1,
        )
        return next((state.chunk for state in map(_chunk, rows) if state.chunk.number not in taken), None)

    def set_rows_guess(self, table: TableId, rows: int) -> None:
        with self.transaction():
            state = self.table(table)
            if state is not None:
                self.put_table(replace(state, rows_guess=rows))

    def set_chunks(self, table: TableId, chunks: list[Chunk], *, start: Offset) -> None:
        """Every chunk of the table is known; nothing of it has been read. Chunks of what the table was before
        `start` are no matter any more."""
        with self.transaction():
            state = self.table(table)
            if state is None or state.snapshot != "splitting" or state.start != start:
                return
            self.forget_chunks(table)
            self._db.executemany(
                "INSERT INTO chunks VALUES (?, ?, ?, ?, 'planned', NULL, 0)",
                [(str(c.table), c.number, json.dumps(c.lower), json.dumps(c.upper)) for c in chunks],
            )
            self.put_table(replace(state, snapshot="reading" if chunks else "done"))

    def chunk_counts(self, table: TableId) -> dict[str, int]:
        return dict(
            self._rows("SELECT status, count(*) FROM chunks WHERE name = ? GROUP BY status", str(table))
        )

    def rows_placed(self, table: TableId) -> tuple[int, int]:
        """Rows of placed chunks and of all staged or placed ones."""
        sql = (
            "SELECT status, sum(json_extract(manifest, '$.rows')) FROM chunks WHERE name = ? GROUP BY status"
        )
        sums = {status: rows or 0 for status, rows in self._rows(sql, str(table))}
        return sums.get("placed", 0), sums.get("placed", 0) + sums.get("staged", 0)

    def chunk_staged(self, staged: StagedChunk) -> None:
        """Records a manifest. The first attempt of a chunk that was recorded stays."""
        with self.transaction():
            self._db.execute(
                "UPDATE chunks SET status = 'staged', manifest = ?, reads = reads + 1 "
                "WHERE name = ? AND number = ? AND lower = ? AND upper = ? AND status = 'planned'",
                (
                    json.dumps(staged.to_json()),
                    str(staged.chunk.table),
                    staged.chunk.number,
                    json.dumps(staged.chunk.lower),
                    json.dumps(staged.chunk.upper),
                ),
            )

    def chunk_void(self, chunk: Chunk) -> None:
        """The staged rows are worthless: the chunk is read again."""
        with self.transaction():
            self._db.execute(
                "UPDATE chunks SET status = 'planned', manifest = NULL WHERE name = ? AND number = ?",
                (str(chunk.table), chunk.number),
            )

    def forget_chunks(self, table: TableId) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM chunks WHERE name = ?", (str(table),))

    # epochs -------------------------------------------------------------------------------------------------

    def plan(self, plan: EpochPlan, *, alone: bool = False) -> None:
        """Makes a plan durable and moves the position. From here on the epoch will be applied exactly as
        planned. `alone`: it is of a table that catches up, behind the position, which stays."""
        with self.transaction():
            reach = LogRange(self.position, self.position) if alone and self.position else plan.range
            self._db.execute(
                "INSERT INTO epochs VALUES (?, ?, ?, ?, ?, NULL, NULL)",
                (plan.epoch, reach.start, reach.end, plan.to_json(), _now_us()),
            )
            self.advance(reach.end)

    def last_epoch(self) -> int:
        return int(self._rows("SELECT coalesce(max(epoch), 0) FROM epochs")[0][0])

    def pending(self) -> list[EpochPlan]:
        """Plans that are not applied yet, oldest first."""
        rows = self._rows("SELECT plan FROM epochs WHERE applied_us IS NULL ORDER BY epoch")
        return [EpochPlan.from_json(row[0]) for row in rows]

    def plan_of(self, epoch: int) -> EpochPlan | None:
        """None: there was none, or it is long applied and forgotten."""
        rows = self._rows("SELECT plan FROM epochs WHERE epoch = ?", epoch)
        return EpochPlan.from_json(rows[0][0]) if rows else None

    def has_pending(self) -> bool:
        return bool(self._rows("SELECT 1 FROM epochs WHERE applied_us IS NULL LIMIT 1"))

    def applied(self, plan: EpochPlan, result: dict[str, Any], *, keep: int = 1000) -> None:
        """Call inside the transaction that records what the epoch did to tables and chunks."""
        with self.transaction():
            self._db.execute(
                "UPDATE epochs SET applied_us = ?, result = ? WHERE epoch = ?",
                (_now_us(), json.dumps(result), plan.epoch),
            )
            self._db.execute(
                "DELETE FROM epochs WHERE epoch < ? AND applied_us IS NOT NULL", (plan.epoch - keep,)
            )

    def chunks_placed(self, chunks: Iterable[StagedChunk]) -> None:
        with self.transaction():
            self._db.executemany(
                "UPDATE chunks SET status = 'placed' WHERE name = ? AND number = ?",
                [(str(staged.chunk.table), staged.chunk.number) for staged in chunks],
            )

    def applied_offset(self) -> Offset | None:
        """Everything up to here is durable at the targets."""
        rows = self._rows("SELECT min(start) FROM epochs WHERE applied_us IS NULL")
        return Offset(rows[0][0]) if rows and rows[0][0] is not None else self.position

    def results(self, last: int = 20) -> list[tuple[int, LogRange, int, int, dict[str, Any]]]:
        """Newest applied epochs: (epoch, range, planned µs, applied µs, result)."""
        rows = self._rows(
            "SELECT epoch, start, end, planned_us, applied_us, result FROM epochs "
            "WHERE applied_us IS NOT NULL ORDER BY epoch DESC LIMIT ?",
            last,
        )
        return [(e, LogRange(s, t), p, a, json.loads(r)) for e, s, t, p, a, r in rows]

    def result_ending_at(self, offset: Offset) -> dict[str, Any] | None:
        rows = self._rows(
            "SELECT result FROM epochs WHERE end = ? AND applied_us IS NOT NULL ORDER BY epoch DESC", offset
        )
        return json.loads(rows[0][0]) if rows else None

    # requests of other processes ----------------------------------------------------------------------------

    def request(self, kind: str, argument: str) -> int:
        with self.transaction():
            cursor = self._db.execute(
                "INSERT INTO requests (kind, argument, answer) VALUES (?, ?, NULL)", (kind, argument)
            )
            return int(cursor.lastrowid or 0)

    def open_requests(self) -> list[tuple[int, str, str]]:

        return [tuple(r) for r in self._rows("SELECT id, kind, argument FROM requests WHERE answer IS NULL")]

    def answer(self, request: int, answer: dict[str, Any]) -> None:
        with self.transaction():
            self._db.execute("UPDATE requests SET answer = ? WHERE id = ?", (json.dumps(answer), request))
            self._db.execute("DELETE FROM requests WHERE id < ? AND answer IS NOT NULL", (request - 1000,))

    def answer_to(self, request: int) -> dict[str, Any] | None:
        rows = self._rows("SELECT answer FROM requests WHERE id = ?", request)
        return json.loads(rows[0][0]) if rows and rows[0][0] else None


def _table(row: tuple[Any, ...]) -> TableState:
    _, status, start, schema, snapshot, written, last_epoch, reason, hint, parked_at, *rest = row
    replaces, guess, begins, due, kept, resumes = rest
    parsed = TableSchema.from_json(schema)
    return TableState(
        table=parsed.table,
        start=start,
        schema=parsed,
        status=status,
        snapshot=snapshot,
        written=bool(written),
        last_epoch=last_epoch,
        reason=reason,
        hint=hint,
        parked_at=parked_at,
        replaces=replaces,
        rows_guess=guess,
        begins=begins,
        due=due,
        kept=Kept.from_json(json.loads(kept)) if kept else None,
        resumes=resumes,
    )


def _chunk(row: tuple[Any, ...]) -> ChunkState:
    name, number, lower, upper, status, manifest, reads = row
    lower, upper = (
        None if value is None else tuple(value) for value in (json.loads(lower), json.loads(upper))
    )
    staged = StagedChunk.from_json(json.loads(manifest)) if manifest else None
    return ChunkState(Chunk(TableId.parse(name), number, lower, upper), status, staged, reads)


def _now_us() -> int:
    return time.time_ns() // 1000
