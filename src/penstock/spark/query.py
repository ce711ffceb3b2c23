"""SQL over the targets of a pipeline, with tables under the names they have at the source."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.model.shards import Shards
from penstock.sinks import build_sink
from penstock.spark.session import build_session


def query(
    config: PipelineConfig, uuid: str, tables: list[TableId], sql: str, limit: int
) -> tuple[list[str], list[Any]]:
    """Runs one SELECT: (column names, at most `limit` rows). Tables are `database.table` for Iceberg's
    catalog, and views named by the table alone for every sink."""
    shards = Shards(config.merge_shards)
    targets = dict.fromkeys(rule.target if (rule := shards.rule(table)) else table for table in tables)
    spark = build_session(config.spark, config.sink, config.state / "query")
    try:
        sink = build_sink(config.sink, spark, uuid, config.merge_shards)
        for table in targets:
            sink.read(table).createOrReplaceTempView(table.table)
        if config.sink.type == "iceberg":
            spark.catalog.setCurrentCatalog(config.sink.catalog)
        frame = spark.sql(sql).limit(limit)
        return list(frame.columns), [tuple(row) for row in frame.collect()]
    except PySparkException as error:
        known = ", ".join(table.table for table in targets) or "none yet"
        raise ConfigError(f"Spark: {str(error).splitlines()[0]}", hint=f"Tables: {known}.") from error
    finally:
        spark.stop()
