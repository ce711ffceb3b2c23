"""The sink for tables in a lake format. It does what is the same in every format.

A `LakeFormat` knows how its tables are stored. For each write, this sink tries in turn: is the commit
recorded already? Can few rows be committed without a Spark job? Can Spark's tasks write the data files
themselves? If not, Spark's own writer or MERGE does it. In each case the target then records the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from penstock.errors import InternalError
from penstock.model.change import SEQUENCE
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import (
    FORMAT,
    GENERATION,
    PIPELINE,
    SHARDS_BY,
    SOURCE,
    Commit,
    Compacted,
    EvolvedColumn,
    Foreign,
    Missing,
    Narrowing,
    Ours,
    TargetState,
)
from penstock.sinks.evolve import changes
from penstock.sinks.lake.format import AdoptingFormat, LakeFormat, MovableFormat
from penstock.sinks.lake.merge import merge
from penstock.sinks.names import refuse_own_names, source_columns
from penstock.sinks.refusals import (
    check_pipeline,
    is_recorded,
    of_other_pipeline,
    other_shape,
    refuse_foreign,
    refuse_replaced,
    refuse_shared,
    rolled_back,
    shape,
    unfit_target,
)
from penstock.sinks.rows import Rows
from penstock.sinks.spark_sessions import shared_view
from penstock.sinks.spark_sql import quoted, spark_type, target_type


class LakeSink:
    """A `TableSink` that can be read back. `merged`: targets that several source tables share, with the
    column that tells their rows apart."""

    def __init__(self, lake_format: LakeFormat, pipeline: str, merged: Mapping[TableId, str]) -> None:
        self.format = lake_format
        self._pipeline = pipeline
        self._merged = merged
        self._generation = 0
        self._newest: dict[tuple[TableId, str], Commit] = {}
        """The newest commit that this object has made, by target and `Commit.source`."""

    def check(self) -> None:
        self.format.check()

    def open(self, table: TableId) -> TargetState:
        """See `Sink.open`. Whoever calls it looks at what the target has: from then on it may have less than
        was committed (`_target_unless_recorded`)."""
        self._newest.pop((table, ""), None)
        target = self.format.find(table)
        if isinstance(target, (Missing, Foreign)):
            return target
        place, properties = self.format.place(table), self.format.properties(target)
        owner = properties.get(PIPELINE)
        if owner != self._pipeline:
            return self._foreign(table, place, owner)
        if (other := other_shape(place, properties.get(SHARDS_BY), self._merged.get(table))) is not None:
            return other
        columns = source_columns(self.format.column_names(target))
        return Ours(self.format.last_commit(target, ""), columns, self.format.is_empty(target))

    def create(
        self,
        schema: TableSchema,
        arrow: pa.Schema,
        *,
        own: Sequence[pa.Field] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """See `Sink.create`. `own`: more columns that Penstock adds. `properties`: more of the target."""
        table = schema.table
        refuse_own_names(schema, self.format.reserved)
        found = self.open(table)
        refuse_foreign(table, found)
        if isinstance(found, Missing) and self.format.create(
            table,
            StructType([*target_type(arrow), *(StructField(one.name, spark_type(one)) for one in own)]),
            self._identifying(schema),
            {**self._own_properties(table), **(properties or {})},
        ):
            return
        refuse_foreign(table, self.open(table))
        self._refuse_other_source(table)

    def _identifying(self, schema: TableSchema) -> tuple[str, ...]:
        """The key by which rows of the target are told apart, if they are of one table."""
        return () if schema.table in self._merged else schema.key

    def _own_properties(self, table: TableId) -> dict[str, str]:
        return {
            PIPELINE: self._pipeline,
            "penstock.format": FORMAT,
            SOURCE: str(table),
            **shape(self._merged.get(table)),
            **({GENERATION: str(self._generation)} if self._generation else {}),
        }

    def _foreign(self, table: TableId, place: str, owner: str | None) -> Foreign:
        cure = "Name another `sink.namespace` or `sink.path`, or drop the table if nobody needs it."
        form = self.format
        if owner is not None:
            return of_other_pipeline(place, "table", owner, cure)
        adopts = isinstance(form, AdoptingFormat) and form.adopts(table) and table not in self._merged
        if isinstance(form, AdoptingFormat) and not adopts:
            cure += (
                " Or take it over, with its rows, by `adopt: true` in `sink.tables` (`penstock docs tables`)."
            )
        return Foreign(place, "a table that Penstock did not create", cure, adoptable=adopts)

    def differences(self, schema: TableSchema, arrow: pa.Schema, *, rows: bool) -> list[str]:
        target = self.format.find(schema.table)
        if not isinstance(self.format, AdoptingFormat) or isinstance(target, (Missing, Foreign)):
            return []
        return self.format.differences(schema.table, target, target_type(arrow), schema.key, rows=rows)

    def adopt(self, schema: TableSchema, arrow: pa.Schema) -> None:
        table = schema.table
        found = self.open(table)
        if not isinstance(found, Foreign):
            self.create(schema, arrow)
            return
        if not found.adoptable or not isinstance(self.format, AdoptingFormat):
            raise found.error(table)
        refuse_own_names(schema, self.format.reserved)
        if different := self.differences(schema, arrow, rows=True):
            raise unfit_target(table, found.place, different)
        self.format.adopt(table, self.format.find(table), schema.key, self._own_properties(table))

    def drop(self, table: TableId) -> None:
        if isinstance(self.open(table), Ours) and self._source(table) == str(table):
            self._remove(table)

    def clear(self, table: TableId) -> None:
        try:
            found = self.open(table)
            refuse_foreign(table, found)
            if isinstance(found, Ours):
                self._refuse_other_source(table)
                self._remove(table)
        except (Py4JJavaError, PySparkException):  # it cannot be opened
            if not self.format.remove_files(table):
                raise
        else:
            if isinstance(found, Missing):
                self.format.remove_files(table)  # remains of an interrupted `create`

    def _remove(self, table: TableId) -> None:
        self._forget_commits([table])
        with self.format.exclusive(table):
            self.format.remove(table)

    def identity(self, table: TableId) -> str | None:
        if not isinstance(self.format, MovableFormat) or not isinstance(self.open(table), Ours):
            return None
        return self.format.identity(table)

    def move(self, moves: Sequence[Move]) -> list[Move]:
        if not isinstance(self.format, MovableFormat):
            raise InternalError("A plan renames targets of a sink that cannot rename them.")

        def refuse(table: TableId) -> None:
            refuse_foreign(table, self.open(table))

        self._forget_commits([one for move in moves for one in (move.source, move.target)])
        sources = {str(move.source) for move in moves}
        taken = [move for move in moves if self._is_of_another(move.target, sources)]
        moves = [move for move in moves if move not in taken]
        lost = taken + self.format.move(moves, identity=self.identity, refuse=refuse)
        for move in moves:
            if move not in lost:
                self.set_property(move.target, SOURCE, str(move.target))
        return lost

    # fencing ------------------------------------------------------------------------------------------------

    def begin(self, generation: int) -> None:
        self._generation = generation

    def fence(self, table: TableId) -> None:
        if isinstance(self.open(table), Ours):
            fenced = self.format.generation(self.format.load(table))
            refuse_replaced(table, fenced, self._generation)
            if fenced < self._generation:
                self.format.fence(table, self._generation)

    # writes -------------------------------------------------------------------------------------------------

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if (target := self._target_unless_recorded(table, commit)) is None:
            return False
        if self.format.commit_small(table, target, rows, (), commit):
            return self._written(table, commit)
        if self.format.append_files(table, target, rows, commit):
            return self._written(table, commit)
        self.format.append_by_spark(table, rows, commit)
        self.format.record(table, commit)
        return self._written(table, commit)

    def append_whole(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        """Adds rows that have all columns of the target, also those that Penstock adds."""
        if (target := self._target_unless_recorded(table, commit)) is None:
            return False
        if self.format.commit_small(table, target, rows, (), commit):
            return self._written(table, commit)
        if self.format.append_files(table, target, rows, commit):
            return self._written(table, commit)
        names = ", ".join(quoted(name) for name in self.format.column_names(target))
        form = self.format
        with form.exclusive(table):
            if self._target_unless_recorded(table, commit) is None:  # it may have waited for long
                return False
            with form.session(table, commit) as session, shared_view(rows.frame) as view:
                session.sql(f"INSERT INTO {form.name_for_writes(table)} ({names}) SELECT {names} FROM {view}")
        self.format.record(table, commit)
        return self._written(table, commit)

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        if (target := self._target_unless_recorded(table, commit)) is None:
            return False
        if self.format.commit_small(table, target, rows, key, commit):
            return self._written(table, commit)
        with self.format.exclusive(table):
            if self.format.merge_files(table, target, rows, key, commit):
                return self._written(table, commit)
            with self.format.session(table, commit) as session:
                merge(session, table, self.format.name_for_writes(table), rows, key)
        self.format.record(table, commit)
        return self._written(table, commit)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        with self.format.exclusive(table):
            if (target := self._target_unless_recorded(table, commit)) is None:
                return False
            if not self.format.truncate(table, target, commit):
                self._delete(table, "true", commit)
        return self._written(table, commit)

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        # NULL: a row that was there when the target was adopted.
        return self.delete(table, f"({SEQUENCE} IS NULL OR {SEQUENCE} < {int(sequence)})", commit)

    def delete(self, table: TableId, condition: str, commit: Commit) -> bool:
        """Deletes the rows for which the condition, in Spark SQL, is true."""
        with self.format.exclusive(table):
            if self._target_unless_recorded(table, commit) is None:
                return False
            self._delete(table, condition, commit)
        return self._written(table, commit)

    def _delete(self, table: TableId, condition: str, commit: Commit) -> None:
        """A delete of whole files may not carry the commit, which is then recorded a moment later. If the
        process is killed in between, the delete runs again, which changes nothing."""
        with self.format.session(table, commit) as session:
            session.sql(f"DELETE FROM {self.format.name_for_writes(table)} WHERE {condition}")
        self.format.record(table, commit)

    def evolve(
        self,
        table: TableId,
        columns: Sequence[EvolvedColumn],
        commit: Commit | None,
        *,
        narrowing: Narrowing,
        properties: Mapping[str, str | None] | None = None,
    ) -> bool:
        """See `Sink.evolve`. `properties` of the target (None: remove it) change in the same transaction.
        `commit` None: no commit is recorded.

        Values that have to be computed are first written to temporary columns (`Change.temporary`). Then one
        transaction renames, drops, adds and reorders all columns, and replaces the old columns by the
        temporary ones. So no reader ever sees a column half converted."""
        form = self.format
        with form.exclusive(table):
            if commit is not None and self._target_unless_recorded(table, commit) is None:
                return False
            present = form.columns(table)
            changed = changes(table, present, columns, reserved=form.reserved, stored=form.stored,
                              widens=form.widens, narrowing=narrowing)  # fmt: skip
            computed = [change for change in changed if form.needs_computing(table, change)]
            if computed:
                form.compute(table, present, computed)
            form.change_columns(table, present, changed, computed, commit, properties or {})
        return True if commit is None else self._written(table, commit)

    def write_by_sql(
        self,
        table: TableId,
        commit: Commit,
        run: Callable[[SparkSession, str], None],
        *,
        directly: Callable[[Any], bool] = lambda target: False,
    ) -> bool:
        """Lets `run` execute one statement. It gets a session, and the name of the target for writes.
        `directly`: does the same without a statement, or returns False."""
        if (target := self._target_unless_recorded(table, commit)) is None:
            return False
        if directly(target):
            return self._written(table, commit)
        with self.format.exclusive(table):
            if self._target_unless_recorded(table, commit) is None:  # it may have waited for long
                return False
            with self.format.session(table, commit) as session:
                run(session, self.format.name_for_writes(table))
        self.format.record(table, commit)
        return self._written(table, commit)

    def write_versions(
        self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit,
        run: Callable[[SparkSession, str], None],
    ) -> bool:  # fmt: skip
        """Writes changes to a target that keeps versions. `run` does it by one statement: see
        `write_by_sql`."""

        def directly(target: Any) -> bool:
            return self.format.commit_small(table, target, rows, key, commit, versions=True)

        return self.write_by_sql(table, commit, run, directly=directly)

    # what shards need to know of their shared target -------------------------------------------------------

    def name(self, table: TableId) -> str:
        """The target's name as Spark SQL."""
        return self.format.name(table)

    def name_for_writes(self, table: TableId) -> str:
        return self.format.name_for_writes(table)

    def columns(self, table: TableId) -> StructType:
        return self.format.columns(table)

    def stored(self, kind: DataType) -> DataType:
        """The type in which the format stores values of a type."""
        return self.format.stored(kind)

    def properties(self, table: TableId) -> dict[str, str]:
        return self.format.properties(self.format.load(table))

    def set_property(self, table: TableId, name: str, value: str) -> None:
        self.format.set_property(table, name, value)

    def last_commit(self, table: TableId, source: str) -> Commit | None:
        return self.format.last_commit(self.format.load(table), source)

    # reads --------------------------------------------------------------------------------------------------

    def version(self, table: TableId) -> str | None:
        return self.format.version(self.format.load(table))

    def target_id(self, table: TableId) -> str:
        return self.format.target_id(self.format.load(table))

    def hold(self, table: TableId) -> str | None:
        return self.format.hold(table)

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        return self.format.read(table, version)

    def compact(self, table: TableId) -> Compacted:
        return self.format.compact(table)

    def close(self) -> None:
        self.format.close()

    # --------------------------------------------------------------------------------------------------------

    def _source(self, table: TableId) -> str:
        """The table that the target was created for."""
        return self.properties(table).get(SOURCE, str(table))

    def _is_of_another(self, table: TableId, moved: Collection[str]) -> bool:
        """Whether the place of the table's target has that of another table, which is not among `moved`."""
        return isinstance(self.open(table), Ours) and self._source(table) not in (str(table), *moved)

    def _refuse_other_source(self, table: TableId) -> None:
        """Raises `TableError` if the target was created for another table."""
        refuse_shared(table, self.name(table), self._source(table))

    def _target_unless_recorded(self, table: TableId, commit: Commit) -> Any | None:
        """The target as it is now. None: it has recorded the commit already. Raises `DriverReplaced`, and
        `TableError` if it lacks a commit that was made before: somebody has rolled it back or replaced it."""
        check_pipeline(commit, self._pipeline)
        target = self.format.load(table)
        refuse_replaced(table, self.format.generation(target), self._generation)
        last = self.format.last_commit(target, commit.source)
        if is_recorded(commit, last):
            return None
        newest = self._newest.pop((table, commit.source), None)  # the error is raised once
        if newest is not None and not is_recorded(newest, last):
            raise rolled_back(table, newest.epoch)
        if newest is not None:
            self._newest[table, commit.source] = newest
        return target

    def _written(self, table: TableId, commit: Commit) -> bool:
        self._newest[table, commit.source] = commit
        return True

    def _forget_commits(self, tables: Collection[TableId]) -> None:
        for place in list(self._newest):  # other tables are written meanwhile
            if place[0] in tables:
                self._newest.pop(place, None)
