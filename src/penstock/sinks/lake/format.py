"""What a lake format must provide. `LakeSink` (`sink.py`) does everything else.

`find` and `load` return a target as it is now: an object of the format's own library that stands for one
version of the table. A method that writes makes a new version. Unless it says otherwise, that version also
records the commit. A write method that returns False has written nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from penstock.model.plan import Move
from penstock.model.schema import TableId
from penstock.sinks.base import Commit, Compacted, Foreign, Missing
from penstock.sinks.evolve import Change
from penstock.sinks.names import Reserved
from penstock.sinks.rows import Rows


class LakeFormat(Protocol):
    # targets ------------------------------------------------------------------------------------------------

    reserved: Reserved

    def check(self) -> None:
        """See `Sink.check`."""

    def name(self, table: TableId) -> str:
        """The target's name in Spark SQL, quoted."""

    def name_for_writes(self, table: TableId) -> str:
        """The name to which Spark SQL writes: that of the target, or of a branch of it, which is created if
        it is missing."""

    def place(self, table: TableId) -> str:
        """Where the target is, for messages."""

    def find(self, table: TableId) -> Any | Missing | Foreign:
        """The target as it is now, whoever created it. `Foreign`: the place holds something that is not a
        table of this format."""

    def load(self, table: TableId) -> Any:
        """The target as it is now. The caller knows that it exists."""

    def create(
        self, table: TableId, columns: StructType, key: Sequence[str], properties: Mapping[str, str]
    ) -> bool:
        """Creates the target unless it exists. True only if this call certainly created it: then the caller
        need not look whose it is."""

    def remove(self, table: TableId) -> None:
        """Removes a target of this pipeline."""

    def remove_files(self, table: TableId) -> bool:
        """Deletes the target's directory, whatever it holds. If only a catalog knows the directory, deletes
        the catalog's entry if the file that it names is missing. False: neither can be done."""

    # what a loaded target says ------------------------------------------------------------------------------

    def properties(self, target: Any) -> dict[str, str]: ...

    def column_names(self, target: Any) -> list[str]: ...

    def is_empty(self, target: Any) -> bool:
        """True only if the target certainly holds no rows."""

    def last_commit(self, target: Any, source: str) -> Commit | None:
        """The last commit with this `Commit.source`."""

    def generation(self, target: Any) -> int:
        """The generation for which the target was fenced; 0: it never was."""

    def version(self, target: Any) -> str | None:
        """See `Readable.version`."""

    def target_id(self, target: Any) -> str:
        """See `Lasting.target_id`."""

    # writes -------------------------------------------------------------------------------------------------

    def exclusive(self, table: TableId) -> AbstractContextManager[None]:
        """Keeps out other writes of this process that would make one by Spark fail."""

    def session(self, table: TableId, commit: Commit) -> AbstractContextManager[SparkSession]:
        """A session whose SQL statements record the commit in the target, if they change any row."""

    def commit_small(
        self,
        table: TableId,
        target: Any,
        rows: Rows,
        key: tuple[str, ...],
        commit: Commit,
        *,
        versions: bool = False,
    ) -> bool:
        """Adds few rows without a Spark job. They replace the rows of the target that have the same `key`;
        with an empty key, nothing is replaced. `versions`: the rows are changes, and the target keeps
        versions (`HistorySink`)."""

    def append_files(self, table: TableId, target: Any, rows: Rows, commit: Commit) -> bool:
        """Adds rows as data files that Spark's tasks write themselves."""

    def append_by_spark(self, table: TableId, rows: Rows, commit: Commit) -> None:
        """Adds rows with Spark's own writer. The caller calls `record` next."""

    def merge_files(
        self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit
    ) -> bool:
        """Adds rows as data files that Spark's tasks write themselves, and marks the rows of the target that
        have the same keys as deleted."""

    def truncate(self, table: TableId, target: Any, commit: Commit) -> bool:
        """Removes all rows without Spark, unless rows were added since `target` was loaded."""

    def record(self, table: TableId, commit: Commit) -> None:
        """Records the commit after a write by Spark, which may not have done so, for example because no row
        changed."""

    def set_property(self, table: TableId, name: str, value: str) -> None: ...

    def fence(self, table: TableId, generation: int) -> None:
        """Stores the generation. Commits of rows that were begun before, by this class in any process, fail
        from then on."""

    # columns ------------------------------------------------------------------------------------------------

    def columns(self, table: TableId) -> StructType:
        """The target's columns now, as Spark reads them."""

    def stored(self, kind: DataType) -> DataType:
        """The type in which the format stores values of a type."""

    def widens(self, old: DataType, kind: DataType) -> bool:
        """Whether the format can change a column's type from `old` to `kind` without rewriting rows."""

    def needs_computing(self, table: TableId, change: Change) -> bool:
        """Whether existing rows get values that must be computed and written."""

    def compute(self, table: TableId, present: StructType, computed: list[Change]) -> None:
        """Creates the changes' temporary columns (`Change.temporary`) where they are missing, and fills them.
        Records no commit."""

    def change_columns(
        self,
        table: TableId,
        present: StructType,
        changed: list[Change],
        computed: list[Change],
        commit: Commit | None,
        properties: Mapping[str, str | None],
    ) -> None:
        """Makes all changes, and sets the properties (None: removes one), in one transaction. `computed`: the
        changes whose values are in their temporary columns."""

    # reads and maintenance ----------------------------------------------------------------------------------

    def hold(self, table: TableId) -> str | None:
        """See `Readable.hold`."""

    def read(self, table: TableId, version: str | None) -> DataFrame:
        """See `Readable.read`."""

    def compact(self, table: TableId) -> Compacted:
        """See `TableSink.compact`."""

    def close(self) -> None:
        """Ends background work."""


Fits = Callable[[DataType, DataType], bool]
"""Whether a column of the first type can hold the values of the second, or can be widened to it."""


@runtime_checkable
class AdoptingFormat(LakeFormat, Protocol):
    """A format that can take over tables of others. The methods that take a target get one that `find` has
    returned, and that has no owner."""

    def adopts(self, table: TableId) -> bool:
        """Whether the options permit it for this table."""

    def differences(
        self, table: TableId, target: Any, wanted: StructType, key: Sequence[str], *, rows: bool
    ) -> list[str]:
        """See `Adopting.differences`. `wanted`: the columns of a new target."""

    def adopt(self, table: TableId, target: Any, key: Sequence[str], properties: Mapping[str, str]) -> None:
        """Makes the table ours: sets the properties, and adds a column `_sequence` that is NULL in all
        rows."""


@runtime_checkable
class MovableFormat(LakeFormat, Protocol):
    """A format whose targets can be renamed."""

    def identity(self, table: TableId) -> str:
        """See `TableSink.identity`. The target is one of this pipeline."""

    def move(
        self,
        moves: Sequence[Move],
        *,
        identity: Callable[[TableId], str | None],
        refuse: Callable[[TableId], None],
    ) -> list[Move]:
        """See `TableSink.move`. `identity` returns the identity of the target that a table has now (None: it
        has none of this pipeline). `refuse` raises if a target's place belongs to somebody else."""
