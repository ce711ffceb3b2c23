"""The folders of staged chunks: one for each snapshot of a table.

Because each snapshot has its own folder, chunks of an earlier snapshot are never used by mistake. The
folder of an ended snapshot is removed once nothing needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.snapshot.staging import Staging, snapshot_of
from penstock.state import StateStore


class StagedFolders:
    """The folders of a pipeline. Not thread-safe: the caller holds a lock while tasks may start. `kept`:
    folders that somebody else still needs."""

    def __init__(
        self, staging: Staging, state: StateStore, kept: Callable[[], set[str]] = lambda: set()
    ) -> None:
        self._staging = staging
        self._state = state
        self._kept = kept
        self._used: set[str] = set()
        """Folders that may have files: those that were there at the start, and those used since. Asking the
        store each time would cost a request."""

    def of(self, table: TableState, snapshot: int) -> str:
        """The name of the folder of one snapshot of a table; 0 is the table's own snapshot. Tasks may write
        there from now on."""
        name = _name(table, snapshot)
        self._used.add(name)
        return name

    def take_over(self) -> None:
        """Records the chunks that an earlier run has staged. Removes those that belong to no current
        snapshot. No task may be staging chunks."""
        self._used = self._staging.snapshots()
        self.remove_outdated(())
        for item in self._staging.recover():
            self._state.chunk_staged(item)

    def remove_outdated(self, reading: Collection[TableId]) -> bool:
        """Removes the folders of ended snapshots.

        Returns False if some must stay for now, because a task still writes there (it may be one of the
        tables `reading`) or a pending plan uses them. Later plans do not use them, since the table has
        another start by then.
        """
        folders = set(self._used)  # before the state is read: later folders are current
        if not folders:
            return True
        with self._state.reading():
            known, partials = self._state.tables(), self._state.partials()
            needed = [(table, 0) for table in known.values() if table.reading]
            needed += [(known[one.table], one.number) for one in partials if one.table in known]
            outdated = folders - {_name(*one) for one in needed}
            plans = self._state.pending() if outdated else []
        planned = {snapshot_of(chunk) for plan in plans for chunk in plan.chunks} | self._kept()
        kept = {
            one
            for one in outdated
            if one in planned or any(self._staging.has_chunks(one, name) for name in reading)
        }
        for folder in outdated - kept:
            self._staging.remove_snapshot(folder)
            if not reading:  # otherwise a task that has begun may write there later
                self._used.discard(folder)
        return not kept


def _name(table: TableState, snapshot: int) -> str:
    return f"part-{snapshot}" if snapshot else str(table.start)
