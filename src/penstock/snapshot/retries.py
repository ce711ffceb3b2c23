"""Remembers what is being retried, and why, for `penstock status`."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.model.schema import TableId


@dataclass(frozen=True)
class _Retry:
    since: float
    attempts: int
    reason: str


SLOW_S = 30.0
"""A first attempt that takes longer than this is told, too."""


class Retries:
    """What is being retried, by table. None: work that belongs to no table. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[TableId | None, _Retry] = {}
        self._running: dict[TableId | None, tuple[float, str]] = {}

    def failed(self, table: TableId | None, error: BaseException, reason: str = "") -> None:
        """An attempt failed and will be repeated. `reason` replaces the error's own text."""
        reason = (
            reason
            or (str(getattr(error, "message", "")) or str(error) or type(error).__name__).splitlines()[0]
        )
        with self._lock:
            known = self._known.get(table)
            since, attempts = (known.since, known.attempts) if known else (time.time(), 0)
            self._known[table] = _Retry(since, attempts + 1, reason)

    @contextlib.contextmanager
    def running(self, table: TableId | None, what: str) -> Iterator[None]:
        """The block is an attempt, which may take long. `what`: what is waited for then."""
        with self._lock:
            self._running[table] = time.time(), what
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(table, None)

    def ended(self, table: TableId | None) -> None:
        """The work succeeded, or is not retried any more."""
        if self._known:
            with self._lock:
                self._known.pop(table, None)

    def clear(self) -> None:
        """Everything that was being retried has succeeded."""
        if self._known:
            with self._lock:
                self._known.clear()

    def keep_only(self, tables: Collection[TableId]) -> None:
        """Forgets all tables except these."""
        if self._known:
            with self._lock:
                self._known = {one: at for one, at in self._known.items() if one is None or one in tables}

    def to_json(self, what: str) -> list[dict[str, Any]]:
        with self._lock:
            known = list(self._known.items())
            slow = {
                table: _Retry(since, 0, f"the target has not answered yet ({what})")
                for table, (since, what) in self._running.items()
                if table not in self._known and time.time() - since > SLOW_S
            }
        known += slow.items()
        return [
            {
                "what": what,
                "table": None if table is None else str(table),
                "since": _iso(retry.since),
                "attempts": retry.attempts,
                "reason": retry.reason,
            }
            for table, retry in known
        ]


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).isoformat(timespec="seconds")
