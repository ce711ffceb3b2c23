"""What the merging sinks share: SQL text, and sessions whose options belong to one write."""

from __future__ import annotations

import json
import queue
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import InternalError, TableError
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import SOURCE, refuse_shared, source_columns
from penstock.sinks.files import Present, Rows


def refuse_other_source(sink: Any, table: TableId) -> None:
    """Raises `TableError` if the target was made for another table."""
    refuse_shared(table, sink.name(table), sink.properties(table).get(SOURCE))


class Sessions:
    """Sessions of one Spark application, lent to one write at a time.

    Some options of a commit (Iceberg's snapshot properties in a MERGE, Delta's transaction id) can be given
    only as options of the session, and several tables are written at once: so each write has a session to
    itself.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._idle: queue.SimpleQueue[SparkSession] = queue.SimpleQueue()

    @contextmanager
    def lend(self, options: dict[str, str]) -> Iterator[SparkSession]:
        try:
            session = self._idle.get_nowait()
        except queue.Empty:
            session = self._spark.newSession()
        for name, value in options.items():
            session.conf.set(name, value)
        try:
            yield session
        finally:
            for name in options:
                session.conf.unset(name)
            self._idle.put(session)


def activate(spark: SparkSession) -> None:
    """Makes it the session of the calling thread. Spark's parser asks that one for its options; a thread
    without a session has Spark's defaults, with which `${…}` in a name is replaced. `spark.sql` needs no
    such help."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(  # type: ignore[union-attr]
        spark._jsparkSession
    )


@contextmanager
def shared_view(frame: DataFrame) -> Iterator[str]:
    """A name under which every session sees the frame."""
    name = f"penstock_{uuid.uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        yield f"global_temp.{name}"
    finally:
        frame.sparkSession.catalog.dropGlobalTempView(name)


def quoted(name: str) -> str:
    """An identifier as Spark SQL, whatever characters it holds."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A string literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def spark_type(field: pa.Field) -> DataType:
    try:
        return from_arrow_type(field.type, prefer_timestamp_ntz=True)
    except Exception as error:
        raise InternalError(f"Column {field.name}: Spark has no type for Arrow's {field.type}.") from error


def target_type(arrow: pa.Schema) -> StructType:
    """Columns of a merged table: the source's, all nullable, then `_sequence`."""
    names = source_columns(arrow.names)
    fields = [StructField(name, spark_type(arrow.field(name))) for name in names]
    return StructType([*fields, StructField(SEQUENCE, LongType())])


def column_definitions(struct: StructType) -> str:
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in struct.fields)


def java_map(spark: SparkSession, values: Any) -> dict[str, str]:
    """A map of strings from the JVM, in one call however large it is."""
    mapper = spark._jvm.com.fasterxml.jackson.databind.ObjectMapper()  # type: ignore[union-attr]
    found: dict[str, str] = json.loads(mapper.writeValueAsString(values))
    return found


def table_properties(properties: dict[str, str]) -> str:
    """The TBLPROPERTIES clause."""
    return (
        f"TBLPROPERTIES ({', '.join(f'{text(name)} = {text(value)}' for name, value in properties.items())})"
    )


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
            f"An update of table {table} at offset {missing[0][0]} has only some of the row's columns "
            "(binlog_row_image is not FULL), and the target has no such row to take the others from.",
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


def has(column: str, value: str) -> str:
    """The condition that a column has a value."""
    return f"{quoted(column)} = {text(value)}"


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


def constant(spark: SparkSession, expression: str | None, kind: DataType) -> Any:
    """The value of a column's default as Spark computes it, in the column's type; timestamps as text in
    UTC."""
    if expression is None:
        return None
    text_ = f"CAST({expression} AS {kind.simpleString()})"
    if isinstance(kind, (DateType, TimestampType, TimestampNTZType)):
        text_ = f"CAST({text_} AS STRING)"
    return spark.sql(f"SELECT {text_}").collect()[0][0]


def literal_form(value: Any, kind: DataType) -> Any:
    """A value in a form from which Iceberg makes a literal of the type."""
    if isinstance(kind, TimestampType):
        return value.replace(" ", "T") + "+00:00"
    if isinstance(kind, TimestampNTZType):
        return value.replace(" ", "T")
    if isinstance(kind, DecimalType):
        return str(value)
    if isinstance(kind, BinaryType):
        return bytes(value)
    return str(value) if isinstance(kind, DateType) else value
