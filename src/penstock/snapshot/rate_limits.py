"""Limits the rate of a snapshot: computes when the next chunk may start.

The cost of a chunk is known only after it was read. Slowing down inside a chunk would keep its read view
open for longer, which would cost the source more than it saves. So each chunk is read at full speed. Its
rows and bytes become a debt, which shrinks at the allowed rate. No chunk starts while there is debt. Idle
time is not credited.

So the rate is kept over any period, except for one chunk per thread. When a chunk starts there is no debt,
so the rate allowed everything that was read before. Only the chunks that are in flight at that moment, one
per thread, can exceed it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Budget:
    """The debt of one limit. `per_second` 0: no limit."""

    per_second: int
    debt: float = 0.0

    def pass_time(self, seconds: float) -> None:
        self.debt = max(0.0, self.debt - seconds * self.per_second) if self.per_second else 0.0

    @property
    def seconds(self) -> float:
        return self.debt / self.per_second if self.per_second else 0.0


class Pace:
    """The limits of rows and bytes per second. Thread-safe. `clock` returns monotonic seconds."""

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
        """Sets other rates: None leaves a rate unchanged, 0 removes the limit. Existing debt shrinks at the
        new rate."""
        with self._lock:
            self._settle()
            if rows_per_second is not None:
                self._rows.per_second = rows_per_second
            if bytes_per_second is not None:
                self._bytes.per_second = bytes_per_second

    def spend(self, *, rows: int, bytes_: int) -> None:
        """Adds the size of a chunk that was read."""
        with self._lock:
            self._settle()
            self._rows.debt += rows
            self._bytes.debt += bytes_

    def seconds_to_wait(self) -> float:
        """Seconds until a chunk may start; 0: now."""
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
        """The limit that chunks wait for longest: `rows_per_second` or `bytes_per_second`."""
        return "rows_per_second" if self._rows.seconds >= self._bytes.seconds else "bytes_per_second"

    def _settle(self) -> None:
        now = self._clock()
        for budget in (self._rows, self._bytes):
            budget.pass_time(now - self._at)
        self._at = now
