"""Answers the questions of snapshots about the relay log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog, Statement
from penstock.relaylog.segment_format import TransactionSet, set_of
from penstock.relaylog.unprotected import unprotected_statements
from penstock.sources.windows import LogState, Window, Windows


class ChunkLog:
    """Answers the threads that read chunks. It has a reader of its own, because a reader of the relay log
    may be used by one thread only."""

    def __init__(self, place: LogPlace) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._log: RelayLog | None = None

    @contextmanager
    def _refreshed(self) -> Iterator[RelayLog]:
        with self._lock:
            if self._log is None:
                self._log = RelayLog.open(self._place)
            self._log.refresh()
            yield self._log

    def executed_at(self, offset: Offset) -> str:
        """What the source had executed at an offset, in the form that `sources.chunks.ChunkReader.require`
        takes."""
        with self._refreshed() as log:
            return str(log.executed_at(offset))

    def bytes_behind(self, applied: Offset | None) -> int:
        """Bytes of log that are not applied yet."""
        with self._refreshed() as log:
            return int(log.end - (applied or log.start))

    def bytes_outside(self, executed: str) -> int:
        """Bytes of log from the first transaction that a server has not executed to the end of the log."""
        with self._refreshed() as log:
            return int(log.end - log.window_start(set_of(log.facts, executed), not_after=log.end))


class Places:
    """Implements `sources.windows.LogPlaces` with the relay log. Offsets after `not_after` are never
    needed."""

    def __init__(self, relay_log: RelayLog, *, not_after: Offset) -> None:
        self._log = relay_log
        self._not_after = not_after

    def window_start(self, executed: str) -> Offset:
        wanted = set_of(self._log.facts, executed)
        return self._log.window_start(wanted, not_after=self._not_after)

    def offset_within(self, position: SourcePosition) -> Offset:
        return self._log.offset_within(position)


class PlacementIndex:
    """Implements `snapshot.placement.LogIndex` with the relay log. It caches every answer, because many
    tables start at the same offset and ask the same questions."""

    def __init__(self, relay_log: RelayLog, windows: Windows) -> None:
        self._log = relay_log
        self._windows = windows
        self._end, self._newest = relay_log.end, relay_log.newest()
        self._window_starts: dict[str, Offset] = {}
        self._tables: dict[LogRange, dict[TableId, tuple[int, int]]] = {}
        self._statements: dict[LogRange, list[Statement]] = {}
        self._executed: dict[Offset, TransactionSet] = {}

    @property
    def is_current(self) -> bool:
        """Whether the log has nothing new since the answers were given."""
        return self._log.newest() == self._newest

    def window_start(self, executed: str) -> Offset:
        if executed not in self._window_starts:
            wanted = set_of(self._log.facts, executed)
            found = self._log.window_start(wanted, not_after=self._end)
            self._window_starts[executed] = found
        return self._window_starts[executed]

    def offset_within(self, position: SourcePosition) -> Offset:
        return self._log.offset_within(position)

    def table_bytes(self, table: str, log_range: LogRange) -> int:
        if log_range not in self._tables:
            self._tables[log_range] = self._log.tables(log_range)
        return self._tables[log_range].get(TableId.parse(table), (0, 0))[1]

    def statements(self, log_range: LogRange) -> list[Statement]:
        """The statements of the range, as far back as the log still exists."""
        if log_range not in self._statements:
            self._statements[log_range] = unprotected_statements(self._log, log_range)
        return self._statements[log_range]

    def window(self, chunk: StagedChunk) -> Window:
        return self._windows.of(chunk.watermarks)

    def state_at(self, offset: Offset, *, executed: bool = True) -> LogState:
        """The state of the log at an offset. Without `executed`, the set of executed transactions is left
        out, which is costly to compute."""
        if executed and offset not in self._executed:
            self._executed[offset] = self._log.executed_at(offset)
        return LogState(self._log.position_at(offset), self._executed[offset] if executed else None)
