"""The sink `hbase`: a `TableSink` whose rows are rows of HBase tables.

**Why a repeated epoch changes nothing.** A cell's time stamp says where the change stands in the order of all
changes (`times.py`). A repeated write gives the same cells the same times. At its end the commit is recorded
in a table of the sink's own (`records.py`).

**Why a late write changes nothing.** HBase shows the greatest time stamp, whenever it was written. A deletion
and a NULL are markers, which hide what is older. HBase removes markers at a major compaction. So rows that
may be older than those that are there are compared with them first, and a driver that was replaced is refused
before each portion of rows.

**What readers see.** Rows of an epoch appear one by one. The marker of a row's NULLs comes just after its
cells, mostly in one step of the server. `TRUNCATE` disables the table for a moment; a changed definition
rewrites rows one by one.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, LongType, StructField, StructType

from penstock.errors import ConfigError, DriverReplaced, TableError, TransientError
from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import (
    FORMAT,
    PIPELINE,
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
from penstock.sinks.collected import batches_of
from penstock.sinks.evolve import Change, changes, key_after, only_adds, refuse_new_names
from penstock.sinks.hbase.cluster import Cluster, ClusterError
from penstock.sinks.hbase.evolve import evolved_frames, widens
from penstock.sinks.hbase.faults import explained, means_gone
from penstock.sinks.hbase.frames import Frame
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.hbase.records import Record, Records
from penstock.sinks.hbase.rows import OWN, compared, deletions, frame_of, without_deleted
from penstock.sinks.hbase.scan import HBaseScan
from penstock.sinks.hbase.times import REVISION_MAX
from penstock.sinks.hbase.values import Form
from penstock.sinks.names import refuse_own_names, source_columns
from penstock.sinks.recorded import Recorded
from penstock.sinks.refusals import (
    at,
    changed_record,
    check_pipeline,
    is_recorded,
    lost_target,
    of_other_pipeline,
    refuse_foreign,
    refuse_replaced,
    refuse_shared,
)
from penstock.sinks.rows import Newer, Rows
from penstock.sinks.spark_sql import target_type

ROWS_MAX = 20_000
"""Rows of one call, if they are small."""
TARGET = "penstock.target"
"""Value of a table: the number that its record has, too."""
TAKEN = "penstock.taken"
"""Value of a table that others have created: it is emptied, and never deleted."""
_MARKS = (PIPELINE, SOURCE, TARGET, TAKEN, "penstock.format")


class HBaseSink(Recorded):
    """The sink of one pipeline, whose uuid is `pipeline`."""

    def __init__(self, options: HBaseOptions, spark: SparkSession, pipeline: str) -> None:
        super().__init__(pipeline)
        self._options = options
        self._spark = spark
        self._cluster = Cluster(options, spark)
        self._records = Records(self._cluster, options.control)
        self._family = options.family.encode()
        self._form = Form(options.values == "native", options.key == "ordered", options.uppercase)

    # Sink ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        try:
            with self._explained("The cluster cannot be used"):
                self._records.find("check")  # reaches ZooKeeper, the catalog and a region
        except TransientError as error:
            hint = "Start it, or correct `sink.quorum`, `sink.site` or `sink.properties`."
            raise ConfigError(error.message, hint=hint) from None

    def open(self, table: TableId) -> TargetState:
        place, name = self._place(table), self._name(table)
        cure = "Name another `sink.table`, or delete this one if nobody needs it."
        with self._explained(f"The target of {table} cannot be looked at", table):
            description = self._cluster.description(name)
            if description is None:
                return Missing()
            owner = description.getValue(PIPELINE)
            if owner is None:
                return self._unmarked(table, description, cure)
            if owner != self._pipeline:
                return of_other_pipeline(place, "table", owner, cure)
            record = self._records.find(place)
            if record is None or record.target != description.getValue(TARGET):
                reason = f"a table that was restored, or whose record in {self._options.control} is gone"
                return Foreign(place, reason, cure)
        if (found := self._unfit(description)) is not None:
            return Foreign(place, found, "Correct that in HBase's shell (`alter`).")
        if record.form != self._form:
            reason = "its rows were written with other options (`sink.values`, `sink.key`, `sink.uppercase`)"
            return Foreign(place, reason, "Set these as they were, or delete the table.")
        return Ours(record.last, source_columns(tuple(record.names)), empty=record.empty)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        table = schema.table
        refuse_own_names(schema, self._options.reserved)
        self._form.refuse_same(table, [column.name for column in schema.columns])
        found = self.open(table)
        refuse_foreign(table, found)
        place, name = self._place(table), self._name(table)
        with self._explained(f"The target of {table} cannot be created", table):
            if not isinstance(found, Missing):
                before = self._records.find(place)
                refuse_shared(table, place, None if before is None else before.source)
                return
            self._records.make()
            before = self._records.find(place)
            record = Record(
                self._pipeline, str(table), self._number(table, before), target_type(arrow), schema.key,
                generation=self._generation, form=self._form,
            )  # fmt: skip
            if self._records.put_first(place, record) is None:
                raise changed_record(table)
            self._make(table, name, record.target)
            self._seen.pop(table, None)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        name = self._name(table)
        with self._writing(table, commit, name) as record:
            if record is None:
                return False
            self._cluster.empty(name)
            self._commit(table, replace(record, empty=True), commit)
        return True

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        name = self._name(table)
        with self._writing(table, commit, name) as record:
            if record is None:
                return False
            present = StructType([field for field in record.columns if field.name != SEQUENCE])
            changed = changes(table, present, columns, reserved=self._options.reserved,
                              stored=lambda kind: kind, widens=self._widens,
                              narrowing=narrowing)  # fmt: skip
            refuse_new_names(table, columns, changed, present, record.key, converts=True)
            record.form.refuse_same(table, [one.name for one in changed])
            fields = [StructField(one.name, one.kind) for one in changed]
            after = StructType([*fields, StructField(SEQUENCE, LongType())])
            key, moves = _evolved_key(record, changed)
            revision = record.revision
            if not only_adds(present, changed) and not record.empty:
                revision += 1
                if revision > REVISION_MAX:
                    raise _worn_out(table)
                by, form = key if moves else (), record.form
                for frame in self._cluster.scan(name, OWN, [form.qualifier(one) for one in present.names]):
                    for made in evolved_frames(frame, changed, present, revision, by, form, self._spark):
                        self._send(table, name, made)
            self._commit(table, replace(record, columns=after, key=key, revision=revision), commit)
        return True

    def _widens(self, old: DataType, kind: DataType) -> bool:
        return widens(old, kind, self._form)

    def close(self) -> None:
        self._cluster.close()

    # Fencing ------------------------------------------------------------------------------------------------

    def fence(self, table: TableId) -> None:
        with self._explained(f"The target of {table} cannot be fenced", table):
            record = self._records.find(self._place(table))
            if record is None or record.pipeline != self._pipeline:
                return
            refuse_replaced(table, record.generation, self._generation)
            self._put(table, replace(record, generation=self._generation))

    # TableSink ----------------------------------------------------------------------------------------------

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        return self._write(table, rows, (), commit, appends=True)

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        return self._write(table, rows, key, commit, appends=False)

    def _write(
        self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit, *, appends: bool
    ) -> bool:
        name = self._name(table)
        with self._writing(table, commit, name) as record:
            if record is None:
                return False
            if record.empty:  # before the first row: a kill may follow it
                record = self._put(table, replace(record, empty=False))
            newer = isinstance(rows.kind, Newer)
            for batch in batches_of(rows):
                by = key or record.key
                frame = frame_of(table, batch, by, record.revision, rows.incomplete, record.form)
                if appends:
                    self._send(table, name, without_deleted(frame))
                else:
                    self._send(table, name, frame, None if newer else rows)
            self._commit(table, record, commit)
        return True

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        name = self._name(table)
        with self._writing(table, commit, name) as record:
            if record is None:
                return False
            for frame in self._cluster.scan(name, OWN, [], whole=False):
                if (old := deletions(frame, sequence)) is not None:
                    self._send(table, name, old)
            self._commit(table, record, commit)
        return True

    def _place_and_source(self, table: TableId) -> tuple[str, str | None]:
        with self._explained(f"The target of {table} cannot be looked at", table):
            record = self._records.find(self._place(table))
        return self._place(table), None if record is None else record.source

    def _remove(self, table: TableId) -> None:
        with self._explained(f"The target of {table} cannot be removed", table):
            name = self._name(table)
            description = self._cluster.description(name)
            if description is not None and description.getValue(TAKEN) is not None:
                self._cluster.empty(name)
                self._cluster.mark(description, dict.fromkeys(_MARKS))
            else:
                self._cluster.remove(name)
            self._records.remove(self._place(table))
        self._seen.pop(table, None)

    def compact(self, table: TableId) -> Compacted:
        return Compacted(1, 1)  # the cluster does that by itself

    # Scannable ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scan(self) -> Iterator[HBaseScan]:
        yield HBaseScan(self._cluster, self._own_target)

    def _own_target(self, table: TableId) -> tuple[Any, Record]:
        name = self._name(table)
        record, description = self._records.find(self._place(table)), self._cluster.description(name)
        if record is None or record.pipeline != self._pipeline or record.lost or description is None:
            raise lost_target(table)
        if description.getValue(TARGET) != record.target:
            raise lost_target(table)
        return name, record

    # --------------------------------------------------------------------------------------------------------

    def _name(self, table: TableId) -> Any:
        return self._cluster.name(*self._options.full_name(table))

    def _place(self, table: TableId) -> str:
        return ":".join(self._options.full_name(table))

    def _unfit(self, description: Any) -> str | None:
        """Why a table of HBase cannot be a target. None: it can."""
        if description.getColumnFamily(self._family) is None:
            return f"it has no column family {self._options.family}"
        return None

    def _unmarked(self, table: TableId, description: Any, cure: str) -> TargetState:
        """The state of a table that Penstock did not create."""
        place = self._place(table)
        if not self._options.use_empty_tables:
            more = "" if self._unfit(description) else " If it is empty, `sink.use_empty_tables` takes it."
            return Foreign(place, "a table that Penstock did not create", cure + more)
        if (unfit := self._unfit(description)) is not None:
            return Foreign(place, unfit, cure)
        if not self._cluster.is_empty(description.getTableName()):
            return Foreign(place, "a table that Penstock did not create, with rows", cure)
        return Missing()

    def _number(self, table: TableId, before: Record | None) -> str:
        """The number of a new target. One whose making was interrupted keeps it: HBase may be about to make
        the table."""
        if before is None or (before.pipeline, before.source) != (self._pipeline, str(table)):
            return secrets.token_hex(8)
        return before.target if before.empty and before.last is None else secrets.token_hex(8)

    def _make(self, table: TableId, name: Any, target: str) -> None:
        marks = {PIPELINE: self._pipeline, SOURCE: str(table), TARGET: target, "penstock.format": FORMAT}
        description = self._cluster.description(name)
        takes = description is not None and description.getValue(PIPELINE) is None
        if takes and isinstance(self._unmarked(table, description, ""), Missing):
            self._cluster.mark(description, {**marks, TAKEN: "true"})
            return
        options, entry = self._options, self._options.entry(table)
        settings = {**options.settings, **({} if entry is None else entry.settings)}
        versions = options.versions if entry is None or entry.versions is None else entry.versions
        splits = [] if entry is None else [one.encode() for one in entry.splits]
        self._cluster.make_namespace(options.full_name(table)[0])
        try:
            self._cluster.make_table(name, marks, self._family, settings, versions=versions, splits=splits)
        except ClusterError as error:
            if "TableExistsException" not in error.kinds:
                raise
            description = self._cluster.description(name)
            if description is None or description.getValue(TARGET) != target:
                raise TransientError(f"The target of {table} was created by somebody else meanwhile.",
                                     hint="It is looked at again.", table=str(table)) from None  # fmt: skip

    def _send(self, table: TableId, name: Any, frame: Frame, rows: Rows | None = None) -> None:
        """Writes the rows in portions. `rows`: they may be older than those that are there."""
        for part in frame.portions(self._options.batch_bytes, ROWS_MAX):
            if rows is not None:
                keys = Frame(part.keys, part.times, part.acts)
                there = np.frombuffer(self._cluster.newest(name, OWN, keys), "<i8")
                part = compared(table, part, there, rows.incomplete)
            self._refuse_replaced(table)
            self._cluster.write(name, part)

    @contextlib.contextmanager
    def _writing(self, table: TableId, commit: Commit, name: Any) -> Iterator[Record | None]:
        """The record of the target. None: it has this commit already, so there is nothing to write."""
        check_pipeline(commit, self._pipeline)
        with self._explained(f"Epoch {commit.epoch} was not written to {table}", table):
            record = self._records.find(self._place(table))
            if record is None or record.pipeline != self._pipeline or record.lost:
                raise lost_target(table)
            place = (0, 0) if record.last is None else record.last.place
            if place < self._seen.get(table, (0, 0)):
                self._put(table, replace(record, lost=True))
                raise lost_target(table)
            refuse_replaced(table, record.generation, self._generation)
            try:
                yield None if is_recorded(commit, record.last) else record
            except ClusterError as error:
                if means_gone(error):
                    raise lost_target(table) from None
                raise

    def _commit(self, table: TableId, record: Record, commit: Commit) -> None:
        self._put(table, replace(record, last=commit))
        self._seen[table] = commit.place

    def _put(self, table: TableId, record: Record) -> Record:
        stored = self._records.put(self._place(table), record)
        if stored is None:
            self._refuse_replaced(table)
            raise changed_record(table)
        return stored

    def _refuse_replaced(self, table: TableId) -> None:
        record = self._records.find(self._place(table))
        if record is not None:
            refuse_replaced(table, record.generation, self._generation)
            if record.pipeline != self._pipeline:
                raise DriverReplaced(f"Another pipeline has taken over the target of {table}.",
                                     table=str(table))  # fmt: skip

    @contextlib.contextmanager
    def _explained(self, what: str, table: TableId | None = None) -> Iterator[None]:
        try:
            yield
        except ClusterError as error:
            what = at(what, self._options.quorum or str(self._options.site))
            raise explained(error, what, table) from None


def _evolved_key(record: Record, changed: Sequence[Change]) -> tuple[tuple[str, ...], bool]:
    """The columns of the new key, and whether rows get other row keys. If other columns are the key, the
    table is being read again, which brings them."""
    key, columns = key_after(changed, record.key), {one.name: one for one in changed}
    same = tuple(columns[name].before for name in key) == record.key
    return key, same and any(columns[name].how == "convert" for name in key)


def _worn_out(table: TableId) -> TableError:
    return TableError(
        f"The target of {table} was rewritten {REVISION_MAX} times, which is all that the time stamps of its "
        "cells allow.",
        hint=f"Run `penstock resnapshot --recreate FILE {argument(table)}`.",
        table=str(table),
    )
