"""Iceberg tables, merge-on-read, of format version 3 unless somebody wants 2.

Why a repeated write changes nothing: the commit is a summary property of the snapshot that holds its rows,
and `last_commit` finds it by walking back from the current snapshot. Expiry can remove that snapshot, so the
commit is also written as a table property, together with the snapshot's id. The property counts only while
its snapshot is an ancestor of the current one, or older snapshots have been removed. So a rollback of the
table is noticed.

Measured (1 million rows, 2 cores, merge of 1,000 / 100,000 rows): version 3 with hash distribution takes
1.2 / 1.4 s, and version 2 takes 1.2 / 1.7 s. Without distribution there are more and smaller files, for no
gain. In version 3, ADD COLUMN … DEFAULT rewrites no file, either.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
)

from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import Commit, Compacted, Foreign, Missing
from penstock.sinks.evolve import Change, assignments, dropped
from penstock.sinks.files import WRITTEN, written
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.iceberg import adoption, fence
from penstock.sinks.lake.iceberg.branch import OnBranch
from penstock.sinks.lake.iceberg.catalog import LOCAL_PROPERTIES, PROPERTIES, Catalog
from penstock.sinks.lake.iceberg.catalog_errors import catalog_explained, columns_refused
from penstock.sinks.lake.iceberg.commits import Commits
from penstock.sinks.lake.iceberg.files import (
    Classes,
    file_writer,
    is_directory_catalog,
    is_half_made,
    removed_if_refused,
    schema_fields,
)
from penstock.sinks.lake.iceberg.identifiers import (
    followed,
    has_nulls,
    identifiable,
    identify,
    with_required,
)
from penstock.sinks.lake.iceberg.live import LiveFiles
from penstock.sinks.lake.iceberg.maintenance import Maintenance
from penstock.sinks.lake.iceberg.merge import FileMerges
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.lake.iceberg.shaping import (
    present_partitions,
    same_partitions,
    shape_refused,
    with_columns,
)
from penstock.sinks.lake.iceberg.small_commit import SmallCommits
from penstock.sinks.lake.index.tables import Indexes, index_directory
from penstock.sinks.lake.merge import live_rows
from penstock.sinks.lake.recorded_commit import COMMIT
from penstock.sinks.refusals import check_directory, refuse_replaced
from penstock.sinks.rows import Newer, Rows
from penstock.sinks.spark_sessions import Sessions, activate, java_map, session_like
from penstock.sinks.spark_sql import constant, holds, literal_form, quoted

log = logging.getLogger(__name__)

HELD_MS = 24 * 3_600_000
"""How long a version that was asked for by `hold` can be read."""


class IcebergFormat:
    def __init__(self, options: IcebergOptions, spark: SparkSession, pipeline: str) -> None:
        self._options = options
        self.reserved = options.reserved
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._commits = Commits(pipeline)
        self._catalog = Catalog(spark, options.catalog_name)
        self._access = Access(spark)
        self._classes = Classes(spark._jvm, self._access)
        self._indexes = Indexes(
            index_directory(spark),
            partial(LiveFiles, self._classes),
            spark=spark,
            memory_max=options.key_index_memory,
            enabled=options.key_index,
        )
        self._maintenance = Maintenance(
            spark, self._classes, options, self._indexes, self.load, self.exclusive
        )
        self._small = SmallCommits(self._classes, self._commits, self._indexes, self._maintenance)
        self._merges = FileMerges(spark, self._classes, self._commits, self._indexes)
        self._sessions = Sessions(spark)
        self._locks: dict[TableId, threading.RLock] = {}
        self._guard = threading.Lock()
        self._compared: set[TableId] = set()
        self._is_local = options.path is not None and is_directory_catalog(
            spark, options.catalog_name, options.path
        )

    def check(self) -> None:
        if self._options.path is not None:
            check_directory(self._options.path)
        with catalog_explained(self._options):
            self._catalog.check(connects_late=self._options.connects_late)

    def find(self, table: TableId) -> Any | Missing | Foreign:
        absent = self._is_local and not self._path(table).exists()  # much faster than to ask Spark
        found = None if absent else self._catalog.find(self._levels(table))
        if found is None:
            return self._unless_occupied(table)
        self._say_other_partitions(table, found)
        return self._on_branch(table, found)

    def load(self, table: TableId) -> Any:
        return self._on_branch(table, self._catalog.load(self._levels(table)))

    def _on_branch(self, table: TableId, target: Any) -> Any:
        branch = self._options.branch(table)
        return target if branch is None else OnBranch(target, branch)

    def name(self, table: TableId) -> str:
        return self._catalog.table_name(self._levels(table))

    def name_for_writes(self, table: TableId) -> str:
        target = self.load(table)
        if not isinstance(target, OnBranch):
            return self.name(table)
        target.create_branch()
        return self._name_of_branch(table, target.branch)

    def _name_of_branch(self, table: TableId, branch: str) -> str:
        return f"{self.name(table)}.{quoted(f'branch_{branch}')}"

    def place(self, table: TableId) -> str:
        return self.name(table)

    def create(
        self, table: TableId, columns: StructType, key: Sequence[str], properties: Mapping[str, str]
    ) -> bool:
        local = LOCAL_PROPERTIES if self._options.path is not None else {}
        levels, found = self._levels(table), {**PROPERTIES, **local}
        shape = self._options.shape(table)
        stored = {field.name: self.stored(field.dataType) for field in columns}
        identifiers = identifiable(stored, key)
        columns = with_required(columns, identifiers)
        if shape is None:
            return self._catalog.create(levels, columns, {**found, **properties}, identifiers=identifiers)
        found |= {**shape.properties, "format-version": str(shape.format_version), **properties}
        if (location := shape.location_of(table)) is not None:
            found["location"] = location
        shaped = with_columns(table, shape, columns)

        def prepare(target: Any) -> None:
            shaped.apply(self._classes, table, target)
            if self._options.branch(table) is not None:
                # Iceberg's action rewrites no files of a branch while main has no snapshot.
                target.newAppend().commit()

        with shape_refused(table):
            return self._catalog.create(levels, columns, found, identifiers=identifiers, prepare=prepare)

    def adopts(self, table: TableId) -> bool:
        shape = self._options.shape(table)
        return shape is not None and shape.adopt

    def differences(
        self, table: TableId, target: Any, wanted: StructType, key: Sequence[str], *, rows: bool
    ) -> list[str]:
        wanted = StructType([StructField(one.name, self.stored(one.dataType)) for one in wanted])
        found = adoption.differences(self._classes, target, wanted, key, self._fits)
        if rows and not found and adoption.repeated_keys(self._spark, self.name(table), key):
            found = [f"several of its rows have the same key ({', '.join(key)})"]
        return found

    def _fits(self, present: DataType, kind: DataType) -> bool:
        return present == kind or holds(present, kind) or self.widens(present, kind)

    def adopt(self, table: TableId, target: Any, key: Sequence[str], properties: Mapping[str, str]) -> None:
        with columns_refused(table):
            adoption.adopt(self._spark, self._classes, target, key, properties)

    def remove(self, table: TableId) -> None:
        self._catalog.drop(self._levels(table))

    def remove_files(self, table: TableId) -> bool:
        if self._options.path is None:
            return self._catalog.forget(self._levels(table))
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path(table))
        return True

    def _say_other_partitions(self, table: TableId, target: Any) -> None:
        """Warns once if the pipeline file asks for other partitions than the target has."""
        shape = self._options.shape(table)
        if shape is None or not shape.partition_by or table in self._compared:
            return
        self._compared.add(table)
        present = present_partitions(self._classes, target)
        if not same_partitions(present, shape.partitions):
            has = ", ".join(map(str, present)) or "no partitions"
            log.warning(
                "%s: its target exists and keeps its partitions (%s). `partition_by` in `sink.tables` asks "
                "for others (%s), which only new targets get. Change the target with ALTER TABLE in Spark, "
                "or create it again: `penstock resnapshot FILE %s --recreate`.",
                table, has, ", ".join(map(str, shape.partitions)), argument(table),
            )  # fmt: skip

    # what a loaded target says ------------------------------------------------------------------------------

    def properties(self, target: Any) -> dict[str, str]:
        return java_map(self._spark, target.properties())

    def column_names(self, target: Any) -> list[str]:
        return [field["name"] for field in schema_fields(self._classes, target)]

    def is_empty(self, target: Any) -> bool:
        snapshot = target.currentSnapshot()
        return snapshot is None or snapshot.summary().get("total-records") == "0"

    def last_commit(self, target: Any, source: str) -> Commit | None:
        return self._commits.last(target, source)

    def generation(self, target: Any) -> int:
        return fence.generation(target)

    def version(self, target: Any) -> str | None:
        snapshot = target.currentSnapshot()
        return None if snapshot is None else str(snapshot.snapshotId())

    def target_id(self, target: Any) -> str:
        return str(target.uuid())

    # writes -------------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self, table: TableId) -> Iterator[None]:
        """Only one of Spark's writes to a table or its maintenance runs at a time: Iceberg would refuse the
        commit of the other. Small commits may run at the same time."""
        with self._guard:
            lock = self._locks.setdefault(table, threading.RLock())
        with lock:
            yield

    def session(self, table: TableId, commit: Commit) -> AbstractContextManager[SparkSession]:
        self._maintenance.fold(table)  # the statement will read the whole table
        return self._sessions.lend({f"spark.sql.iceberg.snapshot-property.{COMMIT}": str(commit)})

    def commit_small(
        self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit, *,
        versions: bool = False,
    ) -> bool:  # fmt: skip
        if not self._indexes.enabled or not self._small.write(table, target, rows, key, commit, versions):
            return False
        self._maintenance.count_commit(table, small=True)
        return True

    def append_files(self, table: TableId, target: Any, rows: Rows, commit: Commit) -> bool:
        writer = file_writer(self._classes, target)
        if writer is None or not writer.folder.files.travels:
            return False
        files = written(rows.through(writer, WRITTEN))
        with removed_if_refused(target, writer.folder.files, [file.location for file in files]):
            fence.add_files(self._classes, self._commits, target, files, writer.fields, commit)
        self._maintenance.count_commit(table, small=False)
        return True

    def append_by_spark(self, table: TableId, rows: Rows, commit: Commit) -> None:
        activate(self._spark)
        frame = live_rows(rows.frame).writeTo(self.name_for_writes(table))
        frame.option(f"snapshot-property.{COMMIT}", str(commit)).append()

    def merge_files(
        self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit
    ) -> bool:
        fenced = self.generation(target)
        target = self.load(table)  # again, now that nobody else changes its files
        refuse_replaced(table, self.generation(target), fenced)
        if isinstance(rows.kind, Newer) and self.is_empty(target):
            return self.append_files(table, target, rows, commit)  # there is nothing to replace
        if self._classes.format_version(target) < 2 or not self._merges.write(
            table, target, rows, key, commit
        ):
            return False
        self._maintenance.count_commit(table, small=False)
        return True

    def truncate(self, table: TableId, target: Any, commit: Commit) -> bool:
        fence.delete_all(self._classes, self._commits, target, commit)
        return True

    def record(self, table: TableId, commit: Commit) -> None:
        """A delete of whole files makes a snapshot without the session's properties. Then only this table
        property records the commit."""
        target = self.load(table)
        self._commits.record(target, target, commit)
        self._maintenance.count_commit(table, small=False)

    def set_property(self, table: TableId, name: str, value: str) -> None:
        target = self.load(table)
        self._commits.record(target, target, None, {name: value})

    def fence(self, table: TableId, generation: int) -> None:
        fence.fence(self._classes, self.load(table), generation)

    # columns ------------------------------------------------------------------------------------------------

    def columns(self, table: TableId) -> StructType:
        self._spark.sql(f"REFRESH TABLE {self.name(table)}")
        return self._spark.sql(f"SELECT * FROM {self.name(table)}").schema

    def stored(self, kind: DataType) -> DataType:
        """Iceberg has no integers below 32 bits."""
        return IntegerType() if isinstance(kind, (ByteType, ShortType)) else kind

    def widens(self, old: DataType, kind: DataType) -> bool:
        if isinstance(old, DecimalType) and isinstance(kind, DecimalType):
            return old.scale == kind.scale and old.precision <= kind.precision
        pair = (type(old), type(kind))
        return pair in ((IntegerType, LongType), (FloatType, DoubleType))

    def needs_computing(self, table: TableId, change: Change) -> bool:
        """For added columns, Iceberg has defaults for existing rows, from format version 3 on."""
        if change.how == "add" and change.default is not None:
            return not self._classes.is_v3(self.load(table))
        return change.how == "convert"

    def compute(self, table: TableId, present: StructType, computed: list[Change]) -> None:
        with columns_refused(table):
            self._compute(table, present, computed)

    def _compute(self, table: TableId, present: StructType, computed: list[Change]) -> None:
        update = self.load(table).updateSchema()
        for change in computed:
            if change.temporary not in present.names:
                update.addColumn(None, change.temporary, self._type(change.kind), None)
        update.commit()
        self._maintenance.fold(table)
        session = session_like(self._spark)  # one that sees the new columns
        session.sql(f"UPDATE {self.name_for_writes(table)} SET {assignments(present, computed)}")

    def change_columns(
        self,
        table: TableId,
        present: StructType,
        changed: list[Change],
        computed: list[Change],
        commit: Commit | None,
        properties: Mapping[str, str | None],
    ) -> None:
        with columns_refused(table):
            self._change_columns(table, present, changed, computed, commit, properties)

    def _change_columns(
        self,
        table: TableId,
        present: StructType,
        changed: list[Change],
        computed: list[Change],
        commit: Commit | None,
        properties: Mapping[str, str | None],
    ) -> None:
        target = self.load(table)
        identifiers = followed(
            self._classes.identifiers(target), changed, computed,
            lambda name: has_nulls(self._classes, target, name),
        )  # fmt: skip
        transaction = target.newTransaction()
        transaction.updateSchema().setIdentifierFields(self._classes.list_of([])).commit()
        update = transaction.updateSchema()
        for name in dropped(present, changed, computed):
            update.deleteColumn(name)
        for change in changed:
            self._change_column(update, change, computed=change in computed)
            if change.how in ("keep", "widen") and change.name not in identifiers:
                update.makeColumnOptional(change.before)
        update.commit()
        if identifiers:
            identify(self._classes, transaction, identifiers)
        order = transaction.updateSchema()
        for before, change in zip([None, *changed], changed, strict=False):
            if before is None:
                order.moveFirst(change.name)
            else:
                order.moveAfter(change.name, before.name)
        order.commit()
        # A snapshot without files: a version of the target is a snapshot, and is read with its columns.
        append = transaction.newAppend()
        (append if commit is None else append.set(COMMIT, str(commit))).commit()
        self._commits.record(transaction, transaction.table(), commit, properties)
        transaction.commitTransaction()

    def _change_column(self, update: Any, change: Change, *, computed: bool) -> None:
        match change.how:
            case "add" if computed:
                update.renameColumn(change.temporary, change.name)
            case "add":
                update.addColumn(None, change.name, self._type(change.kind), None, self._literal(change))
            case "convert":
                update.deleteColumn(change.before)
                update.renameColumn(change.temporary, change.name)
            case "widen":
                update.updateColumn(change.before, self._type(change.kind))
        if change.how in ("keep", "widen") and change.before != change.name:
            update.renameColumn(change.before, change.name)

    # reads and maintenance ----------------------------------------------------------------------------------

    def hold(self, table: TableId) -> str | None:
        with suppress(Py4JJavaError):  # somebody else changes the table: then reading it only takes longer
            self._maintenance.fold(table)
        target = self.load(table)
        if (snapshot := target.currentSnapshot()) is None:
            return None
        number = snapshot.snapshotId()
        name = f"penstock_{number}"
        if target.refs().get(name) is None:
            # Iceberg counts the age of a tag from the time of its snapshot.
            age_ms = max(0, int(time.time() * 1000) - snapshot.timestampMillis()) + HELD_MS
            target.manageSnapshots().createTag(name, number).setMaxRefAgeMs(name, age_ms).commit()
        return str(number)

    def compact(self, table: TableId) -> Compacted:
        return self._maintenance.compact(table, self.name(table))

    def close(self) -> None:
        self._maintenance.end()
        self._indexes.close()
        self._access.close()

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        if version is not None:
            return self._spark.sql(f"SELECT * FROM {self.name(table)} VERSION AS OF {int(version)}")
        target, name = self.load(table), self.name(table)
        if isinstance(target, OnBranch) and target.branch_exists:
            name = self._name_of_branch(table, target.branch)
        return self._spark.sql(f"SELECT * FROM {name}")

    # --------------------------------------------------------------------------------------------------------

    def _path(self, table: TableId) -> Path:
        assert self._options.path is not None
        return self._options.path.joinpath(*self._levels(table))

    def _levels(self, table: TableId) -> list[str]:
        """The levels of the target's name in the catalog."""
        return self._options.levels(table)

    def _unless_occupied(self, table: TableId) -> Missing | Foreign:
        if self._options.path is None:
            return Missing()
        path = self._path(table)
        if path.is_file() or (path.is_dir() and any(path.iterdir()) and not is_half_made(path)):
            cure = "Name another `sink.path`, or move what is there away."
            return Foreign(str(path), "it holds something that is not an Iceberg table", cure)
        return Missing()

    def _type(self, kind: DataType) -> Any:
        struct = f'{{"type":"struct","fields":[{{"name":"c","type":{kind.json()},'
        struct += '"nullable":true,"metadata":{}}]}'
        converted = self._jvm.org.apache.spark.sql.types.DataType.fromJson(struct)
        return self._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(converted).columns().get(0).type()

    def _literal(self, change: Change) -> Any:
        value = constant(self._spark, change.default, change.kind)
        if value is None:
            return None
        literal = self._jvm.org.apache.iceberg.expressions.Expressions.lit(literal_form(value, change.kind))
        return literal.to(self._type(change.kind))
