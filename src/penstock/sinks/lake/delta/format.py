"""Delta tables with deletion vectors, wherever they are: `local.py` and `stored.py` have what differs.

Why a repeated write changes nothing: the commit is Delta's own transaction identifier (`txnAppId`,
`txnVersion`), which Delta stores in the same log entry as the rows. Delta ignores a second write with the
same version, so the version is made of epoch and step.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
    TimestampNTZType,
)

from penstock.failures.messages import one_sentence
from penstock.model.change import own_columns
from penstock.model.schema import TableId
from penstock.sinks.base import GENERATION, Commit, Compacted, Foreign, Missing
from penstock.sinks.evolve import Change, assignments
from penstock.sinks.files import WRITTEN, written
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.delta.commits import (
    Commits,
    application,
    metadata_of,
    transaction_version,
)
from penstock.sinks.lake.delta.files import (
    PHYSICAL_NAME,
    added,
    clustering,
    file_writer,
    generation,
    partitions,
)
from penstock.sinks.lake.delta.live import LiveFiles
from penstock.sinks.lake.delta.merge import FileMerges
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.delta.refused_rows import rows_refused
from penstock.sinks.lake.delta.shaping import layout_clause, refused, renamed
from penstock.sinks.lake.delta.small_commit import SmallCommits
from penstock.sinks.lake.index.tables import Indexes, index_directory
from penstock.sinks.lake.merge import live_rows
from penstock.sinks.lake.recorded_commit import property_of
from penstock.sinks.names import TEMPORARY, directory_name, namespace_levels
from penstock.sinks.refusals import is_recorded
from penstock.sinks.rows import Rows
from penstock.sinks.spark_sessions import Sessions, activate, java_map
from penstock.sinks.spark_sql import column_definitions, holds, quoted, table_properties, text

log = logging.getLogger(__name__)

PACK_COMMITS = 200
"""Number of commits to a table after which its small files are merged."""
_PACKING = {
    "spark.databricks.delta.optimize.minFileSize": str(16 * 1024**2),
    "spark.databricks.delta.optimize.maxFileSize": str(128 * 1024**2),
    "spark.databricks.delta.optimize.maxDeletedRowsRatio": "0.5",
    # Of clustered tables: what is clustered and has a gigabyte is not rewritten. Delta's own limit is 100.
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(1024**3),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(2 * 1024**3),
}
"""Large files are not rewritten unless half of their rows are deleted."""

_CREATING = {"spark.databricks.delta.allFilesInCrc.enabled": "false"}
"""A new table has no files. With this option on, Delta would run a Spark job to list them."""

_PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    # Column names may hold any character, and columns can be renamed and dropped without rewriting files.
    "delta.columnMapping.mode": "name",
    "delta.feature.timestampNtz": "supported",
    # Small epochs commit every second, and each checkpoint writes the whole state of the table.
    "delta.checkpointInterval": "100",
}


LOG = "_delta_log"
Held = Literal["nothing", "table", "something else"]


class DeltaFormat:
    """`LocalDelta` and `StoredDelta` are its two kinds."""

    def __init__(self, options: DeltaOptions, root: str, spark: SparkSession, pipeline: str) -> None:
        """`root`: the directory or URL of all targets, without a slash at its end."""
        self._options = options
        self.reserved = options.reserved
        self._root = root
        self._spark = spark
        self._commits = Commits(spark, pipeline)
        self._access = Access(spark)
        self._indexes = Indexes(
            index_directory(spark),
            lambda _: LiveFiles(self._commits.checksums),
            spark=spark,
            memory_max=options.key_index_memory,
            enabled=options.key_index,
        )
        self._small = SmallCommits(spark, self._access, self._commits, self._indexes, self.load)
        self._merges = FileMerges(spark, self._access, self._commits, self._indexes)
        self._sessions = Sessions(spark)
        self._written: dict[TableId, int] = {}

    def check(self) -> None:
        raise NotImplementedError

    def find(self, table: TableId) -> Any | Missing | Foreign:
        place = self.place(table)
        held = self._held(place)
        if held == "nothing":
            return Missing()
        if held == "something else":
            cure = "Name another `sink.path`, or move what is there away."
            return Foreign(place, "it holds something that is not a Delta table", cure)
        snapshot = self.load(table)
        return Missing() if snapshot.version() < 0 else snapshot

    def load(self, table: TableId) -> Any:
        jvm = self._jvm
        activate(self._spark)  # asked about a snapshot, Delta may run a job, in whatever thread this is
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self.place(table))
        return log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())

    def name(self, table: TableId) -> str:
        return f"delta.{quoted(self.place(table))}"

    def name_for_writes(self, table: TableId) -> str:
        return self.name(table)

    def place(self, table: TableId) -> str:
        """The directory or URL of a table's target, as Spark takes it."""
        levels = (*namespace_levels(self._options.namespace, table), table.table)
        return "/".join([self._root, *[directory_name(level) for level in levels]])

    def create(
        self, table: TableId, columns: StructType, key: Sequence[str], properties: Mapping[str, str]
    ) -> bool:
        shape = self._options.shape(table)
        layout = "" if shape is None else layout_clause(table, shape, columns)
        wanted = {**_PROPERTIES, **({} if shape is None else shape.properties), **properties}
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({column_definitions(columns)}) USING delta "
            f"{layout} {table_properties(wanted)}"
        )
        with self._sessions.lend(_CREATING) as session:
            try:
                session.sql(statement)
            except (AnalysisException, IllegalArgumentException) as error:
                if shape is None:
                    raise
                raise refused(table, shape, error) from error
        return False  # Spark does not say whether this statement created it

    def remove(self, table: TableId) -> None:
        self._delete(self.place(table))
        self._forget_paths()

    def remove_files(self, table: TableId) -> bool:
        self._delete(self.place(table))
        self._forget_paths()
        return True

    def _held(self, place: str) -> Held:
        """Whether there is nothing in a directory or below a URL, a table, or something else."""
        raise NotImplementedError

    def _delete(self, place: str) -> None:
        """Deletes everything at this place. Does nothing if there is nothing."""
        raise NotImplementedError

    def _forget_paths(self) -> None:
        self._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    # what a loaded target says ------------------------------------------------------------------------------

    def properties(self, target: Any) -> dict[str, str]:
        convert = self._jvm.scala.jdk.javaapi.CollectionConverters
        return java_map(self._spark, convert.asJava(target.metadata().configuration()))

    def column_names(self, target: Any) -> list[str]:
        return list(target.schema().fieldNames())

    def is_empty(self, target: Any) -> bool:
        return self._commits.checksums.is_empty(target)

    def last_commit(self, target: Any, source: str) -> Commit | None:
        return self._commits.last(target, source)

    def generation(self, target: Any) -> int:
        return generation(target)

    def version(self, target: Any) -> str | None:
        return str(target.version())

    def target_id(self, target: Any) -> str:
        return str(target.metadata().id())

    # writes -------------------------------------------------------------------------------------------------

    def exclusive(self, table: TableId) -> AbstractContextManager[None]:
        return nullcontext()  # Delta itself refuses commits that conflict

    @contextmanager
    def session(self, table: TableId, commit: Commit) -> Iterator[SparkSession]:
        prefix = "spark.databricks.delta."
        options = {f"{prefix}write.{name}": value for name, value in self._transaction(commit).items()}
        if (said := metadata_of(commit)) is not None:
            options[f"{prefix}commitInfo.userMetadata"] = said
        with rows_refused(table), self._sessions.lend(options) as session:
            yield session

    def commit_small(
        self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit, *,
        versions: bool = False,
    ) -> bool:  # fmt: skip
        if not key or not self._indexes.enabled:
            return False  # `append_files` and `merge_files` need no Spark job for few rows, either
        if not self._small.write(table, target, rows, key, commit, versions):
            return False
        self._count_commit(table)
        return True

    def append_files(self, table: TableId, target: Any, rows: Rows, commit: Commit) -> bool:
        writer = file_writer(self._spark, self._access, target)
        if writer is None:
            return False
        if rows.driver_side is not None:
            files = list(writer.files(rows.driver_side()))
        elif writer.folder.files.travels:
            files = written(rows.through(writer, WRITTEN))
        else:
            return False
        clustered = clustering(self._spark, target)
        actions = [added(file, writer, clustered) for file in files]
        self._commits.write(target, commit, actions, reads=False)
        self._count_commit(table)
        return True

    def append_by_spark(self, table: TableId, rows: Rows, commit: Commit) -> None:
        by_spark = self._in_target_types(table, live_rows(rows.frame)).write.format("delta").mode("append")
        for name, value in self._transaction(commit).items():
            by_spark = by_spark.option(name, value)
        if (said := metadata_of(commit)) is not None:
            by_spark = by_spark.option("userMetadata", said)
        with rows_refused(table):
            by_spark.save(self.place(table))

    def _in_target_types(self, table: TableId, frame: DataFrame) -> DataFrame:
        """The frame in the target's types. Delta's appends do not cast to a wider type."""
        kinds = {field.name.lower(): field.dataType for field in self.columns(table)}
        columns = [
            frame[quoted(field.name)].cast(kinds.get(field.name.lower(), field.dataType)).alias(field.name)
            for field in frame.schema
        ]
        return frame.select(*columns)

    def merge_files(
        self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit
    ) -> bool:
        if not self._merges.write(table, target, rows, key, commit):
            return False
        self._count_commit(table)
        return True

    def truncate(self, table: TableId, target: Any, commit: Commit) -> bool:
        return False

    def record(self, table: TableId, commit: Commit) -> None:
        """A write that changed no row makes no log entry. Then the commit becomes a table property."""
        if not is_recorded(commit, self.last_commit(self.load(table), commit.source)):
            self.set_property(table, property_of(commit.source), str(commit))

    def set_property(self, table: TableId, name: str, value: str) -> None:
        self._spark.sql(f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ({text(name)} = {text(value)})")

    def fence(self, table: TableId, generation: int) -> None:
        """Delta refuses every commit during which a property of the table has changed."""
        self.set_property(table, GENERATION, str(generation))

    # columns ------------------------------------------------------------------------------------------------

    def columns(self, table: TableId) -> StructType:
        return StructType.fromJson(json.loads(self.load(table).schema().json()))

    def stored(self, kind: DataType) -> DataType:
        return kind

    def widens(self, old: DataType, kind: DataType) -> bool:
        return widens(old, kind)

    def needs_computing(self, table: TableId, change: Change) -> bool:
        """Delta has no defaults for existing rows."""
        return change.how == "convert" or (change.how == "add" and change.default is not None)

    def compute(self, table: TableId, present: StructType, computed: list[Change]) -> None:
        missing = [change for change in computed if change.temporary not in present.names]
        if missing:
            columns = ", ".join(f"{quoted(c.temporary)} {c.kind.simpleString()}" for c in missing)
            self._spark.sql(f"ALTER TABLE {self.name(table)} ADD COLUMNS ({columns})")
        self._spark.sql(f"UPDATE {self.name(table)} SET {assignments(present, computed)}")

    def _keep_layout(self, table: TableId, changed: list[Change], computed: list[Change]) -> None:
        """Raises `TableError` before anything is written if a column that the layout needs goes."""
        snapshot = self.load(table)
        fields = json.loads(snapshot.metadata().schemaString())["fields"]
        physical = {field["metadata"].get(PHYSICAL_NAME): field["name"] for field in fields}
        clustered = [physical[name] for name in clustering(self._spark, snapshot) if name in physical]
        renamed(table, [*partitions(self._spark, snapshot), *clustered], changed, computed)

    def _allow_widening(self, table: TableId) -> None:
        name = "delta.enableTypeWidening"
        if not self.load(table).metadata().configuration().get(name).isDefined():
            self._spark.sql(f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ('{name}' = 'true')")

    def change_columns(
        self,
        table: TableId,
        present: StructType,
        changed: list[Change],
        computed: list[Change],
        commit: Commit | None,
        properties: Mapping[str, str | None],
    ) -> None:
        self._keep_layout(table, changed, computed)
        if any(change.how == "widen" for change in changed):
            self._allow_widening(table)
        delta = self._jvm.org.apache.spark.sql.delta
        snapshot = self.load(table)
        now = snapshot.metadata()
        fields = {field["name"]: field for field in json.loads(now.schemaString())["fields"]}
        wanted = [_field(change, fields, computed=change in computed) for change in changed]
        own = own_columns(fields)
        wanted += [fields[name] for name in fields if name in own and not name.startswith(TEMPORARY)]
        text_ = json.dumps({"type": "struct", "fields": wanted})
        transaction = self._commits.begin(snapshot)
        if any(change.how == "widen" for change in changed):
            types = self._jvm.org.apache.spark.sql.types.DataType
            schema = delta.TypeWideningMetadata.addTypeWideningMetadata(
                transaction, types.fromJson(text_), now.schema()
            )
            text_ = schema.json()
        configuration = now.configuration()
        for name, value in properties.items():
            if value is None:
                configuration = getattr(configuration, "$minus")(name)
            else:
                configuration = configuration.updated(name, value)
        by = renamed(table, partitions(self._spark, snapshot), changed, computed)
        transaction.updateMetadata(
            now.copy(
                now.id(), now.name(), now.description(), now.format(), text_,
                self._jvm.PythonUtils.toSeq(by), configuration, now.createdTime(),
            ),
            False,
        )  # fmt: skip
        operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        self._commits.end(transaction, commit, operation, [])

    # reads and maintenance ----------------------------------------------------------------------------------

    def hold(self, table: TableId) -> str | None:
        return self.version(self.load(table))  # Delta deletes no file before its own retention time

    def read(self, table: TableId, version: str | None) -> DataFrame:
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.place(table))

    def compact(self, table: TableId) -> Compacted:
        before = self._files(table)
        self._spark.sql(f"OPTIMIZE {self.name(table)}")
        return Compacted(before, self._files(table))

    def _count_commit(self, table: TableId) -> None:
        """Counts a commit. Each leaves small files, which are merged after `PACK_COMMITS` commits."""
        self._written[table] = self._written.get(table, 0) + 1
        if self._written[table] < PACK_COMMITS:
            return
        self._written[table] = 0
        try:
            with self._sessions.lend(_PACKING) as session:
                session.sql(f"OPTIMIZE {self.name(table)}")
        except (Py4JJavaError, PySparkException) as error:  # no row changes, so it can wait
            log.info("%s: OPTIMIZE failed and is tried again later: %s", table, one_sentence(error))

    def _files(self, table: TableId) -> int:
        return int(self._spark.sql(f"DESCRIBE DETAIL {self.name(table)}").collect()[0]["numFiles"])

    def close(self) -> None:
        self._indexes.close()
        self._access.close()

    # --------------------------------------------------------------------------------------------------------

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _transaction(self, commit: Commit) -> dict[str, str]:
        return {"txnAppId": application(commit), "txnVersion": str(transaction_version(commit))}


def _field(change: Change, fields: dict[str, Any], *, computed: bool) -> dict[str, Any]:
    """A column in the table's schema. The column's metadata tell where in the files its values are."""
    kind = json.loads(change.kind.json())
    if computed:
        return {**fields[change.temporary], "name": change.name}
    if change.before is None:
        return {"name": change.name, "type": kind, "nullable": True, "metadata": {}}
    return {**fields[change.before], "name": change.name, "type": kind}


_INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)


def widens(old: DataType, kind: DataType) -> bool:
    if isinstance(old, DecimalType) and isinstance(kind, DecimalType):
        return holds(kind, old)
    if type(old) in _INTEGERS and type(kind) in _INTEGERS:
        return _INTEGERS.index(type(old)) < _INTEGERS.index(type(kind))
    if isinstance(kind, DoubleType):
        return isinstance(old, (FloatType, ByteType, ShortType, IntegerType))
    if isinstance(old, DateType):
        return isinstance(kind, TimestampNTZType)
    return isinstance(kind, DecimalType) and type(old) in _INTEGERS and holds(kind, old)
