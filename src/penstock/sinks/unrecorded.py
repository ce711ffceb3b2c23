"""What sinks share that have no record of what they wrote but in this process.

The pipeline's state knows which epochs were applied. So after a kill, the last epoch is written again.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import Commit, EvolvedColumn, Missing, Narrowing, Ours, TargetState
from penstock.sinks.names import source_columns
from penstock.sinks.refusals import check_pipeline, is_recorded


class Unrecorded:
    """Base class of such sinks. `pipeline`: its uuid."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._columns: dict[TableId, tuple[str, ...]] = {}
        self._last: dict[TableId, Commit] = {}

    def open(self, table: TableId) -> TargetState:
        columns = self._columns.get(table)
        return Missing() if columns is None else Ours(self._last.get(table), columns, table not in self._last)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        self._columns[schema.table] = source_columns(arrow.names)

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        if self._done(table, commit):
            return False
        self._columns[table] = tuple(column.field.name for column in columns)
        self._last[table] = commit
        return True

    def close(self) -> None:
        """Nothing is open."""

    def _done(self, table: TableId, commit: Commit) -> bool:
        """Whether a commit was written by this process."""
        check_pipeline(commit, self._pipeline)
        return is_recorded(commit, self._last.get(table))
