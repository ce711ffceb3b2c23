"""The sink `jdbc`: its options."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.model.shards import Shards
from penstock.model.units import Milliseconds
from penstock.secret import Secret
from penstock.sinks.kind import NamespaceOptions, Probe, SinkKind
from penstock.sinks.sql.address import Address, parsed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink
    from penstock.sinks.sql.dialect import Dialect


class JdbcOptions(NamespaceOptions):
    """Tables of PostgreSQL, MySQL, MariaDB, SQLite or DuckDB (docs/sinks-sql.md). No JDBC driver is needed:
    the name is the one that people look for."""

    type: Literal["jdbc"]
    """Name of the sink."""
    url: str
    """The database: `postgresql://host:5432/database`, `mysql://host:3306`, `mariadb://host:3306`,
    `sqlite:///path/file.db` or `duckdb:///path/file.duckdb`, with or without `jdbc:` before it. PostgreSQL
    takes libpq's parameters (`?sslmode=verify-full`), MySQL `?ssl-mode=verify_ca&ssl-ca=FILE`."""
    user: str = ""
    """Account at the database. It creates schemas and tables, and writes them."""
    password: Secret = Secret()
    """Its password; usually `${VARIABLE}`."""
    control: str = Field("penstock", pattern=r"^[a-z][a-z0-9_]{0,30}$")
    """Schema (in MySQL: database) with the sink's own table `targets`. In SQLite, which has no schemas, the
    table is `penstock_targets`."""
    connect_timeout: Milliseconds = Field(10_000, ge=1000)
    """How long a connection may take."""
    lock_timeout: Milliseconds = Field(30_000, ge=1000)
    """How long a write waits for locks of other sessions. Then it is tried again."""
    nul_characters: Literal["park", "remove"] = "park"
    """What to do with texts that contain the character NUL, which PostgreSQL cannot store: park their table,
    or leave the character out."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        parsed(value)
        return value

    @property
    def address(self) -> Address:
        return parsed(self.url)

    def place(self, table: TableId) -> tuple[str, ...] | None:
        schema = self.namespace.replace("{database}", table.database)
        if self.address.product == "sqlite":
            return (f"{schema}_{table.table}" if schema else table.table,)
        return (schema, table.table)


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
