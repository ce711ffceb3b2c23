"""Clients of a MySQL or MariaDB server, with its administrator's account."""

from __future__ import annotations

import os
import random
import time
import urllib.parse
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pymysql
from typing_extensions import Self

from penstock.errors import ConfigError

_UNKNOWN_XID = 1397
_DETACH_TIMEOUT_S = 60
"""Seconds until a prepared transaction of a closed session can be finished. A busy server takes a while to
end the session."""


class MySqlClient:
    """Client of a MySQL or MariaDB server. Each call opens its own connection, so it works across restarts
    and from several threads."""

    host: str
    port: int
    user: str
    password: str
    tls: bool = True
    """Whether connections use TLS if the server has it. A login then takes twenty times as long."""

    def connect(self, **options: Any) -> pymysql.connections.Connection[Any]:
        """Opens a PyMySQL connection (autocommit, utf8mb4) as the administrator. `options` override these
        settings."""
        arguments: dict[str, Any] = {
            "host": self.host, "port": self.port, "user": self.user, "password": self.password,
            "charset": "utf8mb4", "autocommit": True, "connect_timeout": 60,
            "ssl_disabled": not self.tls and "ssl" not in options,
        }  # fmt: skip
        return pymysql.connect(**{**arguments, **options})

    def execute(self, *statements: str) -> None:
        """Runs statements one after the other in one session."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                if statement.startswith(("XA COMMIT", "XA ROLLBACK")):
                    _end_branch(cursor, statement)
                else:
                    cursor.execute(statement)

    def query(self, sql: str, arguments: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Returns the rows of a SELECT or SHOW."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return [tuple(row) for row in cursor.fetchall()]

    def variable(self, name: str) -> Any:
        """Returns the value of a global system variable."""
        return self.query(f"SELECT @@GLOBAL.{name}")[0][0]

    def gtid_executed(self) -> str:
        """Returns the GTIDs that the server has executed, in the form of its product."""
        mariadb = "MariaDB" in str(self.variable("version"))
        return str(self.variable("gtid_binlog_pos" if mariadb else "gtid_executed")).replace("\n", "")

    def position(self) -> tuple[str, int]:
        """Returns the file and the position of the end of the binary log."""
        try:
            row = self.query("SHOW MASTER STATUS")[0]
        except pymysql.err.ProgrammingError:  # 8.4 and later
            row = self.query("SHOW BINARY LOG STATUS")[0]
        return str(row[0]), int(row[1])


def _end_branch(cursor: Any, statement: str) -> None:
    """Commits or rolls back an XA transaction that another session prepared. The XID is unknown until the
    server has noticed that the other session is gone, so this retries for `_DETACH_TIMEOUT_S`."""
    deadline = time.monotonic() + _DETACH_TIMEOUT_S
    while True:
        try:
            cursor.execute(statement)
            return
        except pymysql.err.MySQLError as error:
            if error.args[0] != _UNKNOWN_XID or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


class ExternalMySqlServer(MySqlClient):
    """The server that `PENSTOCK_MYSQL` names. It is never stopped."""

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(f"mysql://{address}")
        if parts.hostname is None or parts.username is None:
            raise ConfigError(
                "PENSTOCK_MYSQL is not an address.", hint="Write it as user:password@host:port."
            )
        self.host = parts.hostname
        self.port = parts.port or 3306
        self.user = urllib.parse.unquote(parts.username)
        self.password = urllib.parse.unquote(parts.password or "")

    def close(self) -> None:
        """Does nothing: the server is not ours."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Database(MySqlClient):
    """A new database on a server, for one test. Connections use it by default. `drop` removes it."""

    def __init__(self, server: MySqlClient, name: str | None = None) -> None:
        self.server = server
        self.host, self.port, self.user, self.password = (
            server.host,
            server.port,
            server.user,
            server.password,
        )
        self.tls = server.tls
        self.name = name or f"test_{os.getpid()}_{random.randrange(16**8):08x}"
        server.execute(f"CREATE DATABASE `{self.name}`")

    def connect(self, **options: Any) -> pymysql.connections.Connection[Any]:
        return super().connect(**{"database": self.name, **options})

    def drop(self) -> None:
        self.server.execute(f"DROP DATABASE IF EXISTS `{self.name}`")
