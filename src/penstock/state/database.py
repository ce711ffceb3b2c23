"""The SQLite file under the state store: opening, transactions, names and values."""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import BEGIN_ANEW, ConfigError
from penstock.model.offset import Offset

FORMAT = 5

_UPGRADED = "4"
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
    name TEXT NOT NULL, snapshot INTEGER NOT NULL, number INTEGER NOT NULL, lower TEXT, upper TEXT,
    part TEXT NOT NULL, status TEXT NOT NULL, manifest TEXT, reads INTEGER NOT NULL,
    PRIMARY KEY (name, snapshot, number)
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
CREATE TABLE IF NOT EXISTS signals (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, data TEXT NOT NULL,
    channel TEXT NOT NULL, status TEXT NOT NULL, answer TEXT NOT NULL,
    received_us INTEGER NOT NULL, updated_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS snapshots (
    number INTEGER PRIMARY KEY, signal TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL,
    part TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, chunks INTEGER NOT NULL,
    rows INTEGER NOT NULL
);
"""

_INDEX = """
CREATE INDEX IF NOT EXISTS chunks_planned ON chunks (name, snapshot, number) WHERE status = 'planned'
"""
"""What is still to be read is asked for before each chunk, of snapshots of many chunks and of many tables."""

_UPGRADE = """
ALTER TABLE chunks RENAME TO chunks_before;
CREATE TABLE chunks (
    name TEXT NOT NULL, snapshot INTEGER NOT NULL, number INTEGER NOT NULL, lower TEXT, upper TEXT,
    part TEXT NOT NULL, status TEXT NOT NULL, manifest TEXT, reads INTEGER NOT NULL,
    PRIMARY KEY (name, snapshot, number)
) WITHOUT ROWID;
INSERT INTO chunks SELECT name, 0, number, lower, upper, '{}', status, manifest, reads FROM chunks_before;
DROP TABLE chunks_before;
UPDATE meta SET value = '5' WHERE name = 'format';
"""


class Database:
    """Thread-safe; one connection, short transactions."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.path = directory / "state.sqlite"
        self._lock = threading.RLock()
        self._undone = 0
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

    @staticmethod
    def exists(directory: Path) -> bool:
        return (directory / "state.sqlite").exists()

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_DDL)
        with self.transaction():
            if self.meta("format") == _UPGRADED:
                for statement in _UPGRADE.split(";")[:-1]:
                    self._db.execute(statement)
            self._db.execute(_INDEX)
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
                self._undone += 1
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @property
    def own_changes(self) -> int:
        """Grows with each row that this process writes. Costs nothing."""
        return self._db.total_changes + self._undone

    def seen(self) -> tuple[int, ...]:
        """Changes whenever anything in the file does, whoever changed it."""
        with self._lock:
            return (*self._others(), self._db.total_changes)

    def _others(self) -> tuple[int, int]:
        """Changes when another process commits, and when something of ours is taken back."""
        return int(self._rows("PRAGMA data_version")[0][0]), self._undone

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read in the block is of one moment."""
        with self._lock:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
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

    def metas(self, prefix: str) -> dict[str, str]:
        """Values of the names that begin with it, by what follows."""
        sql = "SELECT name, value FROM meta WHERE name >= ? AND substr(name, 1, ?) = ?"
        return {name[len(prefix) :]: value for name, value in self._rows(sql, prefix, len(prefix), prefix)}

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


def now_us() -> int:
    return time.time_ns() // 1000
