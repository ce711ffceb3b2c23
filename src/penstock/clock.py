"""The clock of leases and sessions, which others end when they hear nothing."""

from __future__ import annotations

import time


def seconds() -> float:
    """Seconds since some moment. They also count while this process, or the machine, is suspended, unless the
    system is not Linux."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
