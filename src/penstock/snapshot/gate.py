"""The gate before each chunk: decides whether a chunk may start now, and from which server it is read.

A chunk may start when all of these are true: fewer than `parallel` chunks are being read; the rates in
`rate_limits.py` allow it; not too much log waits to be applied; one of the servers is reachable and not too
busy. A chunk that has started is read to its end. Interrupting it would waste what it has already cost.

A thread checks the servers about once a second, but only while a chunk waits to start. Old observations are
ignored.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.config import SnapshotConfig
from penstock.snapshot.rate_limits import Pace
from penstock.sources.chunks import Host
from penstock.sources.hosts import SnapshotHosts, UsableHosts

LOOK_SECONDS = 1.0
"""Time between two checks of the servers. Each costs a query on each server."""
IN_USE_SECONDS = 3.0
"""Seconds: if no chunk has asked to start for this long, the servers are not checked and no reason for
waiting is reported. A waiting thread asks several times in it."""
STALE_SECONDS = 15.0
"""Older observations of the servers are ignored, and no chunk starts. It is several times `LOOK_SECONDS`,
because a busy server answers late."""


@dataclass(frozen=True)
class Permit:
    """Allows a thread to read one chunk from this host."""

    host: Host


class Gate:
    """Gives permits to read chunks. Thread-safe. `allowed` returns False while too much log waits to be
    applied."""

    def __init__(
        self,
        config: SnapshotConfig,
        hosts: SnapshotHosts,
        *,
        allowed: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers = hosts
        self._allowed = allowed
        self._clock = clock
        self._lock = threading.Lock()
        self._parallel = config.parallel
        self._pace = Pace(
            rows_per_second=config.rows_per_second, bytes_per_second=config.bytes_per_second, clock=clock
        )
        self._reading: Counter[str] = Counter()
        self._asked_at = float("-inf")
        self._usable: UsableHosts | None = None
        self._seen_at = float("-inf")
        self._waits: tuple[str, str] | None = None
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    # chunks -------------------------------------------------------------------------------------------------

    def enter(self, *, at_source: bool = False, failed: Host | None = None) -> Permit | None:
        """A permit for one chunk, or None if no chunk may start now. The caller returns it with `leave`.
        `at_source`: do not read from a replica. `failed`: read from another host, if there is one."""
        allowed = self._allowed()
        with self._lock:
            self._asked_at = self._clock()
            self._wake.set()
            full = sum(self._reading.values()) >= self._parallel
            self._waits = None if full else self._reason(allowed)
            if full or self._waits is not None:
                return None
            hosts = (self._servers.followed(),) if at_source else self._hosts()
            host = min(hosts, key=lambda one: (one == failed, self._reading[one.address]))
            self._reading[host.address] += 1
            return Permit(host)

    def may_read_another(self, permit: Permit, *, rows: int, bytes_: int) -> bool:
        """Reports the size of a chunk that was read, and asks whether the next chunk may start under the
        same permit. Either way the caller still has to return the permit."""
        self._pace.spend(rows=rows, bytes_=bytes_)
        allowed = self._allowed()
        with self._lock:
            self._asked_at = self._clock()
            self._wake.set()
            if sum(self._reading.values()) > self._parallel:
                return False
            self._waits = self._reason(allowed)
            return self._waits is None and permit.host in self._hosts()

    def leave(self, permit: Permit, *, rows: int = 0, bytes_: int = 0) -> None:
        """Returns a permit and reports the size of what was read under it since the last report."""
        self._pace.spend(rows=rows, bytes_=bytes_)
        with self._lock:
            self._reading[permit.host.address] -= 1

    def _reason(self, allowed: bool) -> tuple[str, str] | None:
        """Why no chunk may start: a text for people, and a word for programs. None: one may."""
        if not allowed:
            return "too much log waits to be applied", "pause_when_behind"
        if self._servers.is_needed:
            if self._usable is None or self._clock() - self._seen_at > STALE_SECONDS:
                return "the load of the servers is not known yet", "load"
            if not self._usable.hosts:
                return self._usable.reason, self._usable.paused_by
        seconds = self._pace.seconds_to_wait()
        if seconds > 0:
            holder = self._pace.holder()
            return f"{holder} allows the next chunk in {seconds:.1f} s", holder
        return None

    def _hosts(self) -> tuple[Host, ...]:
        if self._servers.is_needed and self._usable is not None:
            return self._usable.hosts
        return (self._servers.followed(),)

    # limits -------------------------------------------------------------------------------------------------

    def limits(
        self,
        *,
        parallel: int | None = None,
        rows_per_second: int | None = None,
        bytes_per_second: int | None = None,
    ) -> None:
        """Sets other limits; None leaves a limit unchanged. Chunks that are being read are not
        interrupted."""
        with self._lock:
            if parallel is not None:
                self._parallel = parallel
        self._pace.set(rows_per_second=rows_per_second, bytes_per_second=bytes_per_second)

    def to_json(self) -> dict[str, Any]:
        """The limits, and why chunks wait: `throttled` for people, `paused_by` for programs. Both are null if
        no chunk waits."""
        with self._lock:
            in_use = self._clock() - self._asked_at <= IN_USE_SECONDS
            reason, paused_by = (self._waits if in_use else None) or (None, None)
            return {
                "throttled": reason,
                "paused_by": paused_by,
                "limits": {
                    "parallel": self._parallel,
                    "rows_per_second": self._pace.rows_per_second,
                    "bytes_per_second": self._pace.bytes_per_second,
                },
                "hosts": self._servers.hosts_to_json(),
            }

    # looking ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the thread that checks the servers, if a limit depends on them."""
        if self._servers.is_needed:
            self._watcher = threading.Thread(target=self._watch, name="snapshot-load", daemon=True)
            self._watcher.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Ends the thread that checks the servers, and waits for it at most `seconds`. A check of a silent
        server may last longer; its thread then ends later on its own."""
        self._stopping.set()
        self._wake.set()
        if self._watcher is not None:
            self._watcher.join(seconds)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            if not self._is_in_use():
                self._servers.close()
                self._wake.wait()  # no limit: no chunk waits, and `stop` wakes it
                self._wake.clear()
                continue
            usable = self._servers.look()
            with self._lock:
                self._usable, self._seen_at = usable, self._clock()
            self._stopping.wait(LOOK_SECONDS)
        self._servers.close()

    def _is_in_use(self) -> bool:
        with self._lock:
            recently = self._clock() - self._asked_at <= IN_USE_SECONDS
            return recently or any(self._reading.values())
