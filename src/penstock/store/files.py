"""Files of tables: each is written once, under a name of its own, and then only read or removed.

The files of a lake table need less than what `Store` promises. Their names are new, so nothing is replaced,
and nobody reads a file before a commit names it. Locations are those in the table's own metadata, and one
table may have files in several buckets.
"""

from __future__ import annotations

import functools
import io
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.store.base import Data, Store, Upload
from penstock.store.location import KINDS, Location, is_key
from penstock.store.options import StoreOptions

WHOLE_BYTES_MAX = 1 << 20
"""Objects of up to this size are read with one request, whatever part is wanted. A request takes as long as
reading a megabyte."""
STORES_MAX = 256
"""Buckets that a process keeps connections to. If a catalog hands out keys, each table counts."""


class NewFile(Protocol):
    """A new file, to which pyarrow writes."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: Data) -> int: ...

    def tell(self) -> int:
        """Bytes written so far."""

    def flush(self) -> None: ...


class Files(Protocol):
    """Access to the files of a table. Can be pickled; any number of threads may use it. Errors of the file
    system are `OSError`, those of object stores are the errors of `store/errors.py`."""

    @property
    def readers(self) -> int:
        """Files that are worth reading side by side."""

    @property
    def travels(self) -> bool:
        """Whether tasks on other machines can use it."""

    def create(self, location: str) -> AbstractContextManager[NewFile]:
        """A new file. Its content is durable when the `with` block ends. After an exception in the block
        there is no file."""

    def source(self, location: str, size: int | None = None) -> Any:
        """What pyarrow reads a file from. `size`: its bytes, if they are known; that saves a request."""

    def read(self, location: str, start: int, size: int) -> bytes:
        """Bytes of a file. Fewer than `size` if the file ends before."""

    def remove(self, locations: Iterable[str]) -> None:
        """Removes files, as far as they exist."""


@dataclass(frozen=True)
class Folder:
    """The folder for a table's new files."""

    files: Files
    location: str
    """The folder's URL, without a slash at its end."""

    def new(self, suffix: str) -> str:
        """The location for a new file."""
        return f"{self.location}/{uuid.uuid4()}{suffix}"

    @classmethod
    def local(cls, path: Path) -> Folder:
        return cls(LocalFiles(), str(path))


def local_path(location: str) -> Path:
    """The local path for a location in a table's metadata. A location looks like a URL but is none: `%`, `?`
    and `#` in it are ordinary characters. So a table called `x%2F..%2Fy` has its files in its own
    directory."""
    if not location.startswith("file:"):
        return Path(location)
    return Path("/" + location.removeprefix("file:").lstrip("/"))


@dataclass(frozen=True)
class LocalFiles:
    """Files on a disk of this machine, or mounted here. Locations are paths or `file:` URLs."""

    readers: int = 2
    travels: bool = True

    @contextmanager
    def create(self, location: str) -> Iterator[NewFile]:
        path = local_path(location)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def source(self, location: str, size: int | None = None) -> Any:
        return str(local_path(location))

    def read(self, location: str, start: int, size: int) -> bytes:
        with open(local_path(location), "rb") as file:
            file.seek(start)
            return file.read(size)

    def remove(self, locations: Iterable[str]) -> None:
        for location in locations:
            local_path(location).unlink(missing_ok=True)


@dataclass(frozen=True)
class ObjectFiles:
    """Objects in buckets of one kind of store. Locations are `s3://bucket/key` and alike."""

    options: StoreOptions
    travels: bool = True
    readers: int = 8

    @contextmanager
    def create(self, location: str) -> Iterator[NewFile]:
        store, key = self._place(location)
        with new_object(store, key, self.options.whole_bytes) as file:
            yield file

    def source(self, location: str, size: int | None = None) -> Any:
        return object_source(*self._place(location), size)

    def read(self, location: str, start: int, size: int) -> bytes:
        store, key = self._place(location)
        return bytes(store.get_range(key, start, start + size))

    def remove(self, locations: Iterable[str]) -> None:
        by_store: dict[Location, list[str]] = {}
        for location in locations:
            store, key = self._place(location)
            by_store.setdefault(store.location, []).append(key)
        for place, keys in by_store.items():
            _store(place, self.options).delete_many(keys)

    def _place(self, location: str) -> tuple[Store, str]:
        bucket, key = split(location)
        return _store(bucket, self.options), key


def split(location: str) -> tuple[Location, str]:
    """A bucket, and a key in it. Raises `StoreRefused`."""
    scheme, _, rest = location.partition("://")
    host, _, key = rest.partition("/")
    return Location.parse(f"{scheme}://{host}"), key


def is_object(location: str) -> bool:
    """Whether a location is one of an object store, and names its object in the same way for every library.
    Some of them cut a location at `?` and `#`."""
    scheme, found, rest = location.partition("://")
    key = rest.partition("/")[2]
    known = found and KINDS.get(scheme, "local") != "local"
    return bool(known) and is_key(key) and not {"?", "#"} & set(rest)


@functools.lru_cache(maxsize=STORES_MAX)
def _store(bucket: Location, options: StoreOptions) -> Store:
    """One store per bucket and process, because its connections are used again."""
    from penstock.store.objects import ObjectStore  # loads a large library

    return ObjectStore(bucket, options)


def object_source(store: Store, key: str, size: int | None = None) -> Any:
    """A file object from which pyarrow reads an object of the store."""
    if size is None:
        size = store.stat(key).size
    if size <= WHOLE_BYTES_MAX:
        return io.BytesIO(store.get_range(key, 0, size))
    return _Ranges(store, key, size)


@contextmanager
def new_object(store: Store, key: str, whole_bytes: int) -> Iterator[NewFile]:
    """An object that appears when the block ends, and does not after an exception. It is sent with one
    request unless it is larger than `whole_bytes`."""
    file = _NewObject(store, key, whole_bytes)
    try:
        yield file
        file.finish()
    except BaseException:
        file.abort()
        raise


class _NewObject:
    """Sends an object with one request, unless it is larger than `whole_bytes`."""

    def __init__(self, store: Store, key: str, whole_bytes: int) -> None:
        self._store = store
        self._key = key
        self._whole_bytes = whole_bytes
        self._first = bytearray()
        self._upload: Upload | None = None
        self._size = 0
        self.closed = False

    def write(self, data: Data) -> int:
        size = memoryview(data).nbytes
        self._size += size
        if self._upload is None and self._size <= self._whole_bytes:
            self._first += data
            return size
        if self._upload is None:
            self._upload = self._store.upload(self._key)
            self._upload.write(self._first)
            self._first = bytearray()
        self._upload.write(data)
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """The object appears whole when it is finished."""

    def finish(self) -> None:
        self.closed = True
        if self._upload is None:
            self._store.put(self._key, self._first)
        else:
            self._upload.complete()

    def abort(self) -> None:
        self.closed = True
        if self._upload is not None:
            self._upload.abort()


class _Ranges(io.RawIOBase):
    """Reads an object with one request for each read. pyarrow asks for the footer and for ranges of columns,
    and joins those that are close to each other."""

    def __init__(self, store: Store, key: str, size: int) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        start, self._at = self._at, max(self._at, end)
        return bytes(self._store.get_range(self._key, start, end)) if start < end else b""

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def remove_quietly(files: Files, locations: Iterable[str]) -> None:
    """Removes files that nobody will read. Those that cannot be removed now are garbage, and no error."""
    with suppress(Exception):
        files.remove(locations)
