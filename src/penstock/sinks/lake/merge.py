"""Spark's MERGE of rows in the layout `latest` into a target, and the columns that a target has."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DataType,
    DateType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import TableError
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.files import Present, Rows
from penstock.sinks.lake.sessions import shared_view
from penstock.sinks.names import source_columns
from penstock.sinks.spark_sql import has, quoted, spark_type


def target_type(arrow: pa.Schema) -> StructType:
    """Columns of a merged table: the source's, all nullable, then `_sequence`."""
    names = source_columns(arrow.names)
    fields = [StructField(name, spark_type(arrow.field(name))) for name in names]
    return StructType([*fields, StructField(SEQUENCE, LongType())])


def live_rows(frame: DataFrame) -> DataFrame:
    """Rows and columns of a `latest` frame as a merged table has them."""
    from pyspark.sql.functions import col

    if DELETED in frame.columns:
        frame = frame.where(~col(DELETED))
    return frame.select(*[quoted(name) for name in (*source_columns(frame.columns), SEQUENCE)])


def merge(session: SparkSession, table: TableId, target: str, rows: Rows, key: tuple[str, ...]) -> None:
    """Merges rows of layout `latest` into a target, in this session.

    Raises `TableError` if a row that lacks columns is in the log and should be in the target, but is not.
    """
    with shared_view(rows.frame) as view:
        if rows.present is not None and rows.present.strict:
            _require_rows(session, table, target, view, rows, key)
        session.sql(merge_sql(target, view, rows, key))


def _require_rows(
    session: SparkSession, table: TableId, target: str, view: str, rows: Rows, key: tuple[str, ...]
) -> None:
    missing = session.sql(
        f"SELECT s.{SEQUENCE} FROM {view} AS s LEFT ANTI JOIN {target} AS t ON {_match(rows, key)} "
        f"WHERE s.{PRESENT} IS NOT NULL AND NOT s.{DELETED} LIMIT 1"
    ).collect()
    if missing:
        raise TableError(
            f"An update of table {table} at offset {missing[0][0]} has only some of the row's columns, "
            "since the source logs parts of rows. The target has no such row to take the others from.",
            hint=f"Run `penstock resnapshot FILE {argument(table)}` to read the table again.",
            table=str(table),
            offset=missing[0][0],
        )


def _match(rows: Rows, key: tuple[str, ...]) -> str:
    types = {field.name: field.dataType for field in rows.frame.schema.fields}
    parts = [f"t.{quoted(name)} {_equality(types[name])} s.{quoted(name)}" for name in key]
    if rows.within is not None:
        parts.append(f"t.{has(*rows.within)}")  # a constant: it prunes files
    return " AND ".join(parts)


def merge_sql(target: str, view: str, rows: Rows, key: tuple[str, ...]) -> str:
    columns, present = (*source_columns(rows.frame.columns), SEQUENCE), rows.present
    match = _match(rows, key)
    newer = f"s.{SEQUENCE} > t.{SEQUENCE}"
    updates = ", ".join(f"t.{quoted(name)} = {_new_value(name, present)}" for name in columns)
    whole = "" if present is None else f" AND s.{PRESENT} IS NULL"
    names = ", ".join(quoted(name) for name in columns)
    values = ", ".join(f"s.{quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {target} AS t USING {view} AS s ON {match} "
        f"WHEN MATCHED AND {newer} AND s.{DELETED} THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED AND NOT s.{DELETED}{whole} THEN INSERT ({names}) VALUES ({values})"
    )


def _new_value(name: str, present: Present | None) -> str:
    """What an update sets a column to: the log's value, or the target's own where the log has none."""
    value = f"s.{quoted(name)}"
    if present is None or name == SEQUENCE:
        return value
    place = present.places.get(name)
    said = "" if place is None else f" OR substring(s.{PRESENT}, {place + 1}, 1) = '1'"
    return f"CASE WHEN s.{PRESENT} IS NULL{said} THEN {value} ELSE t.{quoted(name)} END"


def _equality(kind: DataType) -> str:
    # Key columns are NOT NULL at the source, but a zero date arrives as NULL. `=` joins and prunes better.
    return "<=>" if isinstance(kind, (DateType, TimestampType, TimestampNTZType)) else "="
