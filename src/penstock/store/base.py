"""What every store promises, wherever its objects are.

An object has a key and bytes. It appears whole or not at all, and a reader sees one version of it, never a
mixture. It is durable when the call that wrote it returns.

**Keys** are relative to the store's location: `chunks/7/rows.parquet`. A key is a path of
non-empty segments, in UTF-8 (`location.check_key` has the rules, which are the same for all stores). No key
is a folder of another key: a local directory could not hold both.

**Conditions.** `put_if_absent` and `put_if_unchanged` are atomic: of several writers in any number of
processes exactly one succeeds. A call that succeeds says so even where the store's answer was lost on the
way (`objects.py` argues how).

**Retries.** A store retries by itself what may pass: throttling, server errors, time-outs, lost connections.
It stops at the limits of `options.Retries` and then raises `StoreUnavailable`. A conditional put that ends
with `StoreUnavailable` may have succeeded. A caller that must know reads the object: it recognises its own
content if it wrote something unique into it.

**Processes.** A store may be used by any number of threads. It may be pickled if its credentials may be
(`credentials.py`). A process that was forked after its parent had used an object store cannot use one
(`clients.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Protocol

from typing_extensions import Self

from penstock.store.location import Location

Data = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Version:
    """Tells one content of an object from another. Opaque. Two contents of equal bytes may have the same."""

    etag: str
    generation: str = ""
    """The object's generation, only in stores that compare it instead of the ETag (Google Cloud Storage)."""


@dataclass(frozen=True)
class ObjectInfo:
    key: str
    size: int
    """Bytes."""
    version: Version
    modified: datetime
    """UTC, by the store's clock."""


@dataclass(frozen=True)
class Content:
    """A whole object, and what it was when it was read."""

    info: ObjectInfo
    data: bytes


class Upload(Protocol):
    """An object that is written piece by piece, and whose length is not known beforehand.

    It appears when `finish` or `complete` returns. `abort`, or an exception that leaves the `with` block,
    removes what was sent so far. Leaving the block otherwise completes the upload. Memory holds a few parts,
    whatever the length (`StoreOptions.part_bytes`). One thread uses it at a time.

    A process that is killed leaves parts behind which no listing shows. In object stores a life-cycle rule
    of the bucket removes them ("abort incomplete multipart uploads"); a local store removes them a day later.
    """

    def write(self, data: Data) -> None: ...

    def finish(self) -> Version: ...

    def complete(self) -> None:
        """Does what `finish` does, for callers that do not need the version. That may save a request."""

    def abort(self) -> None:
        """Does nothing if the upload has ended."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Store(Protocol):
    """Objects below one location. Every method raises the errors of `errors.py`, and no others."""

    @property
    def location(self) -> Location: ...

    def put(self, key: str, data: Data) -> Version:
        """Writes the object, whether or not there is one."""

    def put_if_absent(self, key: str, data: Data) -> Version:
        """Raises `ObjectExists` if there is an object already."""

    def put_if_unchanged(self, key: str, data: Data, *, seen: Version) -> Version:
        """Replaces the version `seen`. Raises `ObjectChanged` if the object is another one, or gone.

        Give each content something unique, such as a number that only grows. Otherwise an object that
        changed twice, back to the bytes that were seen, counts as unchanged.
        """

    def get(self, key: str) -> Content:
        """The whole object. Raises `ObjectMissing`. For objects of more than some megabytes use `get_range`,
        which copies nothing."""

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Exactly the bytes from `start` up to and without `end`. Raises `ObjectMissing` and
        `ObjectShorter`. The memory is read-only, and belongs to the caller."""

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Reads several ranges `(start, end)` at once. Ranges close to each other share a request."""

    def stat(self, key: str) -> ObjectInfo:
        """Raises `ObjectMissing`."""

    def objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """The objects below the folder `prefix`, ordered by the UTF-8 bytes of their keys, from the first
        one after the key `after`. Memory holds a page. What is put or deleted meanwhile may be missed."""

    def delete(self, key: str) -> None:
        """The object is gone when this returns. It is no error if it was not there."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Deletes several objects, with few requests where the store has a request for many. After an error,
        some of the objects may be gone."""

    def upload(self, key: str) -> Upload:
        """Begins an upload. It replaces an object of that key when it is finished."""
