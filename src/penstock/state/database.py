"""The SQLite file of the state store: opening, transactions, and named values."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.disk import directory as directories
from penstock.errors import (
    START_OVER,
    ConfigError,
    DriverReplaced,
    InternalError,
    PenstockError,
    TransientError,
)
from penstock.model.offset import Offset
from penstock.state.changes import Journal, StateChange, ValueSet
from penstock.state.layout import DDL, FORMAT, UPGRADED, statements, upgrade

_GENERATION = "driver_generation"
BEGAN_AFTER = "began_after"
"""Key of `Database.began_after`."""


class Database:
    """Thread-safe access over one connection, in short transactions.

    `owner`: the caller is the pipeline itself, which has locked the state directory. It converts a file of an
    earlier format to this one. It also checks the whole file, so that damage is found now and not in the
    middle of an epoch. Other callers find damage when they read a damaged page, and get the same error.

    Raises `ConfigError` if the file is damaged, has another format, or cannot be opened.
    """

    def __init__(self, directory: Path, *, read_only: bool = False, owner: bool = False) -> None:
        self.path = directory / "state.sqlite"
        self._lock = threading.RLock()
        self._undone = 0
        self._generation = 0
        self._is_closed = False
        self._changes: list[StateChange] | None = None
        """Of the step that is being made."""
        self.journal: Journal | None = None
        """Gets each step before it is committed here. If it raises an error, the step is rolled back."""
        try:
            if read_only:
                self._db = sqlite3.connect(
                    f"file:{self.path}?mode=ro", uri=True, check_same_thread=False, timeout=30
                )
            else:
                make_private(self.path)
                self._db = sqlite3.connect(
                    self.path, check_same_thread=False, timeout=30, isolation_level=None
                )
                self._prepare(upgrades=owner)
            self._check_format()
            if owner:
                self._check_pages()
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error

    @staticmethod
    def exists(directory: Path) -> bool:
        return (directory / "state.sqlite").exists()

    def _prepare(self, *, upgrades: bool) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with self.transaction():
            known = bool(self._rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'"))
            found = self.meta("format") if known else None
            before = found is not None and found != str(FORMAT)
            if found is not None and found in UPGRADED and upgrades:
                upgrade(self._db, found)
            elif not before:
                for statement in statements(DDL):
                    self._db.execute(statement)
                for name, value in (("format", str(FORMAT)), ("uuid", str(uuid.uuid4())), ("position", "")):
                    self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))
        if before and upgrades:
            with contextlib.suppress(sqlite3.Error):  # freed pages then stay in the file, which is harmless
                self._db.execute("VACUUM")

    def _check_pages(self) -> None:
        [(found, *_), *_] = self._rows("PRAGMA quick_check(1)")
        if found != "ok":
            raise self._unusable(sqlite3.DatabaseError(str(found).replace("\n", " ")))

    def _unusable(self, error: Exception) -> PenstockError:
        if self._is_closed:  # a thread that has not ended yet asks for something
            return TransientError(
                f"The pipeline state {self.path} is closed, because the pipeline has ended."
            )
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            return ConfigError(
                f"The pipeline state {self.path} is damaged: {error}.",
                hint=f"Restore the newest copy of the whole `state` directory. Without one, {START_OVER}",
                path=str(self.path),
            )
        return ConfigError(
            f"The pipeline state {self.path} cannot be used: {error}.",
            hint="Check that the pipeline has run with this `state` directory, and that the disk is not full "
            "or read-only.",
            path=str(self.path),
        )

    def _check_format(self) -> None:
        if (found := self.meta("format")) != str(FORMAT):
            raise ConfigError(
                f"{self.path} has format {found}; this version of Penstock uses format {FORMAT}.",
                hint="Start the pipeline: it converts this state to the new format and continues."
                if found in UPGRADED
                else "Use the version of Penstock that wrote it, or start with a new `state` directory.",
            )

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._db.close()

    def commit(self, changes: Sequence[StateChange]) -> None:
        """Makes all of the changes durable, or none. Within a `transaction` they become durable at its end,
        and are read before. Every write of the state is a call of this."""
        with self.transaction():
            assert self._changes is not None
            for change in changes:
                self._apply(change)
                self._changes.append(change)

    def _apply(self, change: StateChange) -> None:
        match change:
            case ValueSet(name, None):
                self._db.execute("DELETE FROM meta WHERE name = ?", (name,))
            case ValueSet(name, value):
                self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
            case _:
                raise InternalError(f"the state cannot hold a {type(change).__name__}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Runs the block as one durable step: everything that it commits is one list of changes. May be
        nested; only the outermost block is a step. Raises `ConfigError` if the file cannot be written or is
        damaged."""
        with self._lock:
            if self._is_closed:
                raise self._unusable(sqlite3.ProgrammingError("closed"))
            if self._db.in_transaction:
                if self._changes is None:
                    raise InternalError("the state is written while it is being read")
                yield
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._changes = []
                self._refuse_replaced()
                yield
                if self.journal is not None and self._changes:
                    self.journal.commit(tuple(self._changes))
                self._db.execute("COMMIT")
            except BaseException as error:
                self._roll_back()
                if isinstance(error, sqlite3.OperationalError):
                    raise self._unwritable(error) from error
                if type(error) is sqlite3.DatabaseError:  # damage; its subclasses are other errors
                    raise self._unusable(error) from error
                raise
            finally:
                self._changes = None

    def _refuse_replaced(self) -> None:
        """Raises an error if the state belongs to a successor: on a disk that machines share, a driver that
        was suspended finds the state of the driver that has replaced it."""
        if self._generation and self._generation < self.generation:
            raise DriverReplaced(
                f"Another driver has taken over the pipeline state {self.path}.",
                hint="Nothing is lost: the other one continues.",
                path=str(self.path),
            )

    def _roll_back(self) -> None:
        """Rolls back the transaction, also after a COMMIT that failed: later statements must not join a
        transaction that nobody commits."""
        self._undone += 1
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # SQLite rolls some transactions back itself
                self._db.execute("ROLLBACK")

    def _unwritable(self, error: Exception) -> ConfigError:
        """Returns the error for a failed write. It ends the run, because the pipeline may have acted on what
        was not written."""
        return ConfigError(
            f"The pipeline state {self.path} cannot be written: {error}.",
            hint="Free space on its disk, or make it writable again. Then start the pipeline again: it "
            "continues where it stopped.",
            path=str(self.path),
        )

    @property
    def own_changes(self) -> int:
        """Number that increases with each row that this process writes and each transaction that is rolled
        back. Needs no query."""
        return self._db.total_changes + self._undone

    def revision(self) -> tuple[int, ...]:
        """Returns a value that changes whenever any process changes the file."""
        with self._lock:
            return (*self._others(), self._db.total_changes)

    def _others(self) -> tuple[int, int]:
        """Returns a value that changes when another process commits, or a transaction of this process is
        rolled back."""
        return int(self._rows("PRAGMA data_version")[0][0]), self._undone

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Opens a read transaction: all reads in the block see the same state. May be nested."""
        with self._lock:
            if self._db.in_transaction:
                yield
                return
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
        """Returns the values of all names that begin with `prefix`. The keys are the names without the
        prefix."""
        sql = "SELECT name, value FROM meta WHERE name >= ? AND substr(name, 1, ?) = ?"
        return {name[len(prefix) :]: value for name, value in self._rows(sql, prefix, len(prefix), prefix)}

    def set_meta(self, name: str, value: str) -> None:
        self.commit([ValueSet(name, value)])

    def remove_meta(self, name: str) -> None:
        self.commit([ValueSet(name, None)])

    @property
    def uuid(self) -> str:
        return str(self.meta("uuid"))

    @property
    def generation(self) -> int:
        """Number of the newest driver that has used this state (`runtime/driver_lease.py`); 0: none had a
        lease."""
        return int(self.meta(_GENERATION) or 0)

    def begin_generation(self, number: int) -> None:
        """Says which driver this is. From then on, earlier ones cannot write any more."""
        self.set_meta(_GENERATION, str(number))
        self._generation = number

    @property
    def began_after(self) -> int:
        """The greatest epoch that an earlier state of this pipeline may have used (`runtime/fresh_state.py`).
        0: there was none."""
        return int(self.meta(BEGAN_AFTER) or 0)

    @property
    def position(self) -> Offset | None:
        """Offset up to which the log is planned, or concerns no captured table. None if nothing is planned
        yet."""
        text = self.meta("position")
        return Offset(int(text)) if text else None

    def advance(self, position: Offset) -> None:
        """Moves the position. Plans do this themselves; call it for log that concerns no captured table."""
        self.set_meta("position", str(position))


def make_private(path: Path) -> None:
    """Creates the file, readable for this account alone. SQLite gives its other files (`-wal`, `-shm`) the
    same mode."""
    directories.make(path.parent, "state")
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def now_us() -> int:
    return time.time_ns() // 1000
