"""Decodes a range of the log in parts, side by side in threads, and gives the results in the order of the
log."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from penstock.model.offset import LogRange
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog

if TYPE_CHECKING:
    from penstock._core import LogPart

PART_BYTES = 4 * 1024**2
"""Bytes of log that a thread decodes at a time: so many that the cost of starting it is small beside that."""
_LARGE = 4
"""From so many times the bytes of a part on, a part's results are given while it is decoded. A transaction is
never in two parts, and may be larger than the memory."""

T = TypeVar("T")


class SideBySide:
    """As many threads as there are cores. One thread calls `run`."""

    def __init__(self) -> None:
        self.threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="penstock-encode")

    def run(
        self, log: RelayLog, reach: LogRange, decode: Callable[[list[LogPart]], Iterator[T]],
        part_bytes: int,
    ) -> Iterator[T]:  # fmt: skip
        """What `decode` gives for the parts of a range between two transactions. All results of a part are
        held until its turn, if it is not large."""
        running: deque[Future[list[T]]] = deque()
        start = reach.start
        try:
            while start < reach.end or running:
                if start == reach.end or len(running) == self.threads:
                    yield from running.popleft().result()
                    continue
                part = LogRange(start, min(log.cut(start, part_bytes), reach.end))
                decoded = decode(parts_of(log, part))
                start = part.end
                if part == reach or part.end - part.start >= _LARGE * part_bytes:
                    while running:
                        yield from running.popleft().result()
                    yield from decoded
                else:
                    running.append(self._pool.submit(list, decoded))
        finally:
            for future in running:
                future.cancel()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
