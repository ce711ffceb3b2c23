"""Is a server of `snapshot.hosts` fit to read chunks from, while the log comes from the source?

It must replicate the same history: whatever it has executed, the source has, too, but for transactions of its
own (*errant* ones, made on it while it was a replica: they never come to our log, and what they changed would
be in the chunks). Its own ones are told by its `server_uuid`; those that the source has are from a time when
it was itself the source. A replica may be ahead of the source for a moment (the stream sends a transaction
before the source has added it to `gtid_executed`; two replicas of one source): that is waited for.

It must not leave out what we capture: filters for replication make transactions whose GTID is executed and
whose rows are not there. And the source must not replicate from it: then what is made on it does come to our
log, and is in chunks before that is known (`replica_watermark.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock._core import GtidSet
from penstock.config import SourceConfig
from penstock.model.schema import TableId
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.snapshot.server_load import Onlooker
from penstock.sources.table_filter import TableFilter

AHEAD_SECONDS = 2
"""How long a source is waited for that lacks what the replica has: less than an onlooker waits."""
BEHIND_BYTES_MAX = 256 * 1024**2
"""Log that the replica has not executed: chunks read from it have to be corrected by so much. Half of what
a placement looks through."""

_ONLY = ("Replicate_Do_DB", "Replicate_Do_Table", "Replicate_Wild_Do_Table", "Replicate_Rewrite_DB")
_IGNORED = ("Replicate_Ignore_DB", "Replicate_Ignore_Table", "Replicate_Wild_Ignore_Table")


@dataclass(frozen=True)
class ReplicaOf:
    """What taking marks at a replica needs. `source_uuid`: the server whose log is followed. `own`: those
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
    """Rows of SHOW REPLICA STATUS."""


@dataclass(frozen=True)
class SourceFacts:
    uuid: str
    executed: GtidSet
    replicates_from: frozenset[str]


@dataclass(frozen=True)
class Fit:
    """`replica_of` is None for the followed server itself."""

    replica_of: ReplicaOf | None


def of_server(gtids: GtidSet, uuid: str) -> GtidSet:
    """Those that this server gave out."""
    wanted = uuid.lower() + ":"
    return GtidSet(
        ",".join(part for part in str(gtids).split(",") if part.strip().lower().startswith(wanted))
    )


def errant(replica: ReplicaFacts, source: SourceFacts) -> GtidSet:
    """Transactions made on the replica that the source has never had."""
    return of_server(replica.executed, replica.uuid).difference(source.executed)


def decide(
    replica: ReplicaFacts, source: SourceFacts, captured: TableFilter, *, behind_bytes: int = 0
) -> Fit | str:
    """Fit, or why not. Pure."""
    if replica.uuid == source.uuid:
        return Fit(None)
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
    if behind_bytes > BEHIND_BYTES_MAX:
        return f"it has not executed the last {behind_bytes // 1024**2} MiB of the log"
    return Fit(ReplicaOf(source.uuid, str(of_server(source.executed, replica.uuid))))


def judge(
    onlooker: Onlooker,
    config: SourceConfig,
    source: SourceConfig,
    captured: TableFilter,
    *,
    behind: Callable[[str], int],
) -> Fit | str:
    """Asks both servers. Raises `PenstockError` when one does not answer."""
    replica = look_at_replica(onlooker, config)
    facts = look_at_source(onlooker, source, replica)
    return decide(replica, facts, captured, behind_bytes=behind(str(replica.executed)))


def look_at_replica(onlooker: Onlooker, config: SourceConfig) -> ReplicaFacts:
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


def look_at_source(onlooker: Onlooker, source: SourceConfig, replica: ReplicaFacts) -> SourceFacts:
    """The source, once it has executed what the replica had, or has not within `AHEAD_SECONDS`."""
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
    """A filter that may leave out rows of captured tables; empty: there is none. Services filter tables of
    their own (`mysql.…`), which does no harm."""
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
    """The tables that `database.table` may mean, as the server joins them: either name may have dots."""
    dots = [place for place, character in enumerate(entry) if character == "."]
    return [TableId(entry[:dot], entry[dot + 1 :]) for dot in dots] or [TableId(entry, "")]


def _leaves_out(entry: TableId, captured: TableFilter, *, wild: bool) -> bool:
    """An entry without a table is a whole database."""
    if wild and set("%_") & set(entry.database.replace("\\_", "").replace("\\%", "")):
        return True
    whole = wild or not entry.table
    return captured.has_database(entry.database) if whole else entry in captured
