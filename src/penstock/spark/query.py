"""SQL over the targets of a pipeline, with tables under the names they have at the source."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.failures.messages import first_line, is_sparks, spark_failed
from penstock.model.schema import TableId
from penstock.model.shards import Shards
from penstock.model.views import view_table
from penstock.sinks.base import Ours, VersionSink, readable
from penstock.sinks.spark_sql import quoted
from penstock.spark.opened_sink import open_sink
from penstock.spark.session import build_session
from penstock.steps import step

_DESCRIBES = re.compile(r"\s*(SHOW|DESCRIBE|DESC|EXPLAIN)\b", re.IGNORECASE)
"""Statements that only describe tables. For Spark they are commands, like DROP."""


def query(
    config: PipelineConfig, uuid: str, tables: list[TableId], sql: str, limit: int
) -> tuple[list[str], list[Any]]:
    """Runs one statement that only reads. Returns the column names and at most `limit` rows. Tables are named
    `database.table` in Iceberg's catalog. With every sink, a view has the table's name alone. If several
    tables have the same name (Spark ignores letter case), there is no such view, because it would be
    ambiguous."""
    shards = Shards(config.merge_shards)
    targets = dict.fromkeys(rule.target if (rule := shards.rule(table)) else table for table in tables)
    named = Counter(table.table.casefold() for table in targets)
    views = [table for table in targets if named[table.table.casefold()] == 1]
    spark = build_session(config.spark, config.sink, config.state / "query")
    try:
        step("opening %d tables", len(targets))
        opened = open_sink(config, spark, uuid)
        sink = readable(opened)
        for table in views:
            frame = sink.read_whole(table) if isinstance(sink, VersionSink) else sink.read(table)
            frame.createOrReplaceTempView(quoted(table.table))
        for view in map(view_table, config.views):
            if isinstance(opened.open(view), Ours) and not named[view.table.casefold()]:
                sink.read(view).createOrReplaceTempView(quoted(view.table))
        if (catalog := config.sink.spark_catalog) is not None:
            spark.catalog.setCurrentCatalog(catalog)
        refuse_changes(spark, sql)
        step("running the query")
        frame = spark.sql(sql).limit(limit)
        return list(frame.columns), [tuple(row) for row in frame.collect()]
    except AnalysisException as error:  # ParseException, too: the SQL is wrong
        known = ", ".join(table.table for table in views) or "none yet"
        hint = f"Tables: {known}."
        if shared := [str(table) for table in targets if table not in views]:
            hint += f" Not by these names alone, as others have the same: {', '.join(shared)}."
        raise ConfigError(f"Spark: {first_line(error)}", hint=hint) from None
    except Exception as error:
        if not is_sparks(error):
            raise
        raise spark_failed(error, "The query failed", config.state, rows=False) from error
    finally:
        spark.stop()


def refuse_changes(spark: SparkSession, sql: str) -> None:
    """Raises `ConfigError` if Spark takes `sql` for something other than a query: DROP TABLE, INSERT, CALL.
    Raises `ParseException` if it is no SQL."""
    if _DESCRIBES.match(sql):
        return
    java: Any = spark._jvm
    spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    try:
        # Spark's own parser, because those of Iceberg and Delta take every statement here.
        java.org.apache.spark.sql.execution.SparkSqlParser().parseQuery(sql.rstrip("; \t\r\n"))
    except ParseException:
        raise ConfigError(
            "`penstock query` only reads, and this statement is no query. Nothing was done.",
            hint="Write SELECT, WITH … SELECT, VALUES, SHOW, DESCRIBE or EXPLAIN. Change tables in Spark.",
        ) from None
