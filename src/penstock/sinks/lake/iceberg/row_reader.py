"""Reads rows of data files in the columns that an Iceberg table has now."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from penstock.sinks.files import FIELD_ID, field_id
from penstock.sinks.lake.iceberg.manifests import Content
from penstock.sinks.lake.lookup import parquet_file
from penstock.store.files import Files

ROW_ID, UPDATED = 2147483540, 2147483539
"""Field ids of the columns of row lineage. Source: the specification of Iceberg's format version 3."""
LINEAGE = pa.schema(
    [
        pa.field(name, pa.int64(), metadata={FIELD_ID: str(number)})
        for name, number in (("_row_id", ROW_ID), ("_last_updated_sequence_number", UPDATED))
    ]
)
_WIDENED = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


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
    in_partitions: Callable[[], Container[int]]
    """Ids of the columns whose values may be missing in a file, because its partition has them."""

    @classmethod
    def of(
        cls,
        columns: Iterable[Mapping[str, Any]],
        fields: pa.Schema,
        files: Files,
        lineage: pa.Schema,
        *,
        in_partitions: Callable[[], Container[int]],
    ) -> Reader:
        kinds = {field_id(field): field.type for field in fields}
        defaults = {}
        for column in columns:
            if column["id"] not in kinds:
                continue
            default = _default(column.get("initial-default"), kinds[column["id"]])
            if default is not None:
                defaults[column["id"]] = default
        return cls(fields, defaults, files, lineage, {}, in_partitions)

    def reads(self, file: Content) -> bool:
        """Whether the file's columns have types that can be copied. Files that were made without Iceberg
        (`add_files`, `migrate`) are not read: they have no field ids, so that their columns are found by
        name, and may lack the columns of their partition."""
        if not file.is_parquet:
            return False
        with parquet_file(self.files, file.location, file.size) as found:
            kinds = {field_id(field): field.type for field in found.schema_arrow}
        if None in kinds:
            return False
        for field in self.fields:
            number = field_id(field)
            kind = kinds.get(number)
            if kind is None:
                if number not in self.defaults:
                    return False
                if file.described["partition"] and number in self.in_partitions():
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
            wanted = [names[number] for field in fields if (number := field_id(field)) in names]
            for batch in found.iter_batches(columns=wanted, use_threads=False):
                end = start + batch.num_rows
                own = _lineage(file, start, end) if len(self.lineage) else {}
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
