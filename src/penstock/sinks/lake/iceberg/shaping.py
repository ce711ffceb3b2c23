"""Gives new targets their partitions and their sort order, as `sink.tables` says.

A partitioned target is created without partitions, and gets its own in the commit that creates the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.lake.iceberg.files import Classes, schema_fields
from penstock.sinks.lake.iceberg.table_options import TableShape
from penstock.sinks.lake.java_errors import JAVA_ERRORS, class_of, message_of
from penstock.sinks.lake.terms import Order, Term
from penstock.sinks.names import source_columns

_TIMES = (TimestampType, TimestampNTZType)
_NUMBERS = (ByteType, ShortType, IntegerType, LongType, DecimalType)
_FITTING: Mapping[str, tuple[type[DataType], ...]] = {
    "identity": (*_NUMBERS, *_TIMES, DateType, StringType, BinaryType, BooleanType, FloatType, DoubleType),
    "year": (DateType, *_TIMES),
    "month": (DateType, *_TIMES),
    "day": (DateType, *_TIMES),
    "hour": _TIMES,
    "bucket": (*_NUMBERS, *_TIMES, DateType, StringType, BinaryType),
    "truncate": (*_NUMBERS, StringType, BinaryType),
}
"""The types that a transform takes. Source: Iceberg's specification, "Partition Transforms"."""


def with_columns(table: TableId, shape: TableShape, columns: StructType) -> Shaped:
    """The shape with the columns' names as the target spells them. Raises `TableError` if the target has no
    such column, or if a transform does not take its type."""
    found = _Columns(table, shape, columns)
    return Shaped(
        tuple(found.term("partition_by", term) for term in shape.partitions),
        tuple(Order(found.term("sort_by", one.term), one.descending, one.nulls_first) for one in shape.order),
    )


@contextmanager
def shape_refused(table: TableId) -> Iterator[None]:
    """Turns Iceberg's refusal to create a target with this shape into a `TableError`."""
    try:
        yield
    except JAVA_ERRORS as error:
        if class_of(error) not in ("ValidationException", "IllegalArgumentException"):
            raise
        raise TableError(
            f"Iceberg refuses to create the target of {table} as `sink.tables` says: {message_of(error)}.",
            hint="Correct `sink.tables`. Then restart the pipeline and run "
            f"`penstock resnapshot FILE {argument(table)}`.",
            table=str(table),
        ) from error


class _Columns:
    def __init__(self, table: TableId, shape: TableShape, columns: StructType) -> None:
        names = set(source_columns(columns.names))
        self._table, self._shape = table, shape
        self._fields = {field.name.lower(): field for field in columns if field.name in names}

    def term(self, option: str, term: Term) -> Term:
        field = self._fields.get(term.column.lower())
        if field is None:
            raise _error(self._table, self._shape, option, term, f"there is no column {term.column}")
        if type(field.dataType) not in _FITTING[term.transform]:
            why = f"the column {field.name} is of type {field.dataType.simpleString()}"
            raise _error(self._table, self._shape, option, term, why)
        return Term(term.transform, field.name, term.width)


def _error(table: TableId, shape: TableShape, option: str, term: Term, why: str) -> TableError:
    return TableError(
        f"The target of {table} cannot be created: `{option}` of the entry for {', '.join(shape.match)} in "
        f"`sink.tables` has `{term}`, but {why}.",
        hint="Correct the entry, or put one that fits this table before it. Then restart the pipeline and "
        f"run `penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
    )


class Shaped:
    """Partitions and sort order of one target."""

    def __init__(self, partitions: tuple[Term, ...], order: tuple[Order, ...]) -> None:
        self.partitions = partitions
        self.order = order

    def apply(self, classes: Classes, table: TableId, target: Any) -> None:
        """Gives a new table, which has no partitions, these partitions and this order. Raises `TableError`
        if Iceberg refuses them."""
        with shape_refused(table):
            self._apply(classes, target)

    def _apply(self, classes: Classes, target: Any) -> None:
        if self.partitions:
            names = {field["name"].lower() for field in schema_fields(classes, target)}
            update = target.updateSpec()
            for term in self.partitions:
                name = _field_name(term)
                if term.transform != "identity" and name.lower() in names:
                    name += "_partition"  # Iceberg refuses the name of another column
                update.addField(name, classes.term(term))
            update.commit()
        if self.order:
            order = target.replaceSortOrder()
            for one in self.order:
                add = order.desc if one.descending else order.asc
                add(classes.term(one.term), classes.null_order(first=one.nulls_first))
            order.commit()


def _field_name(term: Term) -> str:
    """The name of a partition field, as Iceberg's SQL would choose it."""
    match term.transform:
        case "identity":
            return term.column
        case "bucket":
            return f"{term.column}_bucket_{term.width}"
        case "truncate":
            return f"{term.column}_trunc_{term.width}"
        case unit:
            return f"{term.column}_{unit}"


def present_partitions(classes: Classes, target: Any) -> list[Term]:
    """The partitions that a table has now. Transforms of a kind that `sink.tables` does not know are left
    out."""
    spec: Mapping[str, Any] = json.loads(classes.spec_json(target.spec()))
    names = {field["id"]: field["name"] for field in schema_fields(classes, target)}
    found = []
    for field in spec["fields"]:
        transform, _, width = field["transform"].partition("[")
        if transform in _FITTING and field.get("source-id") in names:
            found.append(Term(transform, names[field["source-id"]], int(width[:-1]) if width else None))
    return found


def same_partitions(present: Sequence[Term], wanted: Sequence[Term]) -> bool:
    def plain(terms: Sequence[Term]) -> list[tuple[str, str, int | None]]:
        return [(term.transform, term.column.lower(), term.width) for term in terms]

    return plain(present) == plain(wanted)
