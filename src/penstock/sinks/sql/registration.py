"""Registers the sink `jdbc`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, SinkKind
from penstock.sinks.sql.options import JdbcOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink
    from penstock.sinks.sql.dialect import Dialect


def dialect_of(options: JdbcOptions) -> Dialect:
    """What speaks to the database. Raises `ConfigError` if its driver is not installed."""
    match options.address.product:
        case "postgresql":
            _check_installed("psycopg", "PostgreSQL", "postgresql")
            from penstock.sinks.sql.postgresql import PostgreSql

            return PostgreSql(options)
        case "mysql":
            from penstock.sinks.sql.mysql import MySql

            return MySql(options)
        case "sqlite":
            from penstock.sinks.sql.sqlite import Sqlite

            return Sqlite(options)
        case "duckdb":
            _check_installed("duckdb", "DuckDB", "duckdb")
            from penstock.sinks.sql.duckdb import DuckDb

            return DuckDb(options)


def _check_installed(package: str, product: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ConfigError(
            f"The sink jdbc needs the package {package} for {product}, which is not installed.",
            hint=f"pip install 'penstock[{extra}]'",
        )


def _open(options: JdbcOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.sql.sink import SqlSink

    return SqlSink(dialect_of(options), options, spark, pipeline)


def _probe(options: JdbcOptions, conf: Mapping[str, str]) -> Probe:
    from penstock.sinks.sql.probe import probe

    return probe(options, dialect_of(options))


def _example(folder: Path) -> JdbcOptions:
    folder.mkdir(parents=True, exist_ok=True)
    return JdbcOptions(type="jdbc", url=f"sqlite://{folder.absolute()}/targets.db")


JDBC = SinkKind(
    name="jdbc",
    options=JdbcOptions,
    open=_open,
    example=_example,
    keeps_tables=True,
    probes_without_spark=True,
    probe=_probe,
)
