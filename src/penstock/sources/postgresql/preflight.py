"""Checks whether the source can be followed. Each requirement is one small function that returns findings.

Nothing is changed at the source. What has to be done there is printed as SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg

from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.model.history import History
from penstock.model.schema import TableId
from penstock.relaylog.reader import RelayLog
from penstock.sources.postgresql import adoption, slots
from penstock.sources.postgresql.catalog import PgTable
from penstock.sources.postgresql.connection import connect, explain
from penstock.sources.postgresql.options import options_of, publication_of, slot_of
from penstock.sources.postgresql.preflight_hosts import ensure_hosts
from penstock.sources.postgresql.preflight_server import Server
from penstock.sources.postgresql.preflight_slot import failover, slot
from penstock.sources.postgresql.session import why_not_followed
from penstock.sources.postgresql.sql import quote, quoted
from penstock.sources.preflight import Finding

OLDEST = 140_000
"""The oldest version that is followed."""


class PostgreSqlPreflight:
    """`sources.preflight.Preflight`."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config

    def check(self, config: PipelineConfig) -> list[Finding]:
        options = options_of(config)
        name = options.address
        try:
            connection = connect(options)
        except PenstockError as error:
            return [Finding("error", "connection", name, f"{error.message} {error.hint}".strip())]
        findings = list[Finding]()
        with closing(connection):
            server = Server(config, options, connection)
            for one in CHECKS:
                try:
                    findings += one(server)
                except psycopg.Error as error:
                    why = explain(error, options).message
                    findings.append(Finding("error", one.__name__, name, f"This could not be checked: {why}"))
            try:
                findings += ensure_hosts(config)
            except PenstockError as error:
                findings.append(Finding("warning", "snapshot_hosts", name, error.message))
        return findings

    def check_start(self) -> None:
        options, slot = options_of(self._config), slot_of(self._config)
        with closing(connect(options)) as connection:
            slots.check_publication(connection, options, publication_of(self._config))
            if RelayLog.exists(self._config.relay_log_path):
                relay = RelayLog.open(self._config.relay_log_path)
                if relay.segments():
                    (end,) = relay.position_at(relay.end).order
                    adopted = adoption.start_of(self._config.relay_log_path, relay)
                    slots.check_kept(connection, slot, adopted or end)


def connection(server: Server) -> Iterator[Finding]:
    version = server.connection.info.server_version
    shown = server.setting("server_version")
    if version < OLDEST:
        yield Finding("error", "connection", server.name, f"PostgreSQL {shown} is too old: 14 or newer.")
    yield Finding("ok", "connection", server.name, f"PostgreSQL {shown}, as {server.options.user}.")
    row = server.row("SELECT pg_catalog.pg_is_in_recovery()")
    if row == (True,):
        yield Finding(
            "error", "primary", server.name,
            "This server is a standby. Its log can be followed from the primary only.",
        )  # fmt: skip


def wal_level(server: Server) -> Iterator[Finding]:
    level = server.setting("wal_level")
    if level != "logical":
        yield Finding(
            "error", "wal_level", server.name,
            f"The server's log does not say what changes in rows, because wal_level is {level}. Another "
            "level takes effect with a restart.",
            "ALTER SYSTEM SET wal_level = logical;",
        )  # fmt: skip


def role(server: Server) -> Iterator[Finding]:
    row = server.row(
        "SELECT r.rolreplication OR r.rolsuper OR EXISTS (SELECT 1 FROM pg_catalog.pg_roles o "
        "WHERE o.rolname = 'rds_replication' AND pg_catalog.pg_has_role(r.oid, o.oid, 'MEMBER')) "
        "FROM pg_catalog.pg_roles r WHERE r.rolname = current_user"
    )
    if row is None or not row[0]:
        user = quote(server.options.user)
        yield Finding(
            "error", "replication", server.options.user,
            f"The role {server.options.user} may not read the server's log.",
            f"ALTER ROLE {user} REPLICATION;",
        )  # fmt: skip


def publication(server: Server) -> Iterator[Finding]:
    query = (
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_catalog.pg_publication "
        "WHERE pubname = %s"
    )
    row, name = server.row(query, server.publication), quote(server.publication)
    if row is None:
        chosen = [one for one in server.captured if one.is_logged]
        without = [one for one in chosen if _refuses_changes(one)]
        for one in without:
            yield _unchangeable(one, "would refuse")
        named = ", ".join(quoted(one.table) for one in chosen) or "…"
        yield Finding(
            "error", "publication", server.publication,
            f"The database {server.options.database} has no publication {server.publication}.",
            f"CREATE PUBLICATION {name} FOR TABLE {named} WITH (publish_via_partition_root = true);",
        )  # fmt: skip
    elif not row[0]:
        yield Finding(
            "error", "publication", server.publication,
            f"The publication {server.publication} leaves out some changes of rows.",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate');",
        )  # fmt: skip


def tables(server: Server) -> Iterator[Finding]:
    exists = server.row("SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s", server.publication)
    keeps_changes = _keeps_changes(server.config)
    for one in server.captured:
        why = why_not_followed(one, server.publication)
        if why is not None and (exists is not None or not one.is_logged):
            yield Finding("warning", "tables", str(one.table), why[0], why[1] + ";", parks=True)
        readable = server.row("SELECT pg_catalog.has_table_privilege(%s::oid, 'SELECT')", one.number)
        if readable == (False,):
            grant = f"GRANT SELECT ON {quoted(one.table)} TO {quote(server.options.user)};"
            yield Finding(
                "error", "privileges", str(one.table),
                f"The role {server.options.user} may not read {one.table}.", grant,
            )  # fmt: skip
        if one.published and _refuses_changes(one):
            yield _unchangeable(one, "refuses")
        elif one.identity != "f" and keeps_changes(one.table):
            yield Finding(
                "warning", "identity", str(one.table),
                f"The target of {one.table} keeps changes, and the server's log has only the key of a row "
                "before its change. A DELETE, or an UPDATE that leaves a long value (TOAST) alone, parks the "
                "table.",
                f"ALTER TABLE {quoted(one.table)} REPLICA IDENTITY FULL;",
            )  # fmt: skip
    if not server.captured:
        patterns = ", ".join(server.config.tables.include)
        yield Finding("warning", "tables", patterns, f"No table matches {patterns}. The pipeline waits.")


def _keeps_changes(config: PipelineConfig) -> Callable[[TableId], bool]:
    """Says of which tables the target has all changes."""
    kind = config.sink_kind
    if kind.keeps_tables:
        return History(config.history).__contains__
    return lambda _: kind.durable and not kind.takes_messages


def _refuses_changes(table: PgTable) -> bool:
    """Whether the server refuses UPDATE and DELETE once the table is published."""
    return table.identity == "n" or (table.identity in "di" and not table.key)


def _unchangeable(table: PgTable, verb: str) -> Finding:
    name = quoted(table.table)
    return Finding(
        "warning", "identity", str(table.table),
        f"In a publication, the server {verb} UPDATE and DELETE of {table.table}, because its replica "
        "identity has no key.",
        f"ALTER TABLE {name} ADD PRIMARY KEY (…); or ALTER TABLE {name} REPLICA IDENTITY FULL;",
    )  # fmt: skip


CHECKS: tuple[Callable[[Server], Iterator[Finding]], ...] = (
    connection, wal_level, role, publication, slot, failover, tables,
)  # fmt: skip
