"""Gives new Delta targets the partitions or the clustering that `sink.tables` says."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import IllegalArgumentException
from pyspark.sql.types import BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StructType

from penstock.errors import TableError
from penstock.failures.messages import one_sentence
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.evolve import Change
from penstock.sinks.lake.delta.table_options import DeltaShape
from penstock.sinks.lake.java_errors import message_of
from penstock.sinks.names import source_columns
from penstock.sinks.spark_sql import quoted

_PARTITION_TYPES = (ByteType, ShortType, IntegerType, LongType, DateType, BooleanType)


def layout_clause(table: TableId, shape: DeltaShape, columns: StructType) -> str:
    """The part of CREATE TABLE that lays the target out. Raises `TableError` if the target has no such
    column, or one of another type."""
    for option, words in (("partition_by", "PARTITIONED BY"), ("cluster_by", "CLUSTER BY")):
        names = getattr(shape, option)
        if names:
            found = [_column(table, shape, option, name, columns) for name in names]
            return f"{words} ({', '.join(map(quoted, found))})"
    return ""


def _column(table: TableId, shape: DeltaShape, option: str, name: str, columns: StructType) -> str:
    own = set(source_columns(columns.names))
    known = {field.name.lower(): field for field in columns if field.name in own}
    field = known.get(name.lower())
    if field is None:
        raise _error(table, shape, f"`{option}` has `{name}`, but there is no such column")
    if option == "partition_by" and not isinstance(field.dataType, _PARTITION_TYPES):
        kind = field.dataType.simpleString()
        raise _error(table, shape, f"`{option}` has `{field.name}`, but the column is of type {kind}")
    return field.name


def renamed(
    table: TableId, laid_out_by: Sequence[str], changed: Sequence[Change], computed: Sequence[Change]
) -> list[str]:
    """The names of columns of the layout after these changes. Raises `TableError` if one of them goes, or
    gets other values."""
    names = {change.before: change.name for change in changed if change.before and change not in computed}
    for name in laid_out_by:
        if name not in names:
            raise TableError(
                f"The target of {table} is partitioned or clustered by {name}, which was dropped or got "
                "another type.",
                hint=f"Run `penstock resnapshot FILE {argument(table)} --recreate`, after correcting "
                "`sink.tables` if it names the column.",
                table=str(table),
            )
    return [names[name] for name in laid_out_by]


def refused(table: TableId, shape: DeltaShape, error: PySparkException) -> TableError:
    """The error for a target that Delta refuses to create."""
    said = one_sentence(error)
    if isinstance(error, IllegalArgumentException):  # a property, of which Spark's own errors say nothing
        said = message_of(error).partition("\n")[0].removeprefix("requirement failed: ")
    return _error(table, shape, f"Delta says: {said.rstrip('.')}")


def _error(table: TableId, shape: DeltaShape, why: str) -> TableError:
    return TableError(
        f"The target of {table} cannot be created as the entry for {', '.join(shape.match)} in `sink.tables` "
        f"says: {why}.",
        hint="Correct the entry, or put one that fits this table before it. Then restart the pipeline and "
        f"run `penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
    )
