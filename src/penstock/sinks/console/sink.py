"""Prints changes as JSON lines on standard output, to try things out. After a kill, changes may be printed
again: there is no record of what was printed."""

from __future__ import annotations

import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, struct, to_json

from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE, own_name
from penstock.model.schema import TableId
from penstock.printable import printable_json
from penstock.sinks.base import Commit
from penstock.sinks.console.options import ConsoleOptions
from penstock.sinks.names import source_columns
from penstock.sinks.rows import Rows
from penstock.sinks.unrecorded import Unrecorded


class ConsoleSink(Unrecorded):
    def __init__(self, options: ConsoleOptions, spark: SparkSession, pipeline: str) -> None:
        super().__init__(pipeline)
        self.before_images = options.before_images
        self._spark = spark
        self._lock = threading.Lock()

    def check(self) -> None:
        """Standard output is always there."""

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        frame = rows.frame
        row = struct(*[col("`" + name.replace("`", "``") + "`") for name in source_columns(frame.columns)])
        kind, sequence, time = (
            own_name(one, frame.columns) for one in (CHANGE_TYPE, SEQUENCE, COMMIT_TIMESTAMP)
        )
        line = struct(
            lit(str(table)).alias("table"),
            col(kind).alias("change"),
            col(sequence).alias("sequence"),
            col(time).alias("committed"),
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

    def _print(self, lines: list[str]) -> None:
        with self._lock:
            sys.stdout.writelines(lines)
            sys.stdout.flush()
