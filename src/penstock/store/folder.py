"""A folder of a store, and files in it that pyarrow writes and reads.

What Spark's tasks find for each other (staged chunks, changes made by foreign keys, scratch) is written here:
once, under a new name, and durable before anybody is told the name. A location of such a file is its key in
the store.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.store.base import ObjectInfo, Store
from penstock.store.files import Folder, NewFile, new_object, object_source
from penstock.store.options import StoreOptions


@dataclass(frozen=True)
class StoreFiles:
    """Files in one store. Implements `files.Files`; raises the errors of `store/errors.py`."""

    store: Store

    @property
    def readers(self) -> int:
        return 2 if self._is_local else 8

    @property
    def travels(self) -> bool:
        return True

    @contextmanager
    def create(self, location: str) -> Iterator[NewFile]:
        whole = 0 if self._is_local else StoreOptions().whole_bytes
        with new_object(self.store, location, whole) as file:
            yield file

    def source(self, location: str, size: int | None = None) -> Any:
        if self._is_local:
            return self.store.location.path(location)  # pyarrow reads it without Python
        return object_source(self.store, location, size)

    def read(self, location: str, start: int, size: int) -> bytes:
        return bytes(self.store.get_range(location, start, start + size))

    def remove(self, locations: Iterable[str]) -> None:
        self.store.delete_many(locations)

    @property
    def _is_local(self) -> bool:
        return self.store.location.kind == "local"


@dataclass(frozen=True)
class StoreFolder:
    """The objects of a store whose keys begin with `path` and a slash. May be pickled if the store may be."""

    store: Store
    path: str

    def __truediv__(self, name: str) -> StoreFolder:
        return StoreFolder(self.store, self.key(name))

    def key(self, name: str) -> str:
        return f"{self.path}/{name}"

    @property
    def files(self) -> Folder:
        """For what pyarrow writes."""
        return Folder(StoreFiles(self.store), self.path)

    def objects(self) -> Iterator[ObjectInfo]:
        return self.store.objects(self.path)

    def remove(self) -> None:
        """Deletes all objects of the folder."""
        self.store.delete_many([found.key for found in self.objects()])

    def __str__(self) -> str:
        return self.store.location.url(self.path)


def whole(store: Store, key: str, size: int) -> io.BytesIO:
    """All bytes of an object whose size is known."""
    return io.BytesIO(store.get_range(key, 0, size))
