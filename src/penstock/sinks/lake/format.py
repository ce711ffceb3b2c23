"""What tells one lake format from another. `LakeSink` (`sink.py`) does the rest.

A target "as it is now" is what `load` gives: an object of the format's own, of one version of the table. The
methods that write make a version of their own, in which the commit stands; a method that returns False has
written nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from penstock.model.plan import Move
from penstock.model.schema import TableId
from penstock.sinks.base import Commit, Compacted, Foreign, Missing
from penstock.sinks.files import Rows
from penstock.sinks.lake.evolve import Change


class LakeFormat(Protocol):
    # targets

    def check(self) -> None:
        """See `Sink.check`."""

    def name(self, table: TableId) -> str:
        """The target's name as Spark SQL."""

    def place(self, table: TableId) -> str:
        """Where the target is, for messages."""

    def look(self, table: TableId) -> Any | Missing | Foreign:
        """The target as it is now, whoever made it. `Foreign`: something else is in its place."""

    def load(self, table: TableId) -> Any:
        """The target as it is now; it is there."""

    def create(self, table: TableId, columns: StructType, properties: Mapping[str, str]) -> bool:
        """False: meanwhile somebody else has made one."""

    def remove(self, table: TableId) -> None:
        """Removes a target of ours."""

    def remove_files(self, table: TableId) -> bool:
        """Removes what is in the place of the target. False: only its catalog knows where that is."""

    def identity(self, table: TableId) -> str | None:
        """See `TableSink.identity`."""

    def move(
        self,
        moves: Sequence[Move],
        *,
        identity: Callable[[TableId], str | None],
        refuse: Callable[[TableId], None],
    ) -> list[Move]:
        """See `TableSink.move`. `identity`: of what is there now. `refuse` raises for what is not ours."""

    # what a target says

    def properties(self, target: Any) -> dict[str, str]: ...

    def column_names(self, target: Any) -> list[str]: ...

    def is_empty(self, target: Any) -> bool:
        """True only if it certainly holds no rows."""

    def last_commit(self, target: Any, source: str) -> Commit | None:
        """Of the shard `source`; of the table itself if that is empty."""

    def version(self, target: Any) -> str | None:
        """See `Readable.version`."""

    # writes

    def alone(self, table: TableId) -> AbstractContextManager[None]:
        """Keeps out other writes that would undo the premises of one by Spark."""

    def session(self, table: TableId, commit: Commit) -> AbstractContextManager[SparkSession]:
        """A session whose statements about the target carry the commit."""

    def commit_small(
        self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit
    ) -> bool:
        """Adds few rows without a Spark job, in place of those with their keys (none: they are appended)."""

    def append_files(self, table: TableId, target: Any, rows: Rows, commit: Commit) -> bool:
        """Adds rows as files that the tasks themselves write."""

    def append_by_spark(self, table: TableId, rows: Rows, commit: Commit) -> None: ...

    def merge_files(
        self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit
    ) -> bool:
        """Adds rows as files, and marks as gone what the target has of their keys."""

    def truncate(self, table: TableId, commit: Commit) -> bool:
        """Removes all rows without Spark."""

    def record(self, table: TableId, commit: Commit) -> None:
        """After a write by Spark: the commit stands in the target, also if no row changed."""

    def set_property(self, table: TableId, name: str, value: str) -> None: ...

    # columns

    def columns(self, table: TableId) -> StructType:
        """As Spark reads them now."""

    def stored(self, kind: DataType) -> DataType:
        """The type by which the format keeps a type."""

    def widens(self, old: DataType, kind: DataType) -> bool:
        """The format can turn one type into the other without touching rows."""

    def is_computed(self, change: Change) -> bool:
        """The values of the column have to be computed for the rows that are there."""

    def compute(self, table: TableId, present: StructType, waiting: list[Change]) -> None:
        """Fills the columns aside (`Change.aside`); those that are missing are made first."""

    def change_columns(
        self,
        table: TableId,
        present: StructType,
        changed: list[Change],
        waiting: list[Change],
        commit: Commit | None,
        properties: Mapping[str, str | None],
    ) -> None:
        """Does all changes in one transaction; `waiting` are those whose values were computed."""

    # reads and care

    def hold(self, table: TableId) -> str | None:
        """See `Readable.hold`."""

    def read(self, table: TableId, version: str | None) -> DataFrame: ...

    def compact(self, table: TableId) -> Compacted: ...

    def close(self) -> None:
        """Ends what goes on in the background."""
