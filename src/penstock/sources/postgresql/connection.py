"""Connections to the source that run SQL: for its catalog, and for what a receiver must set up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from penstock.errors import ConfigError, SourceUnreachable, TransientError
from penstock.sources.postgresql.options import PostgreSqlOptions

SESSION = {
    "datestyle": "ISO", "intervalstyle": "iso_8601", "timezone": "UTC", "bytea_output": "hex",
    "extra_float_digits": "3", "search_path": "", "statement_timeout": "0", "row_security": "off",
    "idle_in_transaction_session_timeout": "0", "lock_timeout": "0",
}  # fmt: skip
"""Settings on which the text of values depends, and those that would end a session."""


def fields(options: PostgreSqlOptions) -> dict[str, Any]:
    """What libpq needs to connect."""
    return {
        "host": options.host, "port": options.port, "dbname": options.database, "user": options.user,
        "password": options.password.reveal(), "sslmode": options.tls, "sslrootcert": options.tls_ca,
        "connect_timeout": max(1, options.connect_timeout // 1000), "client_encoding": "UTF8",
        "application_name": "penstock",
        "options": " ".join(f"-c {name}={value}" for name, value in SESSION.items()),
    }  # fmt: skip


def connect(options: PostgreSqlOptions) -> psycopg.Connection[Any]:
    """A connection that commits each statement."""
    wanted = {name: value for name, value in fields(options).items() if value is not None}
    with explained(options):
        return psycopg.connect(**wanted, autocommit=True)


@contextlib.contextmanager
def explained(options: PostgreSqlOptions) -> Iterator[None]:
    """Turns errors of the connection in the block into Penstock's."""
    try:
        yield
    except psycopg.Error as error:
        raise of(error, f"{options.host}:{options.port}") from None


def of(error: psycopg.Error, where: str) -> Exception:
    """`where`: the server's address."""
    reason, state = (
        str(error).strip().splitlines()[0].rstrip(".") if str(error) else "no reason",
        error.sqlstate,
    )
    if state in ("28P01", "28000") or "no password supplied" in reason or "password authentication" in reason:
        return ConfigError(
            f"{where} refuses the login: {reason}.", hint="Check `source.user` and `source.password`."
        )
    if state == "3D000":
        return ConfigError(f"{where}: {reason}.", hint="Correct `source.database`.")
    if state is None and isinstance(error, psycopg.OperationalError):
        return SourceUnreachable(f"{where} does not answer: {reason}.")
    if state is not None and state[:2] in ("08", "53", "57", "40"):
        return TransientError(f"{where}: {reason}.")
    return ConfigError(f"{where}: {reason}.")
