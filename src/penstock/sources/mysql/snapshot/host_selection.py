"""Decides which servers of MySQL chunks may be read from now: the limits of `snapshot.load`, and which of
`snapshot.hosts` are fit (`replicas.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.config import SnapshotConfig
from penstock.errors import PenstockError
from penstock.model.schema import TypeOptions
from penstock.sources.chunks import ViewChoice
from penstock.sources.host_selection import HostSelection
from penstock.sources.hosts import UsableHosts
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot import replicas, server_load
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.sources.mysql.snapshot.replicas import ReplicaOf
from penstock.sources.mysql.snapshot.server_load import WatchedServers, address_of
from penstock.sources.table_filter import TableFilter


@dataclass(frozen=True)
class MySqlHost:
    """`sources.chunks.Host`. `replica_of`: how watermarks are taken on this replica. None: it is the server
    whose log is followed."""

    source: MySqlOptions
    replica_of: ReplicaOf | None = None

    @property
    def address(self) -> str:
        return address_of(self.source)

    @property
    def is_replica(self) -> bool:
        return self.replica_of is not None

    def open_reader(self, *, types: TypeOptions, view: ViewChoice | None = None) -> MySqlChunkReader:
        connection = connect(self.source, role="chunk")
        try:
            return MySqlChunkReader(
                connection,
                types=types,
                watermark_table=self.source.watermark_table,
                replica_of=self.replica_of,
                view=view,
            )
        except BaseException:
            connection._force_close()
            raise


class MySqlHosts(HostSelection[MySqlHost]):
    """`source`: the server that is followed now. `behind`: bytes of the relay log outside of a GTID set."""

    def __init__(
        self,
        config: SnapshotConfig,
        source: Callable[[], MySqlOptions],
        captured: TableFilter,
        behind: Callable[[str], int],
    ) -> None:
        super().__init__(config)
        self._source = source
        self._captured = captured
        self._behind = behind
        self._onlooker = WatchedServers()

    @property
    def is_needed(self) -> bool:
        limits = self._config.load
        return bool(limits.threads_running_max or limits.replicas or self._config.hosts)

    def followed(self) -> MySqlHost:
        return MySqlHost(self._source())

    def close(self) -> None:
        self._onlooker.close()
        super().close()

    def _paused(self, followed: MySqlHost) -> UsableHosts | None:
        limits = self._config.load
        for address in limits.replicas:
            if reason := self._lag(followed.source, address, limits.replica_lag_max or 0):
                return UsableHosts((), reason, "replica_lag")
        return None

    def _lag(self, source: MySqlOptions, address: str, lag_max_ms: int) -> str:
        try:
            return server_load.too_far(
                address, self._onlooker.channels(server_load.at(source, address)), lag_max_ms
            )
        except PenstockError as error:
            return f"the lag of {address} is unknown: {error.message}"

    def _busy(self, host: MySqlHost) -> str:
        most = self._config.load.threads_running_max
        if most is None:
            return ""
        try:
            running = self._onlooker.threads_running(host.source)
        except PenstockError as error:
            return f"the load of {host.address} is unknown: {error.message}"
        return server_load.too_busy(host.address, running, most)

    def _judge(self, followed: MySqlHost, address: str) -> MySqlHost | str:
        config = server_load.at(followed.source, address)
        verdict = replicas.judge(
            self._onlooker,
            config,
            followed.source,
            self._captured,
            behind=self._behind,
            window_bytes_max=self._config.window_bytes_max,
        )
        return verdict if isinstance(verdict, str) else MySqlHost(config, verdict.replica_of)
