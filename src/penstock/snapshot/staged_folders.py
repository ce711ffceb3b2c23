"""The directories of staged chunks: one for each snapshot of a table.

Because each snapshot has its own directory, chunks of an earlier snapshot are never used by mistake. The
directory of an ended snapshot is removed once nothing needs it.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.snapshot import staging
from penstock.state import StateStore


class StagedFolders:
    """The directories below `directory`. Not thread-safe: the caller holds a lock while tasks may start."""

    def __init__(self, directory: Path, state: StateStore) -> None:
        self._directory = directory
        self._state = state

    def of(self, table: TableState, snapshot: int) -> Path:
        """The directory of one snapshot of a table; 0 is the table's own snapshot."""
        return self._directory / (f"part-{snapshot}" if snapshot else str(table.start))

    def take_over(self) -> None:
        """Records the chunks that an earlier run has staged. Removes those that belong to no current
        snapshot. No task may be staging chunks."""
        self.remove_outdated(())
        for folder in staging.folders(self._directory):
            staging.sweep(folder)
            for item in staging.staged(folder):
                self._state.chunk_staged(item)

    def remove_outdated(self, reading: Collection[TableId]) -> bool:
        """Removes the directories of ended snapshots.

        Returns False if some must stay for now, because a task still writes there (it may be one of the
        tables `reading`) or a pending plan uses them. Later plans do not use them, since the table has
        another start by then.
        """
        folders = staging.folders(self._directory)  # before the state is read: later folders are current
        if not folders:
            return True
        with self._state.reading():
            known, partials = self._state.tables(), self._state.partials()
            needed = [(table, 0) for table in known.values() if table.reading]
            needed += [(known[one.table], one.number) for one in partials if one.table in known]
            outdated = set(folders) - {self.of(*one) for one in needed}
            plans = self._state.pending() if outdated else []
        planned = {Path(chunk.path).parent.parent.name for plan in plans for chunk in plan.chunks}
        kept = [
            one
            for one in outdated
            if one.name in planned or any(staging.table_directory(one, name).exists() for name in reading)
        ]
        for folder in outdated.difference(kept):
            shutil.rmtree(folder, ignore_errors=True)
        return not kept
