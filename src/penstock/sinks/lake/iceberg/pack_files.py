"""Small files put together, without Spark: rows go from file to file as Arrow, without those that are gone.

Iceberg's own action reads them into rows, and takes a quarter of a minute for two hundred files on two cores
that are busy with the stream: longer than it takes to write the next two hundred.

A new file counts as old as the snapshot that its rows were read at, so equality deletes that are committed
meanwhile concern it as they concerned the files it replaces. Iceberg refuses the commit if one of these got a
vector meanwhile, or has gone. Rows keep their identity: what Iceberg would derive from their old place
(`_row_id`, `_last_updated_sequence_number`) is written down with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock.sinks.files import FIELD_ID, field_id
from penstock.sinks.lake import vectors
from penstock.sinks.lake.iceberg.files import (
    Classes,
    file_writer,
    removed_if_refused,
    schema_fields,
    small_file,
)
from penstock.sinks.lake.iceberg.manifests import Content, Deletes, data_files, deletes
from penstock.sinks.lake.lookup import rows_gone

INPUT_BYTES_MAX = 256 * 1024**2
"""Of files at a time: meanwhile no larger epoch can be merged into the table."""

ROW_ID, UPDATED = 2147483540, 2147483539
"""Field ids of the columns of row lineage. Source: the specification of Iceberg's format version 3."""
_LINEAGE = pa.schema(
    [
        pa.field(name, pa.int64(), metadata={FIELD_ID: str(number)})
        for name, number in (("_row_id", ROW_ID), ("_last_updated_sequence_number", UPDATED))
    ]
)
_WIDENED = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


@dataclass(frozen=True)
class Tier:
    """Files below `below` bytes are put together to files of about `aim` where there are `count` of them."""

    below: int
    aim: int
    count: int


def pack(spark: SparkSession, classes: Classes, target: Any, tier: Tier) -> bool:
    """False, with nothing done: there are too few files that can be put together here.

    Raises `Unsearchable`, and what Iceberg raises if somebody else has changed the table in the way."""
    snapshot, writer = target.currentSnapshot(), file_writer(classes, target)
    if snapshot is None or writer is None or {*_LINEAGE.names} & {*writer.fields.names}:
        return False
    small = [file for file in data_files(classes, target, snapshot) if file.size < tier.below]
    if len(small) < tier.count:
        return False
    reader = Reader.of(schema_fields(classes, target), writer.fields)
    bins = list(_bins([file for file in small if reader.reads(file)], tier))
    if not bins:
        return False
    present = deletes(classes, target, snapshot)
    reader = replace(reader, gone=_gone(spark, [file for one in bins for file in one], present))
    writer = replace(writer, fields=pa.schema([*writer.fields, *_LINEAGE]))
    added: list[str] = []
    try:
        for one in bins:
            added += writer.files(batch for file in one for batch in reader.batches(file))
    except BaseException:
        for path in added:
            Path(path).unlink()
        raise
    with removed_if_refused(added):
        _commit(classes, target, snapshot, bins, present, added)
    return True


def _bins(files: Sequence[Content], tier: Tier) -> Iterator[Sequence[Content]]:
    """Those that become one file: each of about the size aimed at, the last one only if it is of many."""
    taken: list[Content] = []
    total = 0
    for file in sorted(files, key=lambda file: file.sequence):
        total += file.size
        if total > INPUT_BYTES_MAX:
            break
        taken.append(file)
        if sum(one.size for one in taken) >= tier.aim:
            yield taken
            taken = []
    if len(taken) >= tier.count // 2:
        yield taken


def _gone(spark: SparkSession, files: Sequence[Content], present: Deletes) -> Mapping[str, BitMap64]:
    """Rows that are gone, by location."""
    found = {file.location: vector for file in files if (vector := present.vector(file.location)) is not None}
    gone = {location: vectors.read(vector) for location, vector in found.items()}
    if present.equality:
        searched = [file.searched(found.get(file.location)) for file in files]
        for location, bitmap, count in rows_gone(spark, searched, [one.keys() for one in present.equality]):
            if count:
                gone[location] = BitMap64.deserialize(bitmap)
    return gone


def _commit(
    classes: Classes,
    target: Any,
    snapshot: Any,
    bins: Iterable[Sequence[Content]],
    present: Deletes,
    added: Sequence[str],
) -> None:
    change = target.newRewrite().validateFromSnapshot(snapshot.snapshotId())
    for file in (file for one in bins for file in one):
        change.deleteFile(file.told(classes, target))
        if (vector := present.vectors.get(file.location)) is not None:
            change.deleteFile(vector.told(classes, target))
    for path in added:
        change.addFile(small_file(classes, target.spec(), path))
    change.dataSequenceNumber(snapshot.sequenceNumber()).commit()


@dataclass(frozen=True)
class Reader:
    """Reads data files as the table is now. `defaults`: of columns that a file may lack, by field id."""

    fields: pa.Schema
    defaults: Mapping[int, pa.Scalar]
    gone: Mapping[str, BitMap64]

    @classmethod
    def of(cls, columns: Iterable[Mapping[str, Any]], fields: pa.Schema) -> Reader:
        kinds = {field_id(field): field.type for field in fields}
        defaults = {}
        for column in columns:
            default = _default(column.get("initial-default"), kinds[column["id"]])
            if default is not None:
                defaults[column["id"]] = default
        return cls(fields, defaults, {})

    def reads(self, file: Content) -> bool:
        """Whether its columns are of types that can be taken over as they are."""
        with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as found:
            kinds = {field_id(field): field.type for field in found.schema_arrow}
        for field in self.fields:
            kind = kinds.get(field_id(field))
            if kind is None:
                if field_id(field) not in self.defaults:
                    return False
            elif kind != field.type and (kind, field.type) not in _WIDENED:
                return False
        return True

    def batches(self, file: Content) -> Iterator[pa.RecordBatch]:
        """Its rows that are left, with their lineage."""
        gone = np.array(self.gone.get(file.location, ()), np.int64)
        fields = pa.schema([*self.fields, *_LINEAGE])
        start = 0
        with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as found:
            names = {field_id(field): field.name for field in found.schema_arrow}
            for batch in found.iter_batches(use_threads=False):
                end = start + batch.num_rows
                own = _lineage(file, start, end)
                rows = pa.RecordBatch.from_arrays(
                    [self._column(batch, names, field, own) for field in fields], schema=fields
                )
                first, last = np.searchsorted(gone, (start, end))
                if last > first:
                    left = np.ones(batch.num_rows, bool)
                    left[gone[first:last] - start] = False
                    rows = rows.filter(pa.array(left))
                yield rows
                start = end

    def _column(
        self,
        batch: pa.RecordBatch,
        names: Mapping[int | None, str],
        field: pa.Field,
        own: Mapping[int, pa.Array],
    ) -> pa.Array:
        number = field_id(field)
        assert number is not None, "every field has one"
        if number in names:
            found = batch.column(names[number]).cast(field.type)
            return pc.coalesce(found, own[number]) if number in own else found
        return own[number] if number in own else pa.repeat(self.defaults[number], batch.num_rows)


def _lineage(file: Content, start: int, end: int) -> dict[int, pa.Array]:
    """What Iceberg derives for rows `[start, end)` of a file that do not say it themselves."""
    first = file.described.get("first-row-id")
    ids = (
        pa.nulls(end - start, pa.int64())
        if first is None
        else pa.array(np.arange(first + start, first + end))
    )
    return {ROW_ID: ids, UPDATED: pa.array(np.full(end - start, file.sequence))}


def _default(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """The value that rows have from before a column was added; None: it is not told in a form known here."""
    if pa.types.is_decimal(kind) and value is not None:
        return pa.scalar(Decimal(value), kind)
    if value is None or kind in (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()):
        return pa.scalar(value, kind)
    return None
