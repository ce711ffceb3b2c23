"""A server that took the place of the one that a relay log follows, after `pg_upgrade` (17 and newer).

`pg_upgrade` makes a new cluster: its name (`system_identifier`) is another one. It keeps the numbers of
tables and transactions, and positions of the log go on behind those of the old one. It copies logical slots,
and refuses if one of them has not confirmed everything. So the relay log has all that the old server had, and
the slot of the new one stands before all that is new. `adopt` checks what can be checked of that, and notes
it; the receiver then goes on there.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from penstock.config import PipelineConfig
from penstock.disk.replace import replace_file
from penstock.errors import START_OVER, ConfigError
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.postgresql import slots
from penstock.sources.postgresql.connection import connect, explained
from penstock.sources.postgresql.followed_tables import FollowedTables
from penstock.sources.postgresql.log_position import system_of
from penstock.sources.postgresql.options import options_of, publication_of, slot_of
from penstock.sources.postgresql.replication import Replication
from penstock.sources.postgresql.slot_state import FAILOVER, slot_state

FILE = "adopted.json"


def adopt(config: PipelineConfig) -> dict[str, Any]:
    """See `SourceKind.adopt_server`. The receiver must not be running."""
    source = options_of(config)
    folder = config.relay_log_path
    relay = RelayLog.open(folder) if RelayLog.exists(folder) else None
    if relay is None or not relay.segments():
        raise ConfigError(f"There is no relay log in {folder}: a new pipeline takes any server.")
    (end,) = relay.position_at(relay.end).order
    with closing(Replication(source)) as stream:
        system, followed = stream.identify(), source.at(stream.address)
    known = system_of(relay.source_uuid)
    if system.id == known:
        raise ConfigError(f"{followed.address} is the server that the relay log follows: {known}.")
    with closing(connect(followed)) as database, explained(followed):
        slots.check_publication(database, followed, publication_of(config))
        if database.info.server_version < FAILOVER:
            raise _refused(followed.address, "pg_upgrade keeps no slots before version 17")
        start = _slot(database, slot_of(config), followed.address, end)
        tables = FollowedTables(folder, publication_of(config))
        tables.load()
        same, changed = tables.adopt(database)
        if not same:
            raise _refused(followed.address, "it has none of the tables that the log has, with their numbers")
    note = {"from": known, "server": system.id, "end": end, "start": start}
    replace_file(folder / FILE, json.dumps(note).encode(), durable=True)
    return {
        "server": system.id, "former_server": known, "same": same, "changed": changed,
        "position": str(lsn_position(start)), "received": str(lsn_position(end)),
    }  # fmt: skip


def start_of(folder: Path, relay: RelayLog, server: str | None = None) -> int | None:
    """Where the log of an adopted server goes on from the end of the relay log. None: there is none, or it is
    another one."""
    (end,) = relay.position_at(relay.end).order
    wanted = {"from": system_of(relay.source_uuid), "end": end} | ({"server": server} if server else {})
    try:
        note = json.loads((folder / FILE).read_text())
        return int(note["start"]) if all(note[name] == value for name, value in wanted.items()) else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{folder / FILE} is damaged.", hint="Run `penstock adopt-server FILE` again."
        ) from None


def _slot(database: psycopg.Connection[Any], name: str, address: str, end: int) -> int:
    """Where the slot begins."""
    known = slot_state(database, name)
    if known is None:
        raise _refused(address, f"it has no replication slot {name}: pg_upgrade has not copied one")
    slots.check_kind(known, database.info.dbname)
    if known.is_lost or known.confirmed is None:
        raise _refused(address, f"its replication slot {name} is invalid: {known.why_lost()}")
    if known.pid is not None:
        raise ConfigError(
            f"The replication slot {name} is in use.", hint="Stop the pipeline first, with its receiver."
        )
    if known.confirmed < end:
        raise _refused(
            address,
            f"its slot begins at {lsn_position(known.confirmed)}, and the relay log has the former server's "
            f"log up to {lsn_position(end)}",
        )
    return known.confirmed


def _refused(address: str, why: str) -> ConfigError:
    return ConfigError(f"{address} does not go on from the relay log: {why}.", hint=f"To go on, {START_OVER}")
