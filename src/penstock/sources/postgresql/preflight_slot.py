"""Checks the replication slot: how long the server keeps its log for it, and whether standbys have copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from penstock.errors import START_OVER, PenstockError
from penstock.relaylog.reader import RelayLog
from penstock.sources.postgresql.connection import connect
from penstock.sources.postgresql.preflight_server import Server
from penstock.sources.postgresql.slot_state import FAILOVER, SlotState, kept_text, slot_state
from penstock.sources.preflight import PURGED, Finding

_KEPT_MIN_MB = 10_240
"""With a smaller limit of the log that slots keep, a short stop can cost a full snapshot."""
_STANDBY = {"sync_replication_slots": "on", "hot_standby_feedback": "on", "wal_level": "logical"}
"""Settings of a standby that copies slots."""
_SYSTEM = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()"


def slot(server: Server) -> Iterator[Finding]:
    known, folder = slot_state(server.connection, server.slot), server.config.relay_log_path
    begun = RelayLog.exists(folder) and bool(RelayLog.open(folder).segments())
    if begun and (known is None or known.is_lost):
        why = "gone" if known is None else f"lost: {known.why_lost()}"
        yield Finding(
            "error", PURGED, server.slot,
            f"The server keeps its log no more for the slot {server.slot}, which is {why}. To go on, "
            f"{START_OVER}",
        )  # fmt: skip
    if known is None and not begun:
        row = server.row(
            "SELECT pg_catalog.current_setting('max_replication_slots')::int - count(*) "
            "FROM pg_catalog.pg_replication_slots"
        )
        if row is not None and row[0] <= 0:
            yield Finding(
                "error", "slots", server.name,
                "All replication slots are in use. The new number takes effect with a restart.",
                "ALTER SYSTEM SET max_replication_slots = …;",
            )  # fmt: skip
    if known is not None and known.fields["two_phase"]:
        yield Finding(
            "error", "slot", server.slot,
            "The slot was made with two_phase: the server sends prepared transactions by it before they are "
            "committed. Drop it, and the receiver makes one.",
            f"SELECT pg_drop_replication_slot('{server.slot}');",
        )  # fmt: skip
    elif known is not None and not known.is_lost:
        yield _kept_now(known)
    yield from _kept(server)
    yield from _idle(server)


def _kept_now(known: SlotState) -> Finding:
    safe, kept = known.safe_bytes, known.kept_bytes or 0
    used_up = known.fields["wal_status"] == "unreserved" or (safe is not None and safe < kept)
    return Finding(
        "warning" if used_up else "ok", "slot", str(known.fields["slot_name"]),
        f"The slot is {known.fields['wal_status']}: {kept_text(kept, safe)}."
        + (" Start the receiver, or raise max_slot_wal_keep_size." if used_up else ""),
    )  # fmt: skip


def _kept(server: Server) -> Iterator[Finding]:
    row = server.row("SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size'")
    limit = -1 if row is None else int(row[0])
    if limit < 0:
        yield Finding(
            "warning", "retention", server.name,
            "If the receiver is stopped for long, the server keeps its log until its disk is full. A limit "
            "ends that: beyond it the slot is lost, and tables are read again.",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '100GB'; SELECT pg_reload_conf();",
        )  # fmt: skip
    elif limit < _KEPT_MIN_MB:
        yield Finding(
            "warning", "retention", server.name,
            f"The server keeps at most {limit} MB of its log for a stopped receiver. Beyond that the slot is "
            "lost, and all tables are read again.",
            f"ALTER SYSTEM SET max_slot_wal_keep_size = '{_KEPT_MIN_MB // 1024}GB'; SELECT pg_reload_conf();",
        )  # fmt: skip


def _idle(server: Server) -> Iterator[Finding]:
    """Version 18 and newer."""
    row = server.row(
        "SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'idle_replication_slot_timeout'"
    )
    if row is not None and row[0] > 0:
        yield Finding(
            "warning", "idle_timeout", server.name,
            f"If the receiver is stopped for longer than {server.setting('idle_replication_slot_timeout')} "
            "(idle_replication_slot_timeout), the slot is lost, and all tables are read again.",
            "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
        )  # fmt: skip


def failover(server: Server) -> Iterator[Finding]:
    """Whether the pipeline goes on when a standby becomes the primary."""
    others = [one for one in server.options.addresses if one != server.name]
    standbys = [
        name
        for (name,) in server.connection.execute(
            "SELECT slot_name FROM pg_catalog.pg_replication_slots WHERE slot_type = 'physical' ORDER BY 1"
        )
    ]
    if not (others or standbys):
        return
    if server.connection.info.server_version < FAILOVER:
        yield Finding(
            "warning", "failover", server.name,
            "Before version 17, standbys have no copies of replication slots. After a failover the pipeline "
            "has to start over: all tables are read again.",
        )  # fmt: skip
        return
    known = slot_state(server.connection, server.slot)
    if known is not None and not known.is_copied:
        yield Finding(
            "warning", "failover", server.slot,
            "The slot is not copied to standbys. Stop the pipeline, and run the command over a replication "
            f"connection (psql 'dbname={server.options.database} replication=database').",
            f"ALTER_REPLICATION_SLOT {server.slot} (FAILOVER true);",
        )  # fmt: skip
    if not server.setting("synchronized_standby_slots"):
        names = ", ".join(standbys) or "…"
        yield Finding(
            "warning", "failover", server.name,
            "The receiver may get transactions before a standby has them. If the primary is lost then, the "
            "new one lacks what targets have, and the pipeline has to start over. Name the slots of the "
            "standbys that may become the primary.",
            f"ALTER SYSTEM SET synchronized_standby_slots = '{names}'; SELECT pg_reload_conf();",
        )  # fmt: skip
    for address in others:
        yield from _standby(server, address, known)


def _standby(server: Server, address: str, known: SlotState | None) -> Iterator[Finding]:
    """Checks one of the other servers. `known`: the slot at the primary."""
    options = server.options.at(address)
    try:
        connection = connect(options)
    except PenstockError as error:
        yield Finding("warning", "failover", address, f"{error.message} {error.hint}".strip())
        return
    with closing(connection):
        standby = Server(server.config, options, connection)
        if standby.row(_SYSTEM) != server.row(_SYSTEM):
            yield Finding(
                "error",
                "failover",
                address,
                f"{address} is no standby of {server.name}: its data is another.",
            )
        elif standby.row("SELECT pg_catalog.pg_is_in_recovery()") == (False,):
            yield Finding(
                "error", "failover", address,
                f"{address} and {server.name} are both primaries of the same data. Stop the former one.",
            )  # fmt: skip
        else:
            yield from _copies(standby, address, known)


def _copies(standby: Server, address: str, known: SlotState | None) -> Iterator[Finding]:
    wrong = {name: value for name, value in _STANDBY.items() if standby.setting(name) != value}
    if not standby.setting("primary_slot_name"):
        wrong["primary_slot_name"] = "…"
    if wrong:
        yield Finding(
            "warning", "failover", address,
            f"The standby {address} does not copy replication slots. Its `primary_conninfo` needs a "
            "`dbname`, too, and wal_level takes effect with a restart.",
            " ".join(f"ALTER SYSTEM SET {name} = '{value}';" for name, value in wrong.items())
            + " SELECT pg_reload_conf();",
        )  # fmt: skip
    copy = None if known is None else slot_state(standby.connection, standby.slot)
    if copy is not None and copy.is_ready_copy:
        yield Finding("ok", "failover", address, f"The standby {address} has a copy of the slot.")
    elif known is not None and not wrong:
        yield Finding(
            "warning", "failover", address,
            f"The standby {address} has no copy of the slot {standby.slot} that a promotion would keep. Its "
            "log says what it waits for.",
        )  # fmt: skip
