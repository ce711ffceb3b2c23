"""Finds the time up to which a log has every commit, as far as that is known. Readers need it that merge the
log with others."""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path

from penstock.model.offset import Offset
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import STATUS_FILE
from penstock.relaylog.status import read_status

KEPT = 256
"""Moments that are remembered. Readers are some milliseconds behind the newest one."""
COMMIT_US = 200_000
"""How long a commit may take from its time to where the source sends it. A heartbeat says nothing of commits
that are under way."""


class Times:
    """`look` and `heard` are called by one thread, `reached_us` by another one. `folder`: where the receiver
    reports; None: nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / STATUS_FILE
        self._known: deque[tuple[Offset, int]] = deque(maxlen=KEPT)
        """Offsets and times: everything behind the offset was committed at the time or later. Both
        increase."""
        self._read = self._changed = 0
        self._complete: tuple[Offset, int] | None = None
        """The newest heartbeat."""

    def reached_us(self, passed: Offset) -> int:
        return next((time_us for offset, time_us in reversed(list(self._known)) if offset <= passed), 0)

    def heard(self) -> bool:
        """Whether the receiver has reported something since `look`."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._changed = self._file.stat().st_mtime_ns
        return self._changed != self._read

    def look(self, log: RelayLog, end: Offset) -> bool:
        """Looks at the log, which has its end there, and at the receiver's report. Returns whether more is
        known than before."""
        self._report()
        new = False
        last_us = log.commit_time_us_at(end)
        if last_us is not None:
            new = self._add(end, last_us) or new
        if self._complete is not None and self._complete[0] <= end:
            new = self._add(*self._complete) or new
        return new

    def _report(self) -> None:
        """Reads the receiver's report, if there is a new one."""
        if self._file is None or not self.heard():
            return
        self._read = self._changed
        complete = read_status(self._file.parent).get("complete")
        try:
            offset, time_us = int(complete["offset"]), int(complete["at_us"])  # type: ignore[index]
        except (TypeError, KeyError, ValueError):
            return
        self._complete = Offset(offset), time_us - COMMIT_US

    def _add(self, offset: Offset, time_us: int) -> bool:
        """Adds an offset and its time. Returns whether they say something new."""
        if self._known and (offset < self._known[-1][0] or time_us <= self._known[-1][1]):
            return False
        if self._known and offset == self._known[-1][0]:
            self._known.pop()
        self._known.append((offset, time_us))
        return True
