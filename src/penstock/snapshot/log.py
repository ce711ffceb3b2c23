"""The relay log as the threads see it that read chunks: a reader of their own, since one reader serves one
thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock._core import GtidSet
from penstock.model.offset import Offset
from penstock.relaylog.reader import RelayLog


class ChunkLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._log: RelayLog | None = None

    @contextmanager
    def _refreshed(self) -> Iterator[RelayLog]:
        with self._lock:
            if self._log is None:
                self._log = RelayLog.open(self._path)
            self._log.refresh()
            yield self._log

    def gtids_at(self, offset: Offset) -> str:
        with self._refreshed() as log:
            return str(log.gtids_at(offset))

    def bytes_behind(self, applied: Offset | None) -> int:
        """Log that is still to be applied."""
        with self._refreshed() as log:
            return int(log.end - (applied or log.start))

    def bytes_outside(self, gtids: str) -> int:
        """Log from the first transaction on that is not in the set."""
        with self._refreshed() as log:
            return int(log.end - log.window_start(GtidSet(gtids), not_after=log.end))
