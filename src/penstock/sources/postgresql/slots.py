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
from penstock.sources.postgresql.log_position import moment, seen_by
from penstock.sources.postgresql.options import PostgreSqlOptions, options_of, slot_of
from penstock.sources.postgresql.replication import Replication, System
from penstock.sources.postgresql.slot_state import FAILOVER, SlotState, slot_state

log = logging.getLogger(__name__)

_WAITING = """
SELECT pid, usename, extract(epoch FROM now() - xact_start)::int FROM pg_catalog.pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 3
"""
_WAITING_S = 10.0
"""How often it is said what the creation of a slot waits for."""


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
    known = slot_state(database, slot)
    if known is not None and known.is_lost:  # it is of no use to anybody
        database.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (slot,))
        known = None
    if known is None:
        is_primary = database.execute("SELECT NOT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)
        failover = database.info.server_version >= FAILOVER and is_primary
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
        known = slot_state(database, slot)
    tables.begin(database)
    if known is None or known.confirmed is None:
        raise SourceUnreachable(f"The replication slot {slot} was removed while it was looked at.")
    check_kind(known, source.database)
    return known.confirmed, str(moment(database).seen)


def check_kept(database: psycopg.Connection[Any], slot: str, end: int) -> int:
    """Returns what the slot has confirmed. Raises `LogPurged` unless the server keeps everything behind `end`
    for it."""
    known = slot_state(database, slot)
    if known is not None and not known.is_lost and (known.confirmed or 0) <= end:
        check_kind(known, known.fields["database"])
        return known.confirmed or 0
    if known is None:
        why = "is gone: somebody dropped it, or this server became the primary without a copy of it"
        if database.info.server_version < FAILOVER:
            why += " (standbys have copies from version 17 on)"
    elif known.is_lost:
        why = f"is invalid: {known.why_lost()}"
    else:
        why = f"was advanced to {known.fields['confirmed_flush_lsn']}: somebody else has read by it"
    raise LogPurged(
        f"The server's log behind {lsn_position(end)} is not kept for us any more: the replication slot "
        f"{slot} {why}.",
        hint=f"To go on, {START_OVER}",
    )


def drop(config: PipelineConfig) -> str | None:
    """See `SourceKind.drop_slot`."""
    options, name = options_of(config), slot_of(config)
    with closing(connect(options)) as database, explained(options):
        known = slot_state(database, name)
        if known is None:
            return None
        check_kind(known, options.database)
        if known.pid is not None:
            raise ConfigError(
                f"The replication slot {name} is in use.", hint="Stop the pipeline first, with its receiver."
            )
        database.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (name,))
    return name


def check_continues(stream: Replication, system: System, known: str, end: int) -> None:
    """Raises `LogDiverged` if the server's log does not go on from the end of the relay log: it is another
    server, or a standby that became the primary before it had received all that the relay log has. `known`:
    the log that the relay log is of (`server_name`)."""
    id, _, timeline = known.partition("/")
    if id != system.id:
        raise LogDiverged(
            f"{stream.address} is the server {system.id}, and the relay log follows {id}.",
            hint="Correct `source.host`. After `pg_upgrade` of version 17 or newer, `penstock adopt-server "
            f"FILE` lets the pipeline go on there. Or {START_OVER}",
            server_uuid=system.id,
        )
    reached, before = system.flushed, int(timeline)
    if system.timeline < before:
        raise LogDiverged(
            f"{stream.address} is still on timeline {system.timeline} of the server's log. The relay log "
            f"follows timeline {before}, of the server that became the primary.",
            hint="Stop the former primary, or make it a standby; or correct `source.host`.",
            server_uuid=system.id,
        )
    if system.timeline != before:
        reached = min(reached, stream.switched_at(before, system.timeline) or 0)
    if end > reached:
        raise LogDiverged(
            f"The relay log has the server's log up to {lsn_position(end)}. The server that answers has "
            f"that only up to {lsn_position(reached)} (timeline {system.timeline}): it was restored, or "
            "became the primary without the rest.",
            hint="Targets have changes that the source has lost. `synchronized_standby_slots` at the primary "
            f"prevents this. To go on, {START_OVER}",
            server_uuid=system.id,
        )


def check_kind(slot: SlotState, database: str) -> None:
    """Raises `ConfigError` for a slot that no receiver has made."""
    name, plugin, of_database = (slot.fields[field] for field in ("slot_name", "plugin", "database"))
    if plugin != "pgoutput" or of_database != database:
        raise ConfigError(
            f"There is a replication slot {name} of another kind: of {plugin}, in {of_database}.",
            hint="`source.slot` names another one.",
        )
    if slot.fields["two_phase"]:
        raise ConfigError(
            f"The replication slot {name} was made with `two_phase`: the server sends prepared transactions "
            "by it before they are committed.",
            hint="Drop it, and the receiver makes one; or `source.slot` names another one.",
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
