"""A store in a directory, with the same promises as an object store.

- **Whole and durable.** An object is written into a draft, in `.penstock/drafts` of the directory, and
  fsynced. Then it gets its name, and the folder is fsynced. Folders that this made are fsynced too.
- **`put_if_absent`** gives the name with link(2), which fails if the name is taken. On a network file system
  the answer to that may be lost as well; the draft's link count then says whether it is ours.
- **`put_if_unchanged`** compares and replaces under a lock of the directory, which everything takes that
  replaces or removes a name. Reading needs no lock.
- **Versions.** An object's version is inode, size and time of change. A replacement takes a time later than
  that of the object it replaces, so two versions differ even if the clock is coarse or steps back.

The directory must be one file system. Objects have the mode that the umask gives: who may read them is
decided by the mode of the directory (`disk/directory.py` closes those of a pipeline).
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from penstock.disk import lock
from penstock.disk.replace import sync
from penstock.store.base import Content, Data, ObjectInfo, Version
from penstock.store.draft import Draft, drafts_folder
from penstock.store.errors import (
    KeyRefused,
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectShorter,
    StoreRefused,
    StoreUnavailable,
)
from penstock.store.local_list import walk
from penstock.store.location import RESERVED, Location

LOCK_SECONDS_MAX = 60.0
"""Each holder needs it for one rename and one fsync."""
_ATTEMPTS = 10
"""Attempts to put a file into a folder that others may remove meanwhile."""
_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}

_threads: dict[str, threading.Lock] = {}
"""A lock for each directory. Threads of this process queue here, instead of polling the lock file."""
_durable: dict[str, int] = {}
"""Folders whose names this process knows to be durable, with their inodes: somebody may make them again."""
os.register_at_fork(after_in_child=_threads.clear)  # another thread of the parent may have held one


class LocalStore:
    """Implements `base.Store`. The directory is made with the first object."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._root = Path(location.prefix)

    def __repr__(self) -> str:
        return f"LocalStore({self.location})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (LocalStore, (self.location,))

    # writing

    def put(self, key: str, data: Data) -> Version:
        with self.upload(key) as upload:
            upload.write(data)
            return upload.finish()

    def put_if_absent(self, key: str, data: Data) -> Version:
        path = self._path(key)
        with self._told(key, "written"), Draft(self._root) as draft:
            draft.write(data)
            draft.close()
            for _ in range(_ATTEMPTS):
                try:
                    self._make_folder(path.parent)
                    os.link(draft.path, path)
                except FileExistsError:
                    if path.is_dir():
                        raise
                    if draft.path.stat().st_nlink < 2:  # not ours after a lost answer
                        url = self.location.url(key)
                        raise ObjectExists(f"{url} exists already.", url=url) from None
                except FileNotFoundError:
                    continue  # somebody removed the folder, which was empty
                sync(path.parent)
                return _version(draft.path.stat())
        raise StoreUnavailable(f"{self.location.url(key)} could not be written: its folder vanishes.")

    def put_if_unchanged(self, key: str, data: Data, *, seen: Version) -> Version:
        def unchanged(found: os.stat_result | None) -> None:
            if found is None or _version(found) != seen:
                url = self.location.url(key)
                raise ObjectChanged(f"{url} is no longer the version that was seen.", url=url)

        with self._told(key, "written"), Draft(self._root) as draft:
            draft.write(data)
            draft.close()
            return self._replace(draft, self._path(key), unchanged)

    def upload(self, key: str) -> LocalUpload:
        return LocalUpload(self, key, self._path(key))

    def _replace(self, draft: Draft, path: Path, check: Callable[[os.stat_result | None], None]) -> Version:
        """Gives the draft its name, if `check` does not object to what has the name now."""
        with self._locked():
            found = _stat(path)
            check(found)
            self._make_folder(path.parent)
            draft.make_later_than(found)
            status = draft.path.stat()
            draft.path.replace(path)
        sync(path.parent)
        return _version(status)

    def _make_folder(self, folder: Path) -> None:
        """Makes the folder and those above it that are missing. Their names are durable on return, also if
        another process has just made them, and did not get to its own fsync yet."""
        above: list[Path] = []
        while not self._is_durable(folder):
            above.append(folder)
            if folder == self._root:
                break
            folder = folder.parent
        for new in reversed(above):
            with contextlib.suppress(FileExistsError):
                new.mkdir()
            with contextlib.suppress(PermissionError):  # of the folder above the root
                sync(new.parent)
            _durable[str(new)] = new.stat().st_ino

    def _is_durable(self, folder: Path) -> bool:
        try:
            return _durable.get(str(folder)) == folder.stat().st_ino
        except OSError:
            return False

    # reading

    def get(self, key: str) -> Content:
        with self._open(key) as file:
            data = file.read()
            status = os.fstat(file.fileno())
        return Content(_info(key, status), data)

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        return self.get_ranges(key, [(start, end)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        if not all(0 <= start <= end for start, end in ranges):
            raise ValueError("no range")
        with self._open(key) as file:
            size = os.fstat(file.fileno()).st_size
            if any(start < end and end > size for start, end in ranges):
                url = self.location.url(key)
                raise ObjectShorter(f"{url} has {size} bytes, fewer than were asked for.", url=url)
            return [memoryview(_read(file.fileno(), start, end)) for start, end in ranges]

    def stat(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with self._told(key, "read"):
            status = _stat(path)
        if status is None:
            raise self._missing(key)
        return _info(key, status)

    def objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        folder = self._path(prefix) if prefix else self._root
        start = self._path(after).relative_to(self._root).as_posix() if after else ""
        with self._told(prefix, "listed"):
            for key, status in walk(folder, prefix, start):
                yield _info(key, status)

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[Any]:
        path = self._path(key)
        with self._told(key, "read"):
            try:
                file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by the block below
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise self._missing(key) from None
            with file:
                yield file

    # deleting

    def delete(self, key: str) -> None:
        self.delete_many([key])

    def delete_many(self, keys: Iterable[str]) -> None:
        changed: dict[Path, str] = {}
        for key in keys:
            path = self._path(key)
            if not os.path.lexists(path):
                continue
            with self._told(key, "deleted"), self._locked():
                try:
                    path.unlink()
                except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    continue
                changed[self._drop_empty(path.parent)] = key
        for folder, key in changed.items():
            with self._told(key, "deleted"), contextlib.suppress(FileNotFoundError):
                sync(folder)  # another deletion may have removed it since

    def _drop_empty(self, folder: Path) -> Path:
        """Removes the folders that a removal left empty: they are no objects. Returns the one that must be
        synced."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:
                break
            folder = folder.parent
        return folder

    # with the file system

    def _path(self, key: str) -> Path:
        return Path(self.location.path(key))

    def _missing(self, key: str) -> ObjectMissing:
        url = self.location.url(key)
        return ObjectMissing(f"{url} does not exist.", url=url)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        path = self._root / RESERVED / "lock"
        with _threads.setdefault(str(self._root), threading.Lock()):
            drafts_folder(self._root)
            with lock.held(path, wait_seconds=LOCK_SECONDS_MAX) as ours:
                if ours is None:
                    raise StoreUnavailable(
                        f"The lock {path} was not free for {LOCK_SECONDS_MAX:.0f} s.",
                        hint=f"Find out who holds it{lock.by_holder(path)}.",
                    )
                yield

    @contextlib.contextmanager
    def _told(self, key: str, what: str) -> Iterator[None]:
        """Converts errors of the file system."""
        url = self.location.url(key)
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY):
                raise KeyRefused(
                    f"{url} could not be {what}: a folder has the name of an object, or an object that of a "
                    "folder.", hint="Choose another name.", url=url,
                ) from None  # fmt: skip
            kind = StoreRefused if error.errno in _REFUSALS else StoreUnavailable
            raise kind(
                f"{url} could not be {what}: {error.strerror}.",
                hint="Check the rights of this account, and the space and state of the disk.", url=url,
            ) from None  # fmt: skip


class LocalUpload(Draft):
    """Implements `base.Upload`."""

    def __init__(self, store: LocalStore, key: str, path: Path) -> None:
        self._store = store
        self._key = key
        self._target = path
        self._version: Version | None = None
        with store._told(key, "written"):
            super().__init__(store._root)

    def write(self, data: Data) -> None:
        with self._store._told(self._key, "written"):
            super().write(data)

    def finish(self) -> Version:
        if self._version is None:
            with self._store._told(self._key, "written"):
                self.close()
                self._version = self._store._replace(self, self._target, lambda found: None)
                self.ended = True
        return self._version

    def complete(self) -> None:
        self.finish()

    def abort(self) -> None:
        self.remove()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None and not self.ended:
            self.finish()
        self.remove()


def _read(descriptor: int, start: int, end: int) -> bytes:
    """The kernel reads 2 GiB at most at a time."""
    data = os.pread(descriptor, end - start, start)
    while len(data) < end - start:
        data += os.pread(descriptor, end - start - len(data), start + len(data))
    return data


def _stat(path: Path) -> os.stat_result | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if path.is_dir() else status


def _version(status: os.stat_result) -> Version:
    return Version(f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}")


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    modified = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return ObjectInfo(key, status.st_size, _version(status), modified)
