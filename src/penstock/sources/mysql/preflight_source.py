"""What the checks of `preflight.py` know about the source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pymysql

from penstock.config import PipelineConfig
from penstock.sources.mysql import catalog
from penstock.sources.mysql.connection import query, query_named
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.faults import is_denied
from penstock.sources.mysql.options import options_of

GTID_SQL = (
    "SET GLOBAL enforce_gtid_consistency = ON;\n"
    "SET GLOBAL gtid_mode = OFF_PERMISSIVE;\n"
    "SET GLOBAL gtid_mode = ON_PERMISSIVE;\n"
    "SET GLOBAL gtid_mode = ON;"
)


@dataclass
class Source:
    """What the checks know about the source. `denied`: queries that the account may not run."""

    config: PipelineConfig
    connection: Any
    traits: catalog.ServerTraits
    variables: dict[str, str]
    account: str
    binlog: dict[str, Any] | None = None
    files: list[str] | None = None
    denied: set[str] = field(default_factory=set)

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.traits.version, self.traits.mariadb)

    @property
    def name(self) -> str:
        return f"{options_of(self.config).host}:{options_of(self.config).port}"

    def variable(self, *names: str) -> str:
        """The value of the first of these variables that the server has; empty if it has none."""
        return next((self.variables[name] for name in names if name in self.variables), "")

    def is_on(self, *names: str) -> bool:
        return self.variable(*names).upper() in ("ON", "1", "YES")

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return query(self.connection, sql)


def look(config: PipelineConfig, connection: Any) -> Source:
    """Asks the server. What the account may not ask for is in `denied`."""
    traits = catalog.describe_server(connection)
    variables = {str(name).lower(): str(value) for name, value in query(connection, "SHOW GLOBAL VARIABLES")}
    [(account,)] = query(connection, "SELECT CURRENT_USER()")
    source = Source(config, connection, traits, variables, str(account))
    try:
        source.binlog = next(iter(query_named(connection, source.dialect.log_status)), {})
        if source.is_on("log_bin"):
            source.files = [str(row[0]) for row in source.ask("SHOW BINARY LOGS")]
    except pymysql.Error as error:
        if not is_denied(error):
            raise
        source.denied.add(source.dialect.log_privileges[1])
    return source


def account_sql(account: str) -> str:
    """`user@host` as CURRENT_USER() prints it, quoted for GRANT."""
    user, _, host = account.rpartition("@")
    return f"'{_escape(user)}'@'{_escape(host)}'"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "''")
