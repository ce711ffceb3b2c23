"""What Spark's tasks read: a part of the relay log, decoded with one definition of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.changes.reader import explained
from penstock.epochs import tasks
from penstock.epochs.tasks import DecodeTask, PlaceTask
from penstock.errors import InternalError
from penstock.failures.crossing import core_error
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE, own_name
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableSchema, TypeOptions
from penstock.relaylog.files import LogPlace
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_bytes import opened

TRANSACTION = "_transaction"
"""The source's id of the transaction."""
SOURCE_POSITION = "_source_position"
"""Where the transaction begins in the source's log."""
SOURCE_FIELDS = (pa.field(TRANSACTION, pa.string()), pa.field(SOURCE_POSITION, pa.string()))
SPLIT_BYTES = 32 * 1024**2
"""Bytes of a part that are decoded at once, so that a huge transaction does not fill the memory."""

Batches = Iterator[pa.RecordBatch]


@dataclass
class LogPartition(InputPartition):
    """The row events of a table in a part of the log between two transactions."""

    place: str
    table: TableSchema
    start: int
    end: int
    types: TypeOptions
    before_images: bool


@dataclass
class EventPartition(InputPartition):
    """The row events of one split of a plan. `start` and `end`: whole transactions around the split."""

    task: DecodeTask
    place: str
    start: int
    end: int


@dataclass
class ChunkPartition(InputPartition):
    """Rows of a staged chunk of a snapshot."""

    task: PlaceTask


@dataclass
class TruncatePartition(InputPartition):
    """One row that says that the table was emptied."""

    table: TableSchema
    sequence: int
    commit_us: int | None
    types: TypeOptions


@dataclass
class GroupPartition(InputPartition):
    """Small parts of several tables, which one task reads."""

    parts: list[LogPartition | EventPartition | TruncatePartition]


Single = LogPartition | EventPartition | ChunkPartition | TruncatePartition
Partition = Single | GroupPartition


def grouped(partitions: list[Single], bytes_aim: int) -> list[Partition]:
    """The parts in groups for fewer tasks, each with about `bytes_aim` of log."""
    found: list[Partition] = []
    group: list[LogPartition | EventPartition | TruncatePartition] = []
    size = 0
    for one in partitions:
        if isinstance(one, ChunkPartition):
            found.append(one)
            continue
        own = 0 if isinstance(one, TruncatePartition) else one.end - one.start
        if isinstance(one, EventPartition):
            own = sum(int(split.end) - int(split.start) for split in one.task.splits)
        if group and size + own > bytes_aim:
            found.append(GroupPartition(group))
            group, size = [], 0
        group.append(one)
        size += own
    return [*found, GroupPartition(group)] if group else found


def singles(partition: Any) -> list[Single]:
    """The parts of a partition, each of one table."""
    return list(partition.parts) if isinstance(partition, GroupPartition) else [partition]


def table_of(partition: Single) -> TableSchema:
    match partition:
        case EventPartition(task=task) | ChunkPartition(task=task):
            return TableSchema.from_json(task.table)
        case _:
            return partition.table


def arrow_schema(table: TableSchema, types: TypeOptions) -> pa.Schema:
    """The columns of the source: the table's, those of a change log, and where its transaction begins in the
    source's log."""
    from penstock._core import arrow_schema as of_layout

    fields = of_layout(table.to_json(), "changelog", types.to_json())
    return pa.schema([*fields, *SOURCE_FIELDS])


def read(partition: Any, surveys: Surveys | None = None) -> Batches:
    """The rows of a partition of one table, in the order of the log."""
    surveys = surveys or Surveys()
    match partition:
        case LogPartition():
            return _read_log(partition, surveys)
        case EventPartition(task=task):
            schema = arrow_schema(TableSchema.from_json(task.table), task.types)
            reach = LogRange(Offset(partition.start), Offset(partition.end))
            transactions = surveys.of(partition.place, reach)
            return _explained(
                task.table, (transactions.added_to(batch, schema) for batch in tasks.decode(task))
            )
        case ChunkPartition(task=task):
            schema = arrow_schema(TableSchema.from_json(task.table), task.types)
            return _explained(task.table, (without_source(batch, schema) for batch in tasks.place(task)))
        case TruncatePartition():
            return iter([_truncated(partition)])
    raise InternalError(f"{type(partition).__name__} is no partition of penstock.")


def _explained(table: str, batches: Batches) -> Batches:
    from penstock._core import DecodeError

    try:
        for batch in batches:
            if batch.num_rows:
                yield batch
    except DecodeError as error:
        raise core_error(error, str(TableSchema.from_json(table).table)) from error


def _truncated(partition: TruncatePartition) -> pa.RecordBatch:
    schema = arrow_schema(partition.table, partition.types)
    own = {CHANGE_TYPE: "truncate", SEQUENCE: partition.sequence, COMMIT_TIMESTAMP: partition.commit_us}
    own = {own_name(name, schema.names): value for name, value in own.items()}
    arrays = [pa.array([own.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Surveys:
    """The transactions of parts of the log. Tables that a task reads from one part share them."""

    def __init__(self) -> None:
        self._last: tuple[str, LogRange, Transactions] | None = None

    def of(self, place: str, reach: LogRange) -> Transactions:
        from penstock._core import transactions_of

        if self._last is None or self._last[:2] != (place, reach):
            parts = parts_of(RelayLog.open(LogPlace.at(place)), reach)
            self._last = (place, reach, Transactions(*transactions_of(parts, [])))
        return self._last[2]


def _read_log(partition: LogPartition, surveys: Surveys) -> Batches:
    from penstock._core import DecodeError, RangeDecoder

    log = RelayLog.open(LogPlace.at(partition.place))
    reach = LogRange(Offset(partition.start), Offset(partition.end))
    table, schema = partition.table, arrow_schema(partition.table, partition.types)
    transactions = surveys.of(partition.place, reach)
    for split in log.splits(reach, table.table, bytes_aim=SPLIT_BYTES):
        try:
            part = opened(split)
            decoder = RangeDecoder(
                table.to_json(), *part.place, preamble=part.preamble, types=partition.types.to_json(),
                before_images=partition.before_images, identity_images=True,
            )  # fmt: skip
            for batch in decoder:
                if batch.num_rows:
                    yield transactions.added_to(batch, schema)
        except DecodeError as error:
            raise explained(error, table.table, split.path) from error


def without_source(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a snapshot, with the columns of the transaction empty, because they are in no transaction."""
    added = [pa.nulls(batch.num_rows, field.type) for field in SOURCE_FIELDS]
    return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)


class Transactions:
    """Where transactions begin, in the relay log and in the source's."""

    def __init__(self, starts: list[int], ids: list[str | None], positions: list[str], _: list[int]) -> None:
        self._starts = np.asarray(starts, np.int64)
        self._columns = pa.array(ids, pa.string()), pa.array(positions, pa.string())

    def added_to(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        sequences = batch.column(own_name(SEQUENCE, batch.schema.names)).to_numpy()
        of_rows = pa.array(np.searchsorted(self._starts, sequences, side="right") - 1)
        added = [column.take(of_rows) for column in self._columns]
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)
