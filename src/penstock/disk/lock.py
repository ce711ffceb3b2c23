"""Locks that are files: they tell processes apart, on one machine or on several that share a file system.

Each is an open file description lock of Linux (F_OFD_SETLK) on the whole file, and nothing in the file
matters. Why this kind and no other:

- The kernel gives it up exactly when the open file is closed for good: also when its process is killed.
- It belongs to the open file, so threads of one process exclude each other too, and closing another
  descriptor of the file gives up nothing.
- Whether it is held can be asked without taking it, so a question never turns away a process that starts.
- It excludes the record locks that Java's FileChannel takes, and sees them (`spark/lock.py`).

A process that is forked shares the open file, and so the lock, until it executes another program. A lock may
therefore outlive its process by a moment; whoever takes it waits that long (`GRACE_SECONDS`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.backoff import Backoff, Schedule

GRACE_SECONDS = 1.0
"""How long a lock is tried for before it counts as somebody else's."""

_POLL = Schedule(first_s=0.01, max_s=0.1)
_FLOCK = struct.Struct("hh4xqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # never waits for a pipe, never follows a link


class FileLock:
    """A lock that is held until `release`, or until this process ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def is_current(self) -> bool:
        """Whether the path still names the file that is locked. If not, others lock another file."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        os.close(self.descriptor)


def take(path: Path, *, wait_seconds: float = GRACE_SECONDS) -> FileLock | None:
    """The lock; None if another holds it all the while. The file is made if it is missing, for this account
    alone. Raises `OSError` if it cannot be opened or locked."""
    deadline = time.monotonic() + wait_seconds
    backoff = Backoff(_POLL)
    while True:
        lock = _try(path)
        if lock is not None:
            return lock
        if time.monotonic() >= deadline:
            return None
        backoff.failed()
        backoff.wait()  # polls the lock, with a limit


@contextlib.contextmanager
def held(path: Path, *, wait_seconds: float = GRACE_SECONDS) -> Iterator[FileLock | None]:
    """Holds the lock while the block lasts; None if another holds it, as with `take`."""
    lock = take(path, wait_seconds=wait_seconds)
    try:
        yield lock
    finally:
        if lock is not None:
            lock.release()


def _try(path: Path) -> FileLock | None:
    while True:
        lock = FileLock(path, os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600))
        try:
            fcntl.fcntl(lock.descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            if lock.is_current():
                return lock
        except (BlockingIOError, PermissionError):  # the two answers that POSIX allows for "it is taken"
            lock.release()
            return None
        except BaseException:
            lock.release()
            raise
        lock.release()  # the file was removed meanwhile: a lock on it would exclude nobody


def is_locked(path: Path) -> bool:
    """Whether any process holds the lock now. Does not take it. Raises `OSError` if that cannot be told."""
    try:
        return bool(_answer(path)[0] != fcntl.F_UNLCK)
    except FileNotFoundError:
        return False


def holder(path: Path) -> int | None:
    """The id of the process that holds the lock, if it is known: one of this machine, and of this account.
    A lock is held by an open file, so of several processes that share it one is named."""
    try:
        kind, *_, pid = _answer(path)
    except OSError:
        return None
    if kind == fcntl.F_UNLCK:
        return None
    return pid if pid > 0 else next(_processes_that_lock(path.resolve()), None)


def by_holder(path: Path) -> str:
    """For messages: ` (process 4711)`, or nothing if the holder is not known."""
    pid = holder(path)
    return "" if pid is None else f" (process {pid})"


def _answer(path: Path) -> tuple[Any, ...]:
    """What the kernel says would keep us from taking the lock."""
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        answer: Any = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    finally:
        os.close(descriptor)
    return _FLOCK.unpack(answer)


def _processes_that_lock(path: Path) -> Iterator[int]:
    """The kernel tells no process for a lock of this kind, but which open files have one."""
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        process = Path("/proc", str(pid))
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            for descriptor in (process / "fd").iterdir():
                if descriptor.readlink() != path:
                    continue
                if "lock:" in (process / "fdinfo" / descriptor.name).read_text():
                    yield pid
