"""One sink with one table of its own, spoken to by the protocols alone."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType
from tests.sinks.conformance import registered

from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, PRESENT, SEQUENCE
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks import registry
from penstock.sinks.base import (
    ChangeSink,
    Commit,
    EvolvedColumn,
    Narrowing,
    Ours,
    Readable,
    Sink,
    TableSink,
    change_sink,
    table_sink,
)
from penstock.sinks.kind import SinkKind
from penstock.sinks.rows import AnyOrder, Incomplete, Rows
from penstock.sinks.spark_sql import spark_type

_serial = itertools.count()

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
_TIME = pa.timestamp("us", "UTC")
PLAIN = pa.schema([("id", pa.int64()), ("name", pa.string())])

Values = tuple[Any, ...]


def new_table(name: str = "orders") -> TableId:
    """A table whose target no other test has."""
    return TableId(f"c{os.getpid()}_{next(_serial)}", name)


@dataclass(frozen=True)
class Case:
    """`sink` is the sink of the pipeline `pipeline`; `again()` is the same in a new process."""

    spark: SparkSession
    kind: SinkKind[Any]
    folder: Path
    arrow: pa.Schema = PLAIN
    key: tuple[str, ...] = ("id",)
    table: TableId = field(default_factory=new_table)
    pipeline: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        sink = self.kind.open(self.kind.example(self.folder), self.spark, self.pipeline, registry.NO_SHARDS)
        object.__setattr__(self, "sink", sink)

    sink: Sink = field(init=False)

    @property
    def tables(self) -> TableSink:
        return table_sink(self.sink)

    @property
    def changes(self) -> ChangeSink:
        return change_sink(self.sink)

    def again(self, **changes: Any) -> Case:
        """The same table (or what `changes` says), with a sink that knows nothing of this one."""
        return replace(self, **changes)

    def other(self, **changes: Any) -> Case:
        """Another table of this pipeline."""
        return replace(self, **{"table": new_table(), **changes})

    def beside(self, table: TableId) -> Case:
        """Another table of the very same sink."""
        case = self.again(table=table)
        object.__setattr__(case, "sink", self.sink)
        return case

    def create(self) -> Case:
        columns = tuple(Column(name, "varchar") for name in self.arrow.names)
        self.sink.create(TableSchema(self.table, columns, self.key), self.arrow)
        return self

    def commit(self, epoch: int, step: int = 0) -> Commit:
        return Commit(self.pipeline, epoch, step)

    def state(self) -> Ours:
        found = self.sink.open(self.table)
        assert isinstance(found, Ours), found
        return found

    # rows

    def latest(self, *rows: Values, incomplete: Incomplete | None = None) -> Rows:
        """Rows of values, `_penstock_deleted`, `_sequence`, and `_penstock_present` if some lack columns."""
        own = [(DELETED, pa.bool_()), (SEQUENCE, pa.int64())]
        own += [(PRESENT, pa.string())] if incomplete is not None else []
        return replace(self._rows(own, rows), kind=incomplete or AnyOrder())

    def changelog(self, *rows: Values) -> Rows:
        """Rows of values, `_change_type`, `_sequence`."""
        own = [(CHANGE_TYPE, pa.string()), (SEQUENCE, pa.int64()), (COMMIT_TIMESTAMP, _TIME)]
        return self._rows(own, [(*row, NOW) for row in rows])

    def _rows(self, own: Sequence[tuple[str, pa.DataType]], rows: Sequence[Values]) -> Rows:
        fields = [*self.arrow, *[pa.field(*one) for one in own]]
        struct = StructType([StructField(one.name, spark_type(one)) for one in fields])
        return Rows(self.spark.createDataFrame(rows, struct))

    # writes and what came of them

    def append(self, epoch: int, *rows: Values, step: int = 0) -> bool:
        return self.tables.append(self.table, self.latest(*rows), self.commit(epoch, step))

    def merge(self, epoch: int, *rows: Values, step: int = 0) -> bool:
        return self.tables.merge(self.table, self.latest(*rows), self.key, self.commit(epoch, step))

    def write(self, epoch: int, *rows: Values, step: int = 0) -> bool:
        return self.changes.write_changes(self.table, self.changelog(*rows), self.commit(epoch, step))

    def truncate(self, epoch: int, sequence: int, *, step: int = 0) -> bool:
        commit = self.commit(epoch, step)
        return self.sink.truncate(self.table, commit, sequence=sequence, timestamp_us=1_700_000_000_000_000)

    def evolve(self, epoch: int, *columns: EvolvedColumn, narrowing: Narrowing = "keep") -> bool:
        return self.sink.evolve(self.table, list(columns), self.commit(epoch), narrowing=narrowing)

    def with_columns(self, *columns: EvolvedColumn) -> Case:
        """The same, for rows of these columns."""
        return self.again(arrow=pa.schema([column.field for column in columns]))

    @property
    def shows_rows(self) -> bool:
        """Whether `frame` can be asked for."""
        return isinstance(self.sink, Readable) or registered.reader(self.kind.name) is not None

    def frame(self) -> DataFrame:
        """The target's present rows."""
        if isinstance(self.sink, Readable):
            return self.sink.read(self.table)
        read = registered.reader(self.kind.name)
        assert read is not None, f"name a function in the entry-point group {registered.READERS}"
        return read(self.kind.example(self.folder), self.spark, self.table)  # type: ignore[no-any-return]

    def rows(self, frame: DataFrame | None = None) -> list[Values]:
        """Columns of the source, and `_sequence`: of the target's present rows, or of those in `frame`."""
        frame = self.frame() if frame is None else frame
        return sorted((tuple(row) for row in frame.collect()), key=repr)


def column(
    name: str, kind: pa.DataType, before: str | None = None, *, default: str | None = None
) -> EvolvedColumn:
    return EvolvedColumn(pa.field(name, kind), before, default)
