"""What Spark's tasks read: a part of the relay log, decoded with one definition of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.changes.reader import explained
from penstock.errors import InternalError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableSchema, TypeOptions
from penstock.relaylog.files import LogPlace
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_bytes import opened
from penstock.spark import tasks
from penstock.spark.tasks import DecodeTask, PlaceTask

GTID = "_gtid"
SOURCE_FILE = "_source_file"
SOURCE_POSITION = "_source_position"
_SOURCE_FIELDS = (
    pa.field(GTID, pa.string()),
    pa.field(SOURCE_FILE, pa.string()),
    pa.field(SOURCE_POSITION, pa.int64()),
)
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


Partition = LogPartition | EventPartition | ChunkPartition | TruncatePartition


def arrow_schema(table: TableSchema, types: TypeOptions) -> pa.Schema:
    """The columns of the source: the table's, those of a change log, and where its transaction begins in the
    source's log."""
    from penstock._core import arrow_schema as of_layout

    fields = of_layout(table.to_json(), "changelog", types.to_json())
    return pa.schema([*fields, *_SOURCE_FIELDS])


def read(partition: Any) -> Batches:
    """The rows of a partition, in the order of the log."""
    match partition:
        case LogPartition():
            return _read_log(partition)
        case EventPartition(task=task):
            schema = arrow_schema(TableSchema.from_json(task.table), task.types)
            transactions = _transactions(partition.place, partition.start, partition.end, task.table)
            return _explained(
                task.table, (transactions.added_to(batch, schema) for batch in tasks.decode(task))
            )
        case ChunkPartition(task=task):
            schema = arrow_schema(TableSchema.from_json(task.table), task.types)
            return _explained(task.table, (without_source(batch, schema) for batch in tasks.place(task)))
        case TruncatePartition():
            return iter([_truncated(partition)])
    raise InternalError(f"{type(partition).__name__} is no partition of mysql_cdc.")


def _explained(table: str, batches: Batches) -> Batches:
    from penstock._core import DecodeError

    try:
        for batch in batches:
            if batch.num_rows:
                yield batch
    except DecodeError as error:
        raise tasks.core_error(error, str(TableSchema.from_json(table).table)) from error


def _truncated(partition: TruncatePartition) -> pa.RecordBatch:
    schema = arrow_schema(partition.table, partition.types)
    own = {CHANGE_TYPE: "truncate", SEQUENCE: partition.sequence, COMMIT_TIMESTAMP: partition.commit_us}
    arrays = [pa.array([own.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _transactions(place: str, start: int, end: int, table: str) -> Transactions:
    """The transactions of a part of the log."""
    from penstock._core import transactions_of

    log = RelayLog.open(LogPlace.at(place))
    parts = parts_of(log, LogRange(Offset(start), Offset(end)))
    name = TableSchema.from_json(table).table
    return Transactions(*transactions_of(parts, [(name.database, name.table)]))


def _read_log(partition: LogPartition) -> Batches:
    from penstock._core import DecodeError, RangeDecoder

    log = RelayLog.open(LogPlace.at(partition.place))
    reach = LogRange(Offset(partition.start), Offset(partition.end))
    table, schema = partition.table, arrow_schema(partition.table, partition.types)
    transactions = _transactions(partition.place, partition.start, partition.end, table.to_json())
    for split in log.splits(reach, table.table, bytes_aim=SPLIT_BYTES):
        try:
            part = opened(split)
            decoder = RangeDecoder(
                table.to_json(), *part.place, preamble=part.preamble, types=partition.types.to_json(),
                before_images=partition.before_images,
            )  # fmt: skip
            for batch in decoder:
                if batch.num_rows:
                    yield transactions.added_to(batch, schema)
        except DecodeError as error:
            raise explained(error, table.table, split.path) from error


def without_source(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows that were read from the table: they are in no transaction of the log."""
    added = [pa.nulls(batch.num_rows, field.type) for field in _SOURCE_FIELDS]
    return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)


class Transactions:
    """Where transactions begin, in the relay log and in the source's."""

    def __init__(
        self, starts: list[int], gtids: list[str | None], files: list[str], positions: list[int], _: list[int]
    ) -> None:
        self._starts = np.asarray(starts, np.int64)
        self._gtids = pa.array(gtids, pa.string())
        self._files = pa.array(files, pa.string())
        self._positions = pa.array(positions, pa.int64())

    def added_to(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        sequences = batch.column(batch.schema.get_field_index(SEQUENCE)).to_numpy()
        of_rows = pa.array(np.searchsorted(self._starts, sequences, side="right") - 1)
        added = [column.take(of_rows) for column in (self._gtids, self._files, self._positions)]
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)
