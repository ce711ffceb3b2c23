"""The options of the sink `jdbc`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.model.units import Milliseconds
from penstock.secret import Secret
from penstock.sinks.kind import NamespaceOptions
from penstock.sinks.names import which_penstock_adds
from penstock.sinks.sql.address import FILES, Address, parsed

NAME_BYTES_MAX = 63
"""PostgreSQL's limit for names."""
_POSTGRESQL_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
ROW_ID = "_rowid_"
"""SQLite's name for a row's number. No column may have it, so that the number can be named."""
_INNODB_COLUMNS = frozenset({"DB_ROW_ID", "DB_TRX_ID", "DB_ROLL_PTR", "FTS_DOC_ID"})


def folded(name: str) -> str:
    """A form of a table's name. SQLite and DuckDB take names with equal ones for one: they ignore the case of
    Latin letters without accents."""
    return "".join(one.lower() if one.isascii() else one for one in name)


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
    read_timeout: Milliseconds = Field(30_000, ge=1000)
    """After this time without an answer, the server is asked for a second connection. If it takes none
    either, the first one is closed, and the work is tried again. Otherwise the wait continues: long
    statements are not cut off."""
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
    def has_lists(self) -> bool:
        return False

    def identity(self, table: TableId) -> tuple[str, ...] | None:
        place = self.place(table)
        return place if place is None or self.address.product not in FILES else tuple(map(folded, place))

    def reserved(self, column: str) -> str | None:
        if self.address.product == "postgresql":
            if len(column.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
                return "whose name is too long for PostgreSQL"
            if column in _POSTGRESQL_COLUMNS:
                return "whose name PostgreSQL has for a column of its own"
        if self.address.product == "sqlite" and column.lower() == ROW_ID:
            return "whose name SQLite has for a column of its own"
        if self.address.product == "mysql" and column.upper() in _INNODB_COLUMNS:
            return "whose name InnoDB has for a column of its own"
        return which_penstock_adds(column, [SEQUENCE])

    @property
    def address(self) -> Address:
        return parsed(self.url)

    def place(self, table: TableId) -> tuple[str, ...] | None:
        schema = self.namespace.replace("{database}", table.database)
        if self.address.product == "sqlite":
            return (f"{schema}_{table.table}" if schema else table.table,)
        return (schema, table.table)
