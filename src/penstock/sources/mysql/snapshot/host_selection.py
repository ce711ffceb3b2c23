"""Decides which servers chunks may be read from now.

`look` is called about once a second while chunks wait. It checks the limits of `snapshot.load`, and every few
seconds which of `snapshot.hosts` are fit (`replicas.py`). It never raises: an error is a reason to wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.config import SnapshotConfig
from penstock.errors import PenstockError
from penstock.model.schema import TypeOptions
from penstock.sources.chunks import ViewChoice
from penstock.sources.hosts import UsableHosts
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot import replicas, server_load
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.sources.mysql.snapshot.replicas import ReplicaOf
from penstock.sources.mysql.snapshot.server_load import WatchedServers, address_of
from penstock.sources.table_filter import TableFilter

log = logging.getLogger(__name__)

JUDGED_EVERY_SECONDS = 5.0
"""How often hosts are judged. It costs several queries on each, and what makes a host unfit seldom
changes."""


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


class HostSelection:
    """`sources.hosts.SnapshotHosts`. `source`: the server that is followed now. `behind`: bytes of the relay
    log outside of a GTID set."""

    def __init__(
        self,
        config: SnapshotConfig,
        source: Callable[[], MySqlOptions],
        captured: TableFilter,
        behind: Callable[[str], int],
    ) -> None:
        self._config = config
        self._source = source
        self._captured = captured
        self._behind = behind
        self._onlooker = WatchedServers()
        self._judged: dict[str, MySqlHost | str] = {}
        self._judged_for = ""
        self._judged_at = 0.0

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to watch."""
        limits = self._config.load
        return bool(limits.threads_running_max or limits.replicas or self._config.hosts)

    def followed(self) -> MySqlHost:
        return self._host(self._source())

    def look(self) -> UsableHosts:
        try:
            return self._look()
        except Exception as error:
            if not isinstance(error, PenstockError):
                log.exception("the load of the servers could not be checked")
            message = error.message if isinstance(error, PenstockError) else str(error)
            return UsableHosts((), message, "load")

    def close(self) -> None:
        self._onlooker.close()
        self._judged_at = 0.0

    def hosts_to_json(self) -> list[dict[str, Any]]:
        """Each of `snapshot.hosts`, with the reason why it is not read from (null: it is used)."""
        return [
            {"host": address, "excluded_because": found if isinstance(found, str) else None}
            for address, found in list(self._judged.items())
        ]

    def _look(self) -> UsableHosts:
        source = self._source()
        limits = self._config.load
        for address in limits.replicas:
            if reason := self._lag(source, address, limits.replica_lag_max or 0):
                return UsableHosts((), reason, "replica_lag")
        if not self._config.hosts:
            reason = self._busy(source)
            return (
                UsableHosts((), reason, "threads_running") if reason else UsableHosts((self._host(source),))
            )
        fit = self._fit(source)
        if not fit:
            why = "; ".join(f"{name}: {found}" for name, found in self._judged.items())
            return UsableHosts((), f"none of snapshot.hosts can be read from ({why})", "hosts")
        reasons = {host.address: self._busy(host.source) for host in fit}
        free = tuple(host for host in fit if not reasons[host.address])
        return UsableHosts(free) if free else UsableHosts((), "; ".join(reasons.values()), "threads_running")

    def _lag(self, source: MySqlOptions, address: str, lag_max_ms: int) -> str:
        try:
            return server_load.too_far(
                address, self._onlooker.channels(server_load.at(source, address)), lag_max_ms
            )
        except PenstockError as error:
            return f"the lag of {address} is unknown: {error.message}"

    def _busy(self, host: MySqlOptions) -> str:
        most = self._config.load.threads_running_max
        if most is None:
            return ""
        try:
            return server_load.too_busy(address_of(host), self._onlooker.threads_running(host), most)
        except PenstockError as error:
            return f"the load of {address_of(host)} is unknown: {error.message}"

    def _fit(self, source: MySqlOptions) -> list[MySqlHost]:
        followed = address_of(source)
        if self._judged_for != followed or time.monotonic() - self._judged_at > JUDGED_EVERY_SECONDS:
            for address in self._config.hosts:
                found = self._judge(source, address)
                before = self._judged.get(address)
                if isinstance(found, str) and found != before:
                    log.warning("no chunks are read from %s: %s", address, found)
                elif isinstance(before, str) and not isinstance(found, str):
                    log.info("chunks are read from %s again", address)
                self._judged[address] = found
            self._judged_for, self._judged_at = followed, time.monotonic()
        return [found for found in self._judged.values() if isinstance(found, MySqlHost)]

    def _judge(self, source: MySqlOptions, address: str) -> MySqlHost | str:
        config = server_load.at(source, address)
        try:
            verdict = replicas.judge(
                self._onlooker,
                config,
                source,
                self._captured,
                behind=self._behind,
                window_bytes_max=self._config.window_bytes_max,
            )
        except PenstockError as error:
            return error.message
        return verdict if isinstance(verdict, str) else self._host(config, verdict.replica_of)

    def _host(self, source: MySqlOptions, replica_of: ReplicaOf | None = None) -> MySqlHost:
        return MySqlHost(source, replica_of)
