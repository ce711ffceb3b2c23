"""The replication slot of a relay log: it is created with the log, and says whether the server still keeps
what comes behind it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

from penstock.config import PipelineConfig
from penstock.errors import START_OVER, ConfigError, LogDiverged, LogPurged, SourceUnreachable
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.postgresql.connection import connect, explained
from penstock.sources.postgresql.followed_tables import FollowedTables
from penstock.sources.postgresql.log_position import lsn_of, moment, seen_by
from penstock.sources.postgresql.options import PostgreSqlOptions, options_of, slot_of
from penstock.sources.postgresql.replication import Replication, System

log = logging.getLogger(__name__)

_FAILOVER = 170_000
"""The version from which on slots are copied to standbys."""
_WAITING = """
SELECT pid, usename, extract(epoch FROM now() - xact_start)::int FROM pg_catalog.pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 3
"""
_WAITING_S = 10.0
"""How often it is said what the creation of a slot waits for."""
_SLOT = """
SELECT plugin, database, confirmed_flush_lsn::text, wal_status, active_pid
FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""


def check_publication(database: psycopg.Connection[Any], source: PostgreSqlOptions, name: str) -> None:
    query = "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s"
    if database.execute(query, (name,)).fetchone() is None:
        raise ConfigError(
            f"The database {source.database} has no publication {name}.",
            hint=f'Run there: CREATE PUBLICATION "{name}" FOR ALL TABLES WITH '
            "(publish_via_partition_root = true); (or name the tables that are followed). "
            "`source.publication` names another one.",
        )


def begin(
    stream: Replication,
    database: psycopg.Connection[Any],
    source: PostgreSqlOptions,
    slot: str,
    tables: FollowedTables,
    *,
    stopping: Callable[[], bool],
) -> tuple[int, str]:
    """Makes the slot of a new log, and notes what tables are like there. Returns where the log begins, and
    the transactions before it.

    The server waits for the transactions that are running, and exports a snapshot of exactly what was
    committed before the slot's start. If there is such a slot already, the log begins where that one is, and
    everything that is visible now counts as executed: that is at least what was executed there.
    """
    known = database.execute(_SLOT, (slot,)).fetchone()
    if known is not None and known[3] == "lost":  # it is of no use to anybody
        database.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (slot,))
        known = None
    if known is None:
        is_primary = database.execute("SELECT NOT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)
        failover = database.info.server_version >= _FAILOVER and is_primary
        created = stream.create_slot(slot, failover=failover, waiting=_Waiting(source, slot, stopping))
        if created is not None:
            with database.transaction():
                database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                snapshot = created.snapshot.replace("'", "''")
                database.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
                row = database.execute("SELECT pg_current_snapshot()::text").fetchone()
                assert row is not None
                tables.begin(database)
            return created.start, str(seen_by(row[0]))
        known = database.execute(_SLOT, (slot,)).fetchone()
    tables.begin(database)
    if known is None or known[2] is None:
        raise SourceUnreachable(f"The replication slot {slot} was removed while it was looked at.")
    _check(slot, known, source.database)
    return lsn_of(known[2]), str(moment(database).seen)


def check_kept(database: psycopg.Connection[Any], slot: str, end: int) -> None:
    """Raises `LogPurged` unless the server keeps everything behind `end` for the slot."""
    known = database.execute(_SLOT, (slot,)).fetchone()
    if known is not None and known[2] is not None and known[3] != "lost" and lsn_of(known[2]) <= end:
        return
    if known is None:
        why = "is gone"
    elif known[2] is None or known[3] == "lost":
        why = "is invalid: the server needed the space (`max_slot_wal_keep_size`)"
    else:
        why = f"was advanced to {known[2]}"
    raise LogPurged(
        f"The server's log behind {lsn_position(end)} is not kept for us any more: the replication slot "
        f"{slot} {why}.",
        hint=f"To go on, {START_OVER}",
    )


def drop(config: PipelineConfig) -> str | None:
    """See `SourceKind.drop_slot`."""
    options, name = options_of(config), slot_of(config)
    with closing(connect(options)) as database, explained(options):
        known = database.execute(_SLOT, (name,)).fetchone()
        if known is None:
            return None
        _check(name, known, options.database)
        if known[4] is not None:
            raise ConfigError(
                f"The replication slot {name} is in use.", hint="Stop the pipeline first, with its receiver."
            )
        database.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (name,))
    return name


def check_timeline(stream: Replication, system: System, known: int, end: int) -> None:
    """Raises `LogDiverged` if the server does not have all that the relay log has: a standby became the
    primary before it had received that. `known`: the timeline of the relay log's end."""
    reached = system.flushed
    if system.timeline != known:
        reached = min(reached, stream.switched_at(known, system.timeline) or 0)
    if end > reached:
        raise LogDiverged(
            f"The relay log has the server's log up to {lsn_position(end)}. The server that answers has "
            f"that only up to {lsn_position(reached)} (timeline {system.timeline}): it was restored, or "
            "became the primary without the rest.",
            hint="Targets have changes that the source has lost. `synchronized_standby_slots` at the primary "
            f"prevents this. To go on, {START_OVER}",
            server_uuid=system.id,
        )


def _check(slot: str, known: tuple[Any, ...], database: str) -> None:
    plugin, of_database = known[:2]
    if plugin != "pgoutput" or of_database != database:
        raise ConfigError(
            f"There is a replication slot {slot} of another kind: of {plugin}, in {of_database}.",
            hint="`source.slot` names another one.",
        )


class _Waiting:
    """Says which transactions the creation of a slot waits for."""

    def __init__(self, source: PostgreSqlOptions, slot: str, stopping: Callable[[], bool]) -> None:
        self._source, self._slot, self._stopping = source, slot, stopping
        self._said = time.monotonic()

    def __call__(self) -> None:
        if self._stopping():
            raise SourceUnreachable(f"The receiver was stopped while the slot {self._slot} was created.")
        if time.monotonic() - self._said < _WAITING_S:
            return
        self._said = time.monotonic()
        with connect(self._source) as database:
            rows = database.execute(_WAITING).fetchall()
        shown = "; ".join(f"{user} (process {pid}, for {seconds} s)" for pid, user, seconds in rows)
        log.warning(
            "the replication slot %s waits for transactions that began before it: %s",
            self._slot, shown or "no session is seen",
        )  # fmt: skip
