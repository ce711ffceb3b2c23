"""Merges small files without Spark. Rows are copied as Arrow, except deleted ones.

Iceberg's own action converts them to rows. It takes a quarter of a minute for two hundred files on two cores
that are busy with the stream: in that time, the stream writes more than two hundred new files.

A new file gets the sequence number of the snapshot from which its rows were read. So equality deletes that
are committed meanwhile concern it just as they concern the files that it replaces. Iceberg refuses the commit
if one of these files has meanwhile got a deletion vector or has been removed. Rows keep their lineage: the
values that Iceberg would derive from their old place (`_row_id`, `_last_updated_sequence_number`) are written
with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock.sinks.files import FIELD_ID, WrittenFile, field_id
from penstock.sinks.lake import vectors
from penstock.sinks.lake.iceberg.files import (
    Classes,
    described,
    file_writer,
    removed_if_refused,
    schema_fields,
)
from penstock.sinks.lake.iceberg.manifests import Content, Deletes, data_files, deletes
from penstock.sinks.lake.lookup import deleted_rows, parquet_file
from penstock.store.files import Files, remove_quietly

INPUT_BYTES_MAX = 256 * 1024**2
"""Size of the files that are merged at a time. Meanwhile no larger epoch can be merged into the table."""

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
    """If there are `count` files smaller than `below` bytes, they are merged into files of about `aim`
    bytes."""

    below: int
    aim: int
    count: int


def pack(spark: SparkSession, classes: Classes, target: Any, tier: Tier) -> bool:
    """Merges small files. False, with nothing done: there are too few files that can be merged here.

    Raises `Unsearchable`, and Iceberg's errors if somebody else has changed the same files."""
    snapshot, writer = target.currentSnapshot(), file_writer(classes, target)
    if snapshot is None or writer is None or {*_LINEAGE.names} & {*writer.fields.names}:
        return False
    small = by_partition(file for file in data_files(classes, target, snapshot) if file.size < tier.below)
    groups = {partition: files for partition, files in small.items() if len(files) >= tier.count}
    if any(spec != target.spec().specId() for spec, _ in groups):
        return False  # Spark moves the rows of these files to the present partitions
    files = writer.folder.files
    lineage = _LINEAGE if classes.is_v3(target) else pa.schema([])
    reader = Reader.of(schema_fields(classes, target), writer.fields, files, lineage)
    bins = list(_all_bins(groups.values(), reader, tier))
    if not bins:
        return False
    present = deletes(classes, target, snapshot)
    reader = replace(reader, deleted=_deleted(spark, files, [file for one in bins for file in one], present))
    writer = replace(writer, fields=pa.schema([*writer.fields, *lineage]), layout=None)
    added: list[WrittenFile] = []
    try:
        for one in bins:
            partition = tuple(one[0].described["partition"])
            merged = writer.files(batch for file in one for batch in reader.batches(file))
            added += [replace(file, partition=partition) for file in merged]
    except BaseException:
        remove_quietly(files, [file.location for file in added])
        raise
    with removed_if_refused(files, [file.location for file in added]):
        _commit(classes, target, snapshot, bins, present, (writer.fields, added))
    return True


def by_partition(files: Iterable[Content]) -> dict[tuple[int, str], list[Content]]:
    """The files of each partition."""
    found: dict[tuple[int, str], list[Content]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file)
    return found


def _all_bins(groups: Iterable[Sequence[Content]], reader: Reader, tier: Tier) -> Iterator[Sequence[Content]]:
    """The bins of all partitions, together of at most `INPUT_BYTES_MAX`."""
    total = 0
    for group in groups:
        for one in _bins([file for file in group if reader.reads(file)], tier):
            total += sum(file.size for file in one)
            if total > INPUT_BYTES_MAX:
                return
            yield one


def _bins(files: Sequence[Content], tier: Tier) -> Iterator[Sequence[Content]]:
    """Groups of files, each of which becomes one file of about `tier.aim` bytes. The last group may be
    smaller, but not too small."""
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


def _deleted(
    spark: SparkSession, access: Files, files: Sequence[Content], present: Deletes
) -> Mapping[str, BitMap64]:
    """Positions of deleted rows, by the location of their data file."""
    found = {file.location: vector for file in files if (vector := present.vector(file.location)) is not None}
    deleted = {location: vectors.read(vector, access) for location, vector in found.items()}
    if present.equality:
        searched = [file.searched(found.get(file.location)) for file in files]
        keys = [one.keys() for one in present.equality]
        for location, bitmap, count in deleted_rows(spark, access, searched, keys):
            if count:
                deleted[location] = BitMap64.deserialize(bitmap)
    return deleted


def _commit(
    classes: Classes,
    target: Any,
    snapshot: Any,
    bins: Iterable[Sequence[Content]],
    present: Deletes,
    added: tuple[pa.Schema, Sequence[WrittenFile]],
) -> None:
    change = target.newRewrite().validateFromSnapshot(snapshot.snapshotId())
    for file in (file for one in bins for file in one):
        change.deleteFile(file.to_iceberg(classes, target))
        for vector in present.vectors.get(file.location, ()):
            change.deleteFile(vector.to_iceberg(classes, target))
    fields, files = added
    for one in files:
        change.addFile(described(classes, target.spec(), one, fields))
    change.dataSequenceNumber(snapshot.sequenceNumber()).commit()


@dataclass(frozen=True)
class Reader:
    """Reads data files with the table's present columns. `defaults`: the values of columns that a file may
    lack, by field id."""

    fields: pa.Schema
    defaults: Mapping[int, pa.Scalar]
    files: Files
    lineage: pa.Schema
    """Columns of row lineage. Empty: the table's format version has none."""
    deleted: Mapping[str, BitMap64]

    @classmethod
    def of(
        cls, columns: Iterable[Mapping[str, Any]], fields: pa.Schema, files: Files, lineage: pa.Schema
    ) -> Reader:
        kinds = {field_id(field): field.type for field in fields}
        defaults = {}
        for column in columns:
            default = _default(column.get("initial-default"), kinds[column["id"]])
            if default is not None:
                defaults[column["id"]] = default
        return cls(fields, defaults, files, lineage, {})

    def reads(self, file: Content) -> bool:
        """Whether the file's columns have types that can be copied."""
        if not file.is_parquet:
            return False
        with parquet_file(self.files, file.location, file.size) as found:
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
        """The file's rows that are not deleted, with their lineage."""
        deleted = np.array(self.deleted.get(file.location, ()), np.int64)
        fields = pa.schema([*self.fields, *self.lineage])
        start = 0
        with parquet_file(self.files, file.location, file.size) as found:
            names = {field_id(field): field.name for field in found.schema_arrow}
            for batch in found.iter_batches(use_threads=False):
                end = start + batch.num_rows
                own = _lineage(file, start, end)
                rows = pa.RecordBatch.from_arrays(
                    [self._column(batch, names, field, own) for field in fields], schema=fields
                )
                first, last = np.searchsorted(deleted, (start, end))
                if last > first:
                    left = np.ones(batch.num_rows, bool)
                    left[deleted[first:last] - start] = False
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
    """The lineage that Iceberg derives for the rows `[start, end)` of a file, if the file does not contain
    it."""
    first = file.described.get("first-row-id")
    ids = (
        pa.nulls(end - start, pa.int64())
        if first is None
        else pa.array(np.arange(first + start, first + end))
    )
    return {ROW_ID: ids, UPDATED: pa.array(np.full(end - start, file.sequence))}


def _default(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """The value of a column for rows that are older than the column. None: it has a form that is not
    supported here."""
    if pa.types.is_decimal(kind) and value is not None:
        return pa.scalar(Decimal(value), kind)
    if value is None or kind in (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()):
        return pa.scalar(value, kind)
    return None
