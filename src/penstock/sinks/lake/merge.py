"""Merges rows into a target with Spark's MERGE, and says which columns a target has."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DataType,
    DateType,
    TimestampNTZType,
    TimestampType,
)

from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.names import source_columns
from penstock.sinks.refusals import missing_row
from penstock.sinks.rows import Incomplete, Rows
from penstock.sinks.spark_sessions import shared_view
from penstock.sinks.spark_sql import has, quoted


def live_rows(frame: DataFrame) -> DataFrame:
    """The rows of a frame in the layout `latest` that a target should hold, with the target's columns."""
    from pyspark.sql.functions import col

    if DELETED in frame.columns:
        frame = frame.where(~col(DELETED))
    return frame.select(*[quoted(name) for name in (*source_columns(frame.columns), SEQUENCE)])


def merge(session: SparkSession, table: TableId, target: str, rows: Rows, key: tuple[str, ...]) -> None:
    """Merges rows in the layout `latest` into a target, in this session.

    Raises `TableError` if a row lacks columns and the complete target has no such row
    (`Incomplete.target_is_complete`).
    """
    with shared_view(rows.frame) as view:
        if rows.incomplete is not None and rows.incomplete.target_is_complete:
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
        raise missing_row(table, missing[0][0])


def _match(rows: Rows, key: tuple[str, ...]) -> str:
    types = {field.name: field.dataType for field in rows.frame.schema.fields}
    parts = [f"t.{quoted(name)} {_equality(types[name])} s.{quoted(name)}" for name in key]
    if rows.shard is not None:
        parts.append(f"t.{has(rows.shard.column, rows.shard.value)}")  # a constant: it prunes files
    return " AND ".join(parts)


def merge_sql(target: str, view: str, rows: Rows, key: tuple[str, ...]) -> str:
    columns, incomplete = (*source_columns(rows.frame.columns), SEQUENCE), rows.incomplete
    match = _match(rows, key)
    # NULL: a row that was there when the target was adopted.
    newer = f"(t.{SEQUENCE} IS NULL OR s.{SEQUENCE} > t.{SEQUENCE})"
    updates = ", ".join(f"t.{quoted(name)} = {_new_value(name, incomplete)}" for name in columns)
    complete = "" if incomplete is None else f" AND s.{PRESENT} IS NULL"
    names = ", ".join(quoted(name) for name in columns)
    values = ", ".join(f"s.{quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {target} AS t USING {view} AS s ON {match} "
        f"WHEN MATCHED AND {newer} AND s.{DELETED} THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED AND NOT s.{DELETED}{complete} THEN INSERT ({names}) VALUES ({values})"
    )


def _new_value(name: str, incomplete: Incomplete | None) -> str:
    """The value that an update gives to a column: the log's, or the target's own if the log has none."""
    value = f"s.{quoted(name)}"
    if incomplete is None or name == SEQUENCE:
        return value
    place = incomplete.places.get(name)
    present = "" if place is None else f" OR substring(s.{PRESENT}, {place + 1}, 1) = '1'"
    return f"CASE WHEN s.{PRESENT} IS NULL{present} THEN {value} ELSE t.{quoted(name)} END"


def _equality(kind: DataType) -> str:
    # Key columns are NOT NULL at the source, but a zero date arrives as NULL. `=` joins and prunes better.
    return "<=>" if isinstance(kind, (DateType, TimestampType, TimestampNTZType)) else "="
