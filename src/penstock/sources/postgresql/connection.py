"""Connections to the source that run SQL, and what their errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from penstock.errors import (
    ConfigError,
    LoginRefused,
    PenstockError,
    SourceUnreachable,
    TableError,
    TransientError,
)
from penstock.model.schema import TableId
from penstock.sources.postgresql.options import PostgreSqlOptions

SESSION = {
    "datestyle": "ISO", "intervalstyle": "iso_8601", "timezone": "UTC", "bytea_output": "hex",
    "extra_float_digits": "3", "search_path": "", "statement_timeout": "0", "row_security": "off",
    "idle_in_transaction_session_timeout": "0", "lock_timeout": "0",
}  # fmt: skip
"""Settings on which the text of values depends, and those that would end a session. Without `row_security`, a
policy that hides rows is an error."""
_PASSING = ("08", "40", "53", "55", "57", "58", "XX")
"""Classes of errors that pass: connection, conflict with recovery, resources, locks, shutdown, disk."""
_CONFLICT = "40001"
_INSUFFICIENT_PRIVILEGE = "42501"
_GONE = ("42P01", "42703", "3F000")
"""No such table, column or schema."""


def fields(options: PostgreSqlOptions) -> dict[str, Any]:
    """What libpq needs to connect. Of several servers, it takes the first one that is a primary."""
    hosts, ports = zip(*(address.rpartition(":")[::2] for address in options.addresses), strict=True)
    return {
        "host": ",".join(hosts), "port": ",".join(ports), "dbname": options.database, "user": options.user,
        "target_session_attrs": "primary" if options.failover else "any",
        "password": options.password.reveal(), "sslmode": options.tls, "sslrootcert": options.tls_ca,
        "connect_timeout": max(2, options.connect_timeout // 1000), "client_encoding": "UTF8",
        "application_name": "penstock", "keepalives_idle": 30, "tcp_user_timeout": 60_000,
        "options": " ".join(f"-c {name}={value}" for name, value in SESSION.items()),
    }  # fmt: skip


def connect(options: PostgreSqlOptions) -> psycopg.Connection[Any]:
    """A connection that commits each statement. Raises `SourceUnreachable` and `ConfigError`."""
    wanted = {name: value for name, value in fields(options).items() if value is not None}
    with explained(options):
        return psycopg.connect(**wanted, autocommit=True)


@contextlib.contextmanager
def explained(options: PostgreSqlOptions, table: TableId | None = None) -> Iterator[None]:
    """Turns errors of the server in the block into Penstock's. `table`: the one that is asked about."""
    try:
        yield
    except psycopg.Error as error:
        raise explain(error, options, table) from None


def explain(error: psycopg.Error, options: PostgreSqlOptions, table: TableId | None = None) -> PenstockError:
    text = str(error).strip()
    reason = text.splitlines()[0].rstrip(".") if text else type(error).__name__
    where = options.address
    known = refused(reason, error.sqlstate, where)
    if table is None or isinstance(known, TransientError):
        return known
    hint = ""
    if error.sqlstate == _INSUFFICIENT_PRIVILEGE:
        hint = f"GRANT SELECT ON {table} TO {options.user}; a role with BYPASSRLS passes row security."
    return TableError(f"{where} refuses to read {table}: {reason}.", hint=hint, table=str(table))


def is_gone(error: psycopg.Error) -> bool:
    """Whether a table or a column of the statement does not exist."""
    return error.sqlstate in _GONE


def refused(reason: str, state: str | None, where: str) -> PenstockError:
    """The error for what a server answers. `state`: its SQLSTATE; None: it did not say one. `where`: its
    address."""
    if state in ("28P01", "28000") or "no password supplied" in reason or "password authentication" in reason:
        return LoginRefused(
            f"{where} refuses the login: {reason}.", hint="Check `source.user` and `source.password`."
        )
    if "unsupported startup parameter" in reason:
        return ConfigError(
            f"{where} is no PostgreSQL server, but a pooler in front of one: {reason}.",
            hint="Name the server itself in `source.host`: a pooler cannot send the log.",
        )
    if state == "3D000" or ("database" in reason and "does not exist" in reason):
        return ConfigError(f"{where}: {reason}.", hint="Correct `source.database`.")
    if "no pg_hba.conf entry" in reason or "must be superuser or replication role" in reason:
        return ConfigError(
            f"{where} refuses the connection: {reason}.",
            hint="The role needs REPLICATION, and a line in pg_hba.conf.",
        )
    if state is None:
        return SourceUnreachable(f"{where} does not answer: {reason}.")
    if state == _CONFLICT:  # those that only read have no other conflicts
        return TransientError(
            f"{where}: {reason}.",
            hint="At a standby, a longer `max_standby_streaming_delay` or `hot_standby_feedback = on` lets "
            "reads end; `snapshot.chunk_rows` makes them shorter.",
        )
    if state[:2] in _PASSING:
        return TransientError(f"{where}: {reason}.")
    return ConfigError(f"{where}: {reason}.")
