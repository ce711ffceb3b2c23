"""Locks on files, between processes on one machine or on several machines that share a file system.

Each lock is an open file description lock of Linux (F_OFD_SETLK) on the whole file. The file's content does
not matter. Reasons for this kind of lock:

- The kernel releases it when the open file is closed for the last time, also when its process is killed.
- It belongs to the open file. So threads of one process exclude each other too, and closing another
  descriptor of the same file does not release it.
- It can be checked without being taken. So a check never makes a starting process fail.
- It excludes the record locks that Java's FileChannel takes, and is excluded by them (`spark/lock.py`).

A forked process shares the open file, and so the lock, until it executes another program. A lock can
therefore outlive its process for a moment, so `take` retries for `GRACE_SECONDS`.
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
"""Seconds that `take` retries before it reports that another process holds the lock."""

_POLL = Schedule(first_s=0.01, max_s=0.1)
_FLOCK = struct.Struct("hh4xqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # does not block on a pipe or follow a symbolic link


class FileLock:
    """A lock that is held until `release` is called or this process ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def is_current(self) -> bool:
        """Whether the path still names the locked file. If not, other processes can lock a different file
        there."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        os.close(self.descriptor)


def take(path: Path, *, wait_seconds: float = GRACE_SECONDS) -> FileLock | None:
    """Returns the lock, or None if another process or thread holds it for all of `wait_seconds`. Creates the
    file with mode 0600 if it is missing. Raises `OSError` if the file cannot be opened or locked."""
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
    """Takes the lock while the block runs. Yields the lock, or None if `take` returns None."""
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
        except (BlockingIOError, PermissionError):  # POSIX allows both errors for a lock that is taken
            lock.release()
            return None
        except BaseException:
            lock.release()
            raise
        lock.release()  # the file was removed in between: a lock on it would exclude nobody


def is_locked(path: Path) -> bool:
    """Whether any process holds the lock now. Does not take it. Raises `OSError` if the file cannot be
    checked."""
    try:
        return bool(_answer(path)[0] != fcntl.F_UNLCK)
    except FileNotFoundError:
        return False


def holder(path: Path) -> int | None:
    """Returns the id of a process that holds the lock, or None if none is known. Only processes of this
    account on this machine can be found. If several processes share the lock, returns one of them."""
    try:
        kind, *_, pid = _answer(path)
    except OSError:
        return None
    if kind == fcntl.F_UNLCK:
        return None
    return pid if pid > 0 else next(_processes_that_lock(path.resolve()), None)


def by_holder(path: Path) -> str:
    """Returns ` (process 4711)` for messages, or an empty string if the holder is not known."""
    pid = holder(path)
    return "" if pid is None else f" (process {pid})"


def _answer(path: Path) -> tuple[Any, ...]:
    """Returns the kernel's description of a lock that conflicts with ours (F_OFD_GETLK)."""
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        answer: Any = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    finally:
        os.close(descriptor)
    return _FLOCK.unpack(answer)


def _processes_that_lock(path: Path) -> Iterator[int]:
    """Yields processes that hold a lock on `path`. For this kind of lock the kernel does not name the
    process, but `/proc` shows which open files are locked."""
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        process = Path("/proc", str(pid))
        with contextlib.suppress(OSError):  # the process has ended or belongs to another account
            for descriptor in (process / "fd").iterdir():
                if descriptor.readlink() != path:
                    continue
                if "lock:" in (process / "fdinfo" / descriptor.name).read_text():
                    yield pid
