"""Targets that keep every change as a row (`history: changelog`): what `HistorySink` does with them.

Their rows are only added: the source's columns, `_change_type`, `_sequence` and `_commit_timestamp`, in the
layout `changelog`. To its callers such a target is a copy of its table, so its present rows can be told from
the changes: of each key the newest one, unless it removes the row.

**Changes that the target has already** come again while a table catches up. Changes of a table are written in
the order of the log, and rows that are read get the sequence of an epoch's end after all changes before it.
So the target has all changes up to the greatest sequence in it, and these are left out.

**A table that is read again** has each of its rows once more, as `read`. Those that are not found any more
get a `delete` without a time: when it happened is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.lake.sink import LakeSink
from penstock.sinks.names import source_columns
from penstock.sinks.rows import Newer, Rows
from penstock.sinks.spark_sessions import shared_view
from penstock.sinks.spark_sql import quoted

FIELDS = (pa.field(CHANGE_TYPE, pa.string()), pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")))
_REMOVES = ("delete", "update_preimage")


@dataclass(frozen=True)
class Later:
    """Batches without changes up to a sequence. Rows that were read stay. Pickles."""

    sequence: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            is_later = pc.greater(batch.column(SEQUENCE), self.sequence)
            is_read = pc.equal(batch.column(CHANGE_TYPE), "read")
            yield batch.filter(pc.or_(is_later, is_read))


def write_changes(lake: LakeSink, table: TableId, rows: Rows, commit: Commit) -> bool:
    if not isinstance(rows.kind, Newer):
        newest = lake.read(table).agg(f.max(SEQUENCE)).collect()[0][0]
        if newest is not None:
            whole = rows
            rows = whole.changed(
                Later(newest), {}, lambda: whole.frame.where((f.col(SEQUENCE) > newest) | _is("read"))
            )
    return lake.append_whole(table, rows, commit)


def truncate(lake: LakeSink, table: TableId, commit: Commit, sequence: int, timestamp_us: int | None) -> bool:
    """Adds a row that says that the table was emptied."""
    at = "CAST(NULL AS TIMESTAMP)" if timestamp_us is None else f"timestamp_micros({int(timestamp_us)})"
    own = {CHANGE_TYPE: "'truncate'", SEQUENCE: str(int(sequence)), COMMIT_TIMESTAMP: at}

    def insert(session: SparkSession, target: str) -> None:
        fields = lake.columns(table)
        values = [own.get(one.name, f"CAST(NULL AS {one.dataType.simpleString()})") for one in fields]
        session.sql(f"INSERT INTO {target} SELECT {', '.join(values)}")

    return lake.write_by_sql(table, commit, insert)


def delete_older(lake: LakeSink, table: TableId, key: tuple[str, ...], sequence: int, commit: Commit) -> bool:
    """Adds a `delete` for each present row that is older."""

    def insert(session: SparkSession, target: str) -> None:
        frame = session.sql(f"SELECT * FROM {target}")
        gone = _newest(frame, key).where(f"{SEQUENCE} < {int(sequence)}")
        own = {
            CHANGE_TYPE: f.lit("delete"),
            SEQUENCE: f.lit(int(sequence)).cast("long"),
            COMMIT_TIMESTAMP: f.lit(None).cast("timestamp"),
        }
        made = gone.select(*[own.get(name, f.col(quoted(name))).alias(name) for name in frame.columns])
        with shared_view(made) as view:
            session.sql(f"INSERT INTO {target} SELECT * FROM {view}")

    return lake.write_by_sql(table, commit, insert)


def present_rows(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The rows that the table has, with the columns of a plain target."""
    return _newest(frame, key).select(*[quoted(one) for one in (*source_columns(frame.columns), SEQUENCE)])


def _newest(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """For each key its newest row, unless a later change has removed it."""
    emptied = frame.where(_is("truncate")).agg(
        f.coalesce(f.max(SEQUENCE), f.lit(-1)).alias("_penstock_emptied")
    )
    # The row after an update has the sequence of the row before it.
    order = Window.partitionBy(*[quoted(name) for name in key]).orderBy(
        f.col(SEQUENCE).desc(), _is("update_preimage").cast("int")
    )
    ranked = frame.where(~_is("truncate")).withColumn("_penstock_place", f.row_number().over(order))
    newest = ranked.where((f.col("_penstock_place") == 1) & ~f.col(CHANGE_TYPE).isin(*_REMOVES))
    return (
        newest.crossJoin(f.broadcast(emptied))
        .where(f"{SEQUENCE} > _penstock_emptied")
        .drop("_penstock_place", "_penstock_emptied")
    )


def _is(kind: str) -> Column:
    return f.col(CHANGE_TYPE) == kind
