"""The options of the sink `jdbc`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from penstock.model.schema import TableId
from penstock.model.units import Milliseconds
from penstock.secret import Secret
from penstock.sinks.kind import NamespaceOptions
from penstock.sinks.sql.address import Address, parsed


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
