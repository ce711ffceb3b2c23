"""How long to wait before something that failed is tried again: longer after each failure in a row, up to a
limit, and short again after a success.

`Schedule` is the rule, without a clock. `Backoff` follows it for one thing that is tried again and again: a
thread that may block calls `wait`, a loop that has other work to do asks `ready`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_DOUBLINGS_MAX = 64  # beyond any limit; a larger exponent would not fit a float


@dataclass(frozen=True)
class Schedule:
    """Waits `first_s` seconds after one failure, then `factor` times as long after each further one, never
    longer than `max_s`.

    `jitter` is the share of a wait that chance may take away: processes that failed at the same moment then
    do not come back at the same moment.
    """

    first_s: float
    max_s: float
    factor: float = 2.0
    jitter: float = 0.0

    @classmethod
    def steady(cls, seconds: float) -> Schedule:
        """The same wait after each failure."""
        return cls(seconds, seconds)

    def seconds(self, failures: int, *, chance: float = 0.0) -> float:
        """The wait after `failures` failures in a row, 1 at least. `chance` is in [0, 1)."""
        grown = self.first_s * self.factor ** min(failures - 1, _DOUBLINGS_MAX)
        return min(grown, self.max_s) * (1 - self.jitter * chance)


class Backoff:
    """The failures in a row of one thing, and when it may be tried again. One thread reports failures; any
    thread may report the success."""

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
        """The next attempt may begin at once, and the next failure is the first in a row."""
        self.failures = 0
        self._ready_at = float("-inf")

    @property
    def ready(self) -> bool:
        """Whether the wait after the last failure is over."""
        return self._clock() >= self._ready_at

    def wait(self, stopping: threading.Event | None = None) -> bool:
        """Returns when the wait after the last failure is over, or as soon as `stopping` is set; then it
        returns True."""
        left = max(0.0, self._ready_at - self._clock())
        if stopping is not None:
            return stopping.wait(left)
        time.sleep(left)
        return False
