"""Computes the waits between retries. The wait grows with each failure in a row, up to a limit, and is short
again after a success.

`Schedule` computes a wait from the number of failures; it is pure. `Backoff` counts the failures of one
operation. A thread that may block calls `wait`; a loop that has other work checks `ready`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_DOUBLINGS_MAX = 64  # every schedule is at its limit by then; a larger exponent could overflow


@dataclass(frozen=True)
class Schedule:
    """The wait is `first_s` seconds after the first failure. It grows by `factor` with each further failure
    in a row, up to `max_s` seconds.

    `jitter`, from 0 to 1, is the largest share of a wait that is left out at random. It keeps processes that
    failed at the same moment from retrying at the same moment.
    """

    first_s: float
    max_s: float
    factor: float = 2.0
    jitter: float = 0.0

    @classmethod
    def steady(cls, seconds: float) -> Schedule:
        """Returns a schedule with the same wait after each failure."""
        return cls(seconds, seconds)

    def seconds(self, failures: int, *, chance: float = 0.0) -> float:
        """Returns the wait in seconds after `failures` failures in a row (at least 1). `chance`, a random
        number in [0, 1), scales `jitter`."""
        grown = self.first_s * self.factor ** min(failures - 1, _DOUBLINGS_MAX)
        return min(grown, self.max_s) * (1 - self.jitter * chance)


class Backoff:
    """Counts the failures in a row of one operation, and knows when it may be retried. One thread reports
    failures; any thread may report a success."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.schedule = schedule
        self.failures = 0
        self._clock = clock
        self._chance = chance
        self._ready_at = float("-inf")

    def failed(self) -> float:
        """Counts a failure. Returns the seconds to wait before the next attempt."""
        self.failures += 1
        seconds = self.schedule.seconds(self.failures, chance=self._chance())
        self._ready_at = self._clock() + seconds
        return seconds

    def succeeded(self) -> None:
        """Resets the count. The next attempt may start at once."""
        self.failures = 0
        self._ready_at = float("-inf")

    @property
    def ready(self) -> bool:
        """Whether the wait after the last failure is over."""
        return self._clock() >= self._ready_at

    def wait(self, stopping: threading.Event | None = None) -> bool:
        """Blocks until the wait after the last failure is over or `stopping` is set. Returns whether
        `stopping` is set."""
        left = max(0.0, self._ready_at - self._clock())
        if stopping is not None:
            return stopping.wait(left)
        time.sleep(left)
        return False
