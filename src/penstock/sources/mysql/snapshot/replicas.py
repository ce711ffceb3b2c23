"""Decides whether a server of `snapshot.hosts` is fit to read chunks from, while the log comes from the
source.

It must replicate the same history. The source must have everything that the replica has executed, except the
replica's own transactions (*errant* ones): they were made on it while it was a replica, never come to the
followed log, and their changes would be in the chunks. The replica's own transactions have its `server_uuid`.
Those that the source has are from a time when the replica was the source. A replica may be ahead of the
source for a moment, because the stream sends a transaction before the source adds it to `gtid_executed`. The
check waits for that moment to end.

It must not leave out captured tables. With a replication filter, a transaction's GTID is executed although
its rows are not there. And the source must not replicate from it. Otherwise the replica's own transactions do
come to the followed log, and chunks show them before that is known (`replica_watermark.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock._core import GtidSet
from penstock.model.schema import TableId
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot.server_load import WatchedServers
from penstock.sources.table_filter import TableFilter

AHEAD_SECONDS = 2
"""Seconds that a source may take to execute what the replica has. Less than the time limit of a query."""
BEHIND_SHARE_MAX = 0.5
"""The log that a replica may lack, as a share of `snapshot.window_bytes_max`. Chunks from it must be
corrected by that much log, and by what comes until they are placed."""

_ONLY = ("Replicate_Do_DB", "Replicate_Do_Table", "Replicate_Wild_Do_Table", "Replicate_Rewrite_DB")
_IGNORED = ("Replicate_Ignore_DB", "Replicate_Ignore_Table", "Replicate_Wild_Ignore_Table")


@dataclass(frozen=True)
class ReplicaOf:
    """What is needed to take watermarks on a replica. `source_uuid`: the server whose log is followed. `own`:
    transactions of the replica's own `server_uuid` that the source has."""

    source_uuid: str
    own: str


@dataclass(frozen=True)
class ReplicaFacts:
    uuid: str
    dialect: Dialect
    has_gtids: bool
    executed: GtidSet
    read_only: bool
    channels: tuple[dict[str, Any], ...]
    """The rows of SHOW REPLICA STATUS."""


@dataclass(frozen=True)
class SourceFacts:
    uuid: str
    executed: GtidSet
    replicates_from: frozenset[str]


@dataclass(frozen=True)
class Usable:
    """The server is fit. `replica_of` is None for the followed server itself."""

    replica_of: ReplicaOf | None


def of_server(gtids: GtidSet, uuid: str) -> GtidSet:
    """The transactions in a set that this server has numbered."""
    wanted = uuid.lower() + ":"
    return GtidSet(
        ",".join(part for part in str(gtids).split(",") if part.strip().lower().startswith(wanted))
    )


def errant(replica: ReplicaFacts, source: SourceFacts) -> GtidSet:
    """Transactions that were made on the replica and that the source has never had."""
    return of_server(replica.executed, replica.uuid).difference(source.executed)


def decide(
    replica: ReplicaFacts,
    source: SourceFacts,
    captured: TableFilter,
    *,
    behind_bytes: int = 0,
    window_bytes_max: int = 0,
) -> Usable | str:
    """Decides whether the replica is fit, or why not. Pure. `behind_bytes`: bytes of log that it lacks.
    `window_bytes_max`: the option of the section `snapshot`."""
    if replica.uuid == source.uuid:
        return Usable(None)
    if replica.dialect.mariadb or not replica.has_gtids:
        return "it has no GTIDs of MySQL"
    if not replica.channels:
        return "it replicates from no server"
    if filter_ := _filter(replica.channels, captured):
        return f"it filters what it replicates ({filter_})"
    if replica.uuid in source.replicates_from:
        return "the source replicates from it"
    own = of_server(replica.executed, replica.uuid)
    if lacking := replica.executed.difference(own).difference(source.executed):
        return f"it has transactions that the source lacks ({shown(lacking)})"
    if behind_bytes > window_bytes_max * BEHIND_SHARE_MAX:
        return f"it has not executed the last {behind_bytes // 1024**2} MiB of the log"
    return Usable(ReplicaOf(source.uuid, str(of_server(source.executed, replica.uuid))))


def judge(
    onlooker: WatchedServers,
    config: MySqlOptions,
    source: MySqlOptions,
    captured: TableFilter,
    *,
    behind: Callable[[str], int],
    window_bytes_max: int,
) -> Usable | str:
    """Judges whether chunks can be read from a replica, by queries to both servers. Raises `PenstockError` if
    one does not answer."""
    replica = look_at_replica(onlooker, config)
    facts = look_at_source(onlooker, source, replica)
    return decide(
        replica,
        facts,
        captured,
        behind_bytes=behind(str(replica.executed)),
        window_bytes_max=window_bytes_max,
    )


def look_at_replica(onlooker: WatchedServers, config: MySqlOptions) -> ReplicaFacts:
    dialect = onlooker.dialect(config)
    gtids = "'OFF', ''" if dialect.mariadb else "@@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed"
    # Channels first: what they show as executed is in the set that is asked for next.
    channels = onlooker.ask_named(config, dialect.replica_status)
    [row] = onlooker.ask(config, f"SELECT {dialect.identity}, @@GLOBAL.read_only, {gtids}")
    return ReplicaFacts(
        uuid=str(row[0]),
        dialect=dialect,
        has_gtids=str(row[2]).upper() == "ON",
        executed=GtidSet(str(row[3])),
        read_only=bool(int(row[1])),
        channels=tuple(channels),
    )


def look_at_source(onlooker: WatchedServers, source: MySqlOptions, replica: ReplicaFacts) -> SourceFacts:
    """The facts of the source, after it has executed what the replica has, or after `AHEAD_SECONDS`."""
    dialect = onlooker.dialect(source)
    [(uuid,)] = onlooker.ask(source, f"SELECT {dialect.identity}")
    if dialect.mariadb:
        return SourceFacts(str(uuid), GtidSet(), frozenset())
    if replica.has_gtids and str(uuid) != replica.uuid:
        waited = replica.executed.difference(of_server(replica.executed, replica.uuid))
        onlooker.ask(source, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (str(waited), AHEAD_SECONDS))
    [(executed,)] = onlooker.ask(source, "SELECT @@GLOBAL.gtid_executed")
    rows = onlooker.ask_named(source, dialect.replica_status)
    follows = {str(row.get("Source_UUID") or row.get("Master_UUID") or "") for row in rows}
    return SourceFacts(str(uuid), GtidSet(str(executed)), frozenset(follows - {""}))


def shown(gtids: GtidSet) -> str:
    text = str(gtids)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _filter(channels: tuple[dict[str, Any], ...], captured: TableFilter) -> str:
    """A replication filter that may leave out rows of captured tables; empty if there is none. Cloud services
    filter tables of their own (`mysql.…`), which does no harm."""
    for row in channels:
        for name in _ONLY:
            if row.get(name):
                return f"{name} = {row[name]}"
        for name in _IGNORED:
            for entry in filter(None, map(str.strip, str(row.get(name) or "").split(","))):
                meant = [TableId(entry, "")] if name.endswith("_DB") else _meanings(entry)
                if any(_leaves_out(one, captured, wild="Wild" in name) for one in meant):
                    return f"{name} = {entry}"
    return ""


def _meanings(entry: str) -> list[TableId]:
    """The tables that a name `database.table` may mean. Servers join the two parts, and either may contain
    dots."""
    dots = [place for place, character in enumerate(entry) if character == "."]
    return [TableId(entry[:dot], entry[dot + 1 :]) for dot in dots] or [TableId(entry, "")]


def _leaves_out(entry: TableId, captured: TableFilter, *, wild: bool) -> bool:
    """Whether a filter leaves the table out. An entry without a table means a whole database."""
    if wild and set("%_") & set(entry.database.replace("\\_", "").replace("\\%", "")):
        return True
    whole = wild or not entry.table
    return captured.has_database(entry.database) if whole else entry in captured
