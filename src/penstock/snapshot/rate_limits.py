"""When the next chunk may begin, by how many rows and bytes were read before.

What a chunk cost is known when it has been read, and a view that is held open while we wait would cost the
source more than it saves. So nothing is slowed down inside a chunk: its cost becomes a debt, which shrinks
at the rate that is allowed, and no chunk begins while there is one. Idle time earns nothing.

Then over any stretch of time the rate is kept but for one chunk per thread: when a chunk began, there was no
debt, so all that had been read by then was allowed; beyond it are only the chunks that were in flight at
that moment, one per thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Budget:
    """`per_second` 0: no limit."""

    per_second: int
    debt: float = 0.0

    def pass_time(self, seconds: float) -> None:
        self.debt = max(0.0, self.debt - seconds * self.per_second) if self.per_second else 0.0

    @property
    def seconds(self) -> float:
        return self.debt / self.per_second if self.per_second else 0.0


class Pace:
    """Thread-safe. `clock` gives seconds and never goes back."""

    def __init__(
        self,
        *,
        rows_per_second: int = 0,
        bytes_per_second: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows = _Budget(rows_per_second)
        self._bytes = _Budget(bytes_per_second)
        self._at = clock()

    def set(self, *, rows_per_second: int | None = None, bytes_per_second: int | None = None) -> None:
        """Other rates from now on; None: as it is, 0: no limit. What is owed is paid at the new rate."""
        with self._lock:
            self._settle()
            if rows_per_second is not None:
                self._rows.per_second = rows_per_second
            if bytes_per_second is not None:
                self._bytes.per_second = bytes_per_second

    def spend(self, *, rows: int, bytes_: int) -> None:
        """A chunk has been read."""
        with self._lock:
            self._settle()
            self._rows.debt += rows
            self._bytes.debt += bytes_

    def seconds_to_wait(self) -> float:
        """0: a chunk may begin."""
        with self._lock:
            self._settle()
            return max(self._rows.seconds, self._bytes.seconds)

    @property
    def rows_per_second(self) -> int:
        return self._rows.per_second

    @property
    def bytes_per_second(self) -> int:
        return self._bytes.per_second

    def holder(self) -> str:
        """The limit that makes chunks wait longest: `rows_per_second` or `bytes_per_second`."""
        return "rows_per_second" if self._rows.seconds >= self._bytes.seconds else "bytes_per_second"

    def _settle(self) -> None:
        now = self._clock()
        for budget in (self._rows, self._bytes):
            budget.pass_time(now - self._at)
        self._at = now
