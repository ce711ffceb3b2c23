"""Tables in a lake format: what every format does in the same way.

A `LakeFormat` knows how its tables are stored. This sink decides: is the commit recorded already? Can few
changes be committed without a Spark job? Can the tasks write files that take the place of the rows they
replace? Only then does Spark merge. Whatever did it, the commit stands in the target afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from penstock.model.change import SEQUENCE
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import (
    FORMAT,
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
from penstock.sinks.files import Rows
from penstock.sinks.lake.evolve import changes
from penstock.sinks.lake.format import LakeFormat
from penstock.sinks.lake.merge import merge, target_type
from penstock.sinks.names import refuse_own_names, source_columns
from penstock.sinks.refusals import (
    check_pipeline,
    is_recorded,
    other_shape,
    refuse_foreign,
    refuse_shared,
    shape,
)


class LakeSink:
    """`merged`: targets that several source tables have together, with the column that tells them apart."""

    def __init__(self, format_: LakeFormat, pipeline: str, merged: Mapping[TableId, str]) -> None:
        self.format = format_
        self._pipeline = pipeline
        self._merged = merged

    def check(self) -> None:
        self.format.check()

    def open(self, table: TableId) -> TargetState:
        target = self.format.look(table)
        if isinstance(target, (Missing, Foreign)):
            return target
        place, properties = self.format.place(table), self.format.properties(target)
        owner = properties.get(PIPELINE)
        if owner != self._pipeline:
            reason = (
                "a table that Penstock did not create" if owner is None else f"the table of pipeline {owner}"
            )
            cure = "Name another `sink.namespace` or `sink.path`, or drop the table if nobody needs it."
            return Foreign(place, reason, cure)
        if (other := other_shape(place, properties.get(SHARDS_BY), self._merged.get(table))) is not None:
            return other
        columns = source_columns(self.format.column_names(target))
        return Ours(self.format.last_commit(target, ""), columns, self.format.is_empty(target))

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        table = schema.table
        refuse_own_names(schema)
        found = self.open(table)
        refuse_foreign(table, found)
        properties = {
            PIPELINE: self._pipeline,
            "penstock.format": FORMAT,
            SOURCE: str(table),
            **shape(self._merged.get(table)),
        }
        if isinstance(found, Missing) and self.format.create(table, target_type(arrow), properties):
            return
        refuse_foreign(table, self.open(table))
        self._refuse_other_source(table)

    def drop(self, table: TableId) -> None:
        if isinstance(self.open(table), Ours):
            with self.format.alone(table):
                self.format.remove(table)

    def clear(self, table: TableId) -> None:
        try:
            found = self.open(table)
            refuse_foreign(table, found)
            if isinstance(found, Ours):
                self._refuse_other_source(table)
            self.drop(table)
        except (Py4JJavaError, PySparkException):  # it cannot be opened
            if not self.format.remove_files(table):
                raise
            return
        self.format.remove_files(table)

    def identity(self, table: TableId) -> str | None:
        return self.format.identity(table) if isinstance(self.open(table), Ours) else None

    def move(self, moves: Sequence[Move]) -> list[Move]:
        def refuse(table: TableId) -> None:
            refuse_foreign(table, self.open(table))

        lost = self.format.move(moves, identity=self.identity, refuse=refuse)
        for move in moves:
            if move not in lost:
                self.set_property(move.target, SOURCE, str(move.target))
        return lost

    # writes -------------------------------------------------------------------------------------------------

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if (target := self._unless_done(table, commit)) is None:
            return False
        if self.format.commit_small(table, target, rows, (), commit):
            return True
        if self.format.append_files(table, target, rows, commit):
            return True
        self.format.append_by_spark(table, rows, commit)
        self.format.record(table, commit)
        return True

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        if (target := self._unless_done(table, commit)) is None:
            return False
        if self.format.commit_small(table, target, rows, key, commit):
            return True
        with self.format.alone(table):
            if self.format.merge_files(table, target, rows, key, commit):
                return True
            with self.format.session(table, commit) as session:
                merge(session, table, self.name(table), rows, key)
        self.format.record(table, commit)
        return True

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        if self._unless_done(table, commit) is None:
            return False
        with self.format.alone(table):
            if self.format.truncate(table, commit):
                return True
        return self.delete(table, "true", commit)

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        return self.delete(table, f"{SEQUENCE} < {int(sequence)}", commit)

    def delete(self, table: TableId, condition: str, commit: Commit) -> bool:
        """Rows for which the condition, in Spark SQL, is true go. Doing this twice in a row is harmless. That
        matters: where a delete of whole files does not carry the commit, it is recorded a moment later."""
        if self._unless_done(table, commit) is None:
            return False
        with self.format.alone(table), self.format.session(table, commit) as session:
            session.sql(f"DELETE FROM {self.name(table)} WHERE {condition}")
        self.format.record(table, commit)
        return True

    def evolve(
        self,
        table: TableId,
        columns: Sequence[EvolvedColumn],
        commit: Commit | None,
        *,
        narrowing: Narrowing,
        properties: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Values that have to be computed go into columns aside first. Then one transaction puts these in the
        place of the old ones, and renames, drops, adds and reorders all columns: no reader ever sees a column
        half converted. `properties` (None: it goes) change in the same transaction. `commit` None: nothing is
        recorded."""
        if commit is not None and self._unless_done(table, commit) is None:
            return False
        form = self.format
        with form.alone(table):
            present = form.columns(table)
            changed = changes(
                table, present, columns, stored=form.stored, widens=form.widens, narrowing=narrowing
            )
            waiting = [change for change in changed if form.is_computed(change)]
            if waiting:
                form.compute(table, present, waiting)
            form.change_columns(table, present, changed, waiting, commit, properties or {})
        return True

    # of a target as a whole, for shards

    def name(self, table: TableId) -> str:
        """The target's name as Spark SQL."""
        return self.format.name(table)

    def columns(self, table: TableId) -> StructType:
        return self.format.columns(table)

    def stored(self, kind: DataType) -> DataType:
        """The type by which the format keeps a type."""
        return self.format.stored(kind)

    def properties(self, table: TableId) -> dict[str, str]:
        return self.format.properties(self.format.load(table))

    def set_property(self, table: TableId, name: str, value: str) -> None:
        self.format.set_property(table, name, value)

    def last_commit(self, table: TableId, source: str) -> Commit | None:
        return self.format.last_commit(self.format.load(table), source)

    # reads

    def version(self, table: TableId) -> str | None:
        return self.format.version(self.format.load(table))

    def hold(self, table: TableId) -> str | None:
        return self.format.hold(table)

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        return self.format.read(table, version)

    def compact(self, table: TableId) -> Compacted:
        return self.format.compact(table)

    def close(self) -> None:
        self.format.close()

    # --------------------------------------------------------------------------------------------------------

    def _refuse_other_source(self, table: TableId) -> None:
        """Raises `TableError` if the target was made for another table."""
        refuse_shared(table, self.name(table), self.properties(table).get(SOURCE))

    def _unless_done(self, table: TableId, commit: Commit) -> Any | None:
        """The target as it is now, if it lacks the commit."""
        check_pipeline(commit, self._pipeline)
        target = self.format.load(table)
        return None if is_recorded(commit, self.format.last_commit(target, commit.source)) else target
