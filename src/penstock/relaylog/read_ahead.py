"""Fetches the next blocks of a segment while the core decodes the present one.

A decoder is faster than one request to an object store after the other: it would wait most of its time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

BLOCKS_AHEAD = 3
"""Blocks that are fetched beforehand, per reader. They are held in memory, in addition to the core's."""
_THREADS = 12
"""Requests of this process at the same time."""

Fetch = Callable[[int, int], Any]

_pool: ThreadPoolExecutor | None = None
_guard = threading.Lock()


def _forget() -> None:
    """Forgets the threads in a forked process, which does not inherit them."""
    global _pool, _guard
    _pool, _guard = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _guard:
        if _pool is None:
            _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="read-ahead")
        return _pool


class ReadAhead:
    """Wraps the `fetch` of a `_core.RangedFile` whose main part is from `start` to `end`, in blocks of
    `block_bytes`. What is outside of it (the file's head, single events) is read in smaller pieces, and not
    ahead. Thread-safe."""

    def __init__(self, fetch: Fetch, *, start: int, end: int, block_bytes: int) -> None:
        self._fetch = fetch
        self._start = start
        self._end = end
        self._block_bytes = block_bytes
        self._next = -1
        self._coming: dict[tuple[int, int], Future[Any]] = {}
        """Reads that have begun, by their first byte and the one after the last."""
        self._guard = threading.Lock()

    def __call__(self, start: int, end: int) -> Any:
        with self._guard:
            found = self._coming.pop((start, end), None)
            if start == self._next and start >= self._start:
                self._prefetch(end)
            elif found is None:
                self._coming.clear()  # the reader is somewhere else
            self._next = end
        return self._fetch(start, end) if found is None else found.result()

    def _prefetch(self, start: int) -> None:
        for _ in range(BLOCKS_AHEAD):
            end = min(start + self._block_bytes, self._end)
            if end <= start:
                return
            if (start, end) not in self._coming:
                self._coming[start, end] = _threads().submit(self._fetch, start, end)
            start = end
