"""Prints changes as JSON lines on standard output, to try things out. After a kill, changes may be printed
again: there is no record of what was printed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, struct, to_json

from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.printable import printable_json
from penstock.sinks.base import Commit, EvolvedColumn, Missing, Narrowing, Ours, TargetState
from penstock.sinks.console.registration import ConsoleOptions
from penstock.sinks.names import source_columns
from penstock.sinks.refusals import check_pipeline, is_recorded
from penstock.sinks.rows import Rows


class ConsoleSink:
    def __init__(self, options: ConsoleOptions, spark: SparkSession, pipeline: str) -> None:
        self.before_images = options.before_images
        self._spark = spark
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._columns: dict[TableId, tuple[str, ...]] = {}
        self._last: dict[TableId, Commit] = {}

    def check(self) -> None:
        """Standard output is always there."""

    def open(self, table: TableId) -> TargetState:
        columns = self._columns.get(table)
        return Missing() if columns is None else Ours(self._last.get(table), columns, table not in self._last)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        self._columns[schema.table] = source_columns(arrow.names)

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        frame = rows.frame
        row = struct(*[col("`" + name.replace("`", "``") + "`") for name in source_columns(frame.columns)])
        line = struct(
            lit(str(table)).alias("table"),
            col(CHANGE_TYPE).alias("change"),
            col(SEQUENCE).alias("sequence"),
            col(COMMIT_TIMESTAMP).alias("committed"),
            row.alias("row"),
        )
        lines = frame.select(to_json(line, {"ignoreNullFields": "false"}).alias("line"))
        self._print([printable_json(one["line"]) + "\n" for one in lines.toLocalIterator()])
        self._last[table] = commit
        return True

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        if self._done(table, commit):
            return False
        row = self._spark.range(1).select(
            lit("truncate").alias(CHANGE_TYPE),
            lit(sequence).alias(SEQUENCE),
            lit(timestamp_us).alias("us"),
        )
        columns = [CHANGE_TYPE, SEQUENCE, f"timestamp_micros(us) AS {COMMIT_TIMESTAMP}"]
        return self.write_changes(table, Rows(row.selectExpr(*columns)), commit)

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        if self._done(table, commit):
            return False
        self._columns[table] = tuple(column.field.name for column in columns)
        self._last[table] = commit
        return True

    def close(self) -> None:
        pass

    def _done(self, table: TableId, commit: Commit) -> bool:
        check_pipeline(commit, self._pipeline)
        return is_recorded(commit, self._last.get(table))

    def _print(self, lines: list[str]) -> None:
        with self._lock:
            sys.stdout.writelines(lines)
            sys.stdout.flush()
