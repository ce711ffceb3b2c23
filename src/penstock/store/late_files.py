"""Files that become durable while whoever writes them goes on.

To finish a file takes one to three requests to an object store, one after another, and on a disk it waits for
the disk. What follows rarely needs the file: it needs to know that the file is there before a commit names
it. So the end of each file is left to a thread, and `settle` waits for all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from typing_extensions import Self

from penstock.store.files import Files, Folder, NewFile, remove_quietly

UNFINISHED_MAX = 4
"""Files that are on their way at a time. Each holds its last parts in memory."""


class LateFiles:
    """Implements `Files`, except that a new file may not be durable before `settle` returns. Whatever happens
    in its `with` block, nothing is on its way any more when the block ends, so that files which nobody needs
    can be removed then. Does not pickle."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._pool = ThreadPoolExecutor(UNFINISHED_MAX, thread_name_prefix="late-files")
        self._finishing: list[Future[Any]] = []
        self._created: list[str] = []
        self._failed: BaseException | None = None

    @property
    def readers(self) -> int:
        return self._files.readers

    @property
    def travels(self) -> bool:
        return False

    def in_folder(self, folder: Folder) -> Folder:
        """The folder, with files that are durable later."""
        return replace(folder, files=self)

    @contextmanager
    def create(self, location: str) -> Iterator[NewFile]:
        unfinished = [one for one in self._finishing if not one.done()]
        if len(unfinished) >= UNFINISHED_MAX:
            unfinished[0].exception()
        whole = self._files.create(location)
        file = whole.__enter__()
        try:
            yield file
        except BaseException:
            whole.__exit__(*sys.exc_info())
            raise
        self._created.append(location)
        self._finishing.append(self._pool.submit(whole.__exit__, None, None, None))

    def settle(self) -> None:
        """Returns when all files are durable. If one of them fails, none of them is left, and its error is
        raised, by each call."""
        while self._finishing:
            error = self._finishing.pop(0).exception()
            self._failed = self._failed or error
        if self._failed is not None:
            remove_quietly(self._files, self._created)
            raise self._failed

    def source(self, location: str, size: int | None = None) -> Any:
        self.settle()
        return self._files.source(location, size)

    def read(self, location: str, start: int, size: int) -> bytes:
        self.settle()
        return self._files.read(location, start, size)

    def remove(self, locations: Iterable[str]) -> None:
        with suppress(Exception):  # a file that could not be written need not be removed
            self.settle()
        self._files.remove(locations)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)
