"""Decides which servers chunks are read from: the primary, or standbys of it (`snapshot.hosts`).

A standby is fit if it replays the log of the server that is followed: of the same cluster, on the same
timeline. Each chunk makes sure of that again (`views.py`). And it must not lag so far that its chunks could
not be corrected by what the log has had since. A server that is no standby may be a copy of the primary that
went its own way, so only an address that `source` names is taken for the primary.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from penstock.config import SnapshotConfig
from penstock.model.schema import TypeOptions
from penstock.sources.chunks import ViewChoice
from penstock.sources.host_selection import HostSelection
from penstock.sources.postgresql.chunk_reader import PostgreSqlChunkReader, refuse_view
from penstock.sources.postgresql.connection import connect, explained
from penstock.sources.postgresql.log_position import lsn_of, server_name, system_of
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.sources.postgresql.replication import Replication

LAG_SHARE_MAX = 0.5
"""The log that a standby may lack, as a share of `snapshot.window_bytes_max`. Chunks from it must be
corrected by that much log, and by what comes until they are placed."""
_SETTINGS = """
SELECT pg_catalog.pg_is_in_recovery(), coalesce(pg_catalog.pg_last_wal_replay_lsn()::text, '0/0'),
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_is_wal_replay_paused() ELSE false END,
       (SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'max_standby_streaming_delay'),
       pg_catalog.current_setting('hot_standby_feedback') = 'on'
"""


@dataclass(frozen=True)
class ServerFacts:
    """What a server says of itself. `end`: of its log; on a standby, of what it has replayed.
    `conflict_ms`: how long replay waits for reads; -1: without a limit. `feedback`: the primary keeps old
    versions of rows for its reads."""

    name: str
    is_standby: bool
    end: int
    paused: bool = False
    conflict_ms: int = -1
    feedback: bool = False


def look_at(options: PostgreSqlOptions) -> ServerFacts:
    """Raises `PenstockError` if the server does not answer."""
    replication = Replication(options)
    try:
        with closing(connect(options)) as connection, explained(options):
            row = connection.execute(_SETTINGS).fetchone()
            assert row is not None
        system = replication.identify()
    finally:
        replication.close()
    is_standby, replayed, paused, conflict_ms, feedback = row
    end = lsn_of(replayed) if is_standby else system.flushed
    name = server_name(system.id, system.timeline)
    return ServerFacts(name, is_standby, end, paused, conflict_ms, feedback)


def why_unfit(
    host: ServerFacts, primary: ServerFacts, window_bytes_max: int, *, of_source: bool = False
) -> str:
    """Why chunks cannot be read from a host; empty if they can. Pure. `of_source`: `source` names it, too."""
    if primary.is_standby:
        return "the server that is followed is a standby itself"
    if system_of(host.name) != system_of(primary.name):
        return f"it is a server of another cluster ({host.name}, not {primary.name})"
    if not (host.is_standby or of_source):
        return "it is no standby; `snapshot.hosts` names the primary as `source` does"
    if host.name != primary.name:
        return f"it has the log of another timeline ({host.name}, not {primary.name})"
    if not host.is_standby:
        return ""
    lag = primary.end - host.end
    if lag > window_bytes_max * LAG_SHARE_MAX:
        why = ", and its replay is paused" if host.paused else ""
        return f"it has not replayed the last {lag // 1024**2} MiB of the log{why}"
    return ""


@dataclass(frozen=True)
class PostgreSqlHost:
    """`sources.chunks.Host`. `primary`: the server whose log is followed. None: it is this one."""

    options: PostgreSqlOptions
    publication: str
    primary: PostgreSqlOptions | None = None

    @property
    def address(self) -> str:
        return self.options.address

    @property
    def is_replica(self) -> bool:
        return self.primary is not None

    def open_reader(self, *, types: TypeOptions, view: ViewChoice | None = None) -> PostgreSqlChunkReader:
        refuse_view(view)
        return PostgreSqlChunkReader(self.options, self.publication, types, primary=self.primary)


class PostgreSqlHosts(HostSelection[PostgreSqlHost]):
    """`sources.hosts.SnapshotHosts`."""

    def __init__(self, config: SnapshotConfig, source: PostgreSqlOptions, publication: str) -> None:
        super().__init__(config)
        self._source, self._publication = source, publication

    def followed(self) -> PostgreSqlHost:
        return PostgreSqlHost(self._source, self._publication)

    def _judge(self, followed: PostgreSqlHost, address: str) -> PostgreSqlHost | str:
        options, own = self._source.at(address), self._source.addresses
        if own == [address]:
            return followed
        host, primary = look_at(options), look_at(self._source)
        why = why_unfit(host, primary, self._config.window_bytes_max, of_source=address in own)
        return why or PostgreSqlHost(options, self._publication, self._source if host.is_standby else None)
