"""Ends reads of streams whose server says nothing any more: it was suspended, or its machine is gone.

A server sends something at least every ten seconds (`serve/listeners/flight.py`), also if there are no
changes. A connection to a server that has vanished does not end by itself, and a read of Flight has no time
limit.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol

SILENT_S = 90.0
"""Seconds without a message after which a read is ended: more than the minute in which a busy server answers
that it is too busy."""
LOOK_S = 1.0
"""Seconds between two looks at the reads."""


class Reading(Protocol):
    """Something that reads messages."""

    reading_since: float | None
    """When the read that is under way began, in the time of `time.monotonic`. None: none is."""

    def end_silent(self) -> None:
        """Called by another thread: ends the read."""
        ...


_guard = threading.Lock()
_watched: weakref.WeakSet[Reading] = weakref.WeakSet()
_thread: threading.Thread | None = None


def watch(reading: Reading) -> None:
    """Watches an object as long as it exists, and ends each of its reads that waits for too long."""
    global _thread
    with _guard:
        _watched.add(reading)
        if _thread is None or not _thread.is_alive():  # none is alive in a process that was forked
            _thread = threading.Thread(target=_watch, name="penstock-silence", daemon=True)
            _thread.start()


def _watch() -> None:
    pause = threading.Event()
    while _end_silent():
        pause.wait(LOOK_S)


def _end_silent() -> bool:
    """Whether there is still something to watch. In a function of its own, so that what is watched can go
    between two looks."""
    global _thread
    with _guard:
        if not _watched:
            _thread = None
            return False
        watched = list(_watched)
    for one in watched:
        since = one.reading_since
        if since is not None and time.monotonic() > since + SILENT_S:
            one.end_silent()
    return True
