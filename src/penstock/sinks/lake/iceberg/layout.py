"""Spreads rows over the files of a table: one partition a file, and the rows in the table's sort order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sinks.files import Partition
from penstock.sinks.lake.iceberg.transforms import is_supported, transformed
from penstock.sinks.lake.terms import Order, Term, Transform

_TRANSFORMS = get_args(Transform)


@dataclass(frozen=True)
class Layout:
    """Partitions and sort order of a table. Pickles."""

    partitions: tuple[Term, ...]
    order: tuple[Order, ...]

    def __bool__(self) -> bool:
        return bool(self.partitions or self.order)

    @property
    def nulls(self) -> Partition:
        """The partition of rows in which every column is NULL."""
        return (None,) * len(self.partitions)

    def parts(self, rows: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
        """The rows of each partition, sorted, with the partition's values as Iceberg writes them in JSON."""
        rows = rows.combine_chunks()
        keys = [_ranks(transformed(one.term, _column(rows, one.term)), one) for one in self.order]
        numbers, values = self._numbered(rows)
        # Iceberg's order of the parts of a key is NumPy's from the last to the first.
        places = np.lexsort((*reversed(keys), numbers))
        rows, numbers = rows.take(pa.array(places)), numbers[places]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            yield values[numbers[start]], rows.slice(start, end - start)

    def _numbered(self, rows: pa.Table) -> tuple[Any, list[Partition]]:
        """A number for each row's partition, and the values of each number."""
        numbers, first = np.zeros(rows.num_rows, np.int64), np.zeros(1, np.int64)
        columns = []
        for term in self.partitions:
            column = transformed(term, _column(rows, term))
            columns.append(column)
            found = column.dictionary_encode(null_encoding="encode")
            codes = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            numbers = numbers * len(found.dictionary) + codes
            _, first, numbers = np.unique(numbers, return_index=True, return_inverse=True)
        values = [json_values(column.take(pa.array(first))) for column in columns]
        return numbers, list(zip(*values, strict=True)) if columns else [()]


def layout_of(spec: str, order: str, fields: pa.Schema, ids: Mapping[int, str]) -> Layout | None:
    """The layout of a table, from Iceberg's JSON for its spec and its sort order. `ids`: the names of columns
    by field id. None: it has a transform that is not supported."""
    partitions = [_term(field, ids) for field in json.loads(spec)["fields"]]
    sorting = [(_term(field, ids), field) for field in json.loads(order)["fields"]]
    if any(term is None or not is_supported(term, fields.field(term.column).type) for term in partitions):
        return None
    if any(term is None for term, _ in sorting):
        return None
    orders = [
        Order(term, field["direction"] == "desc", field["null-order"] == "nulls-first")
        for term, field in sorting
        if term is not None
    ]
    return Layout(tuple(term for term in partitions if term is not None), tuple(orders))


def _term(field: Mapping[str, Any], ids: Mapping[int, str]) -> Term | None:
    transform, _, width = field["transform"].partition("[")
    if transform not in _TRANSFORMS or field.get("source-id") not in ids:
        return None
    return Term(transform, ids[field["source-id"]], int(width[:-1]) if width else None)


def json_values(column: pa.Array) -> list[Any]:
    """Values of a partition as Iceberg writes them in JSON. Source: Iceberg's specification, "JSON
    single-value serialization"."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return [None if one is None else format(one, "f") for one in column.to_pylist()]
    if pa.types.is_binary(kind):
        return [None if one is None else one.hex().upper() for one in column.to_pylist()]
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        # Python's own dates begin with the year 1, and MySQL has dates before it.
        unit, whole = ("D", pa.int32()) if pa.types.is_date(kind) else ("us", pa.int64())
        zone = "+00:00" if pa.types.is_timestamp(kind) and kind.tz else ""
        texts = column.view(whole).fill_null(0).to_numpy(zero_copy_only=False).astype(f"datetime64[{unit}]")
        valid = column.is_valid().to_pylist()
        return [f"{one}{zone}" if found else None for one, found in zip(texts, valid, strict=True)]
    return list(column.to_pylist())


def _column(rows: pa.Table, term: Term) -> pa.Array:
    found = rows.column(term.column)
    return found.chunk(0) if found.num_chunks else pa.array([], found.type)


def _ranks(column: pa.Array, order: Order) -> Any:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    direction = "descending" if order.descending else "ascending"
    found = pc.rank(column, sort_keys=direction, tiebreaker="dense").to_numpy().astype(np.int64)
    found[column.is_null().to_numpy(zero_copy_only=False)] = 0 if order.nulls_first else len(found) + 1
    return found
