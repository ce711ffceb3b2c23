"""Decides whether a server is too busy, or a replica too far behind.

The rule: **an unknown value counts as too much**, since nobody would notice a check that sees nothing.

- A server is too busy while `Threads_running` is above the limit. The variable counts every session that runs
  a statement: the one that asks, chunks that are being read, and the streams of replicas, including
  Penstock's receiver.
- A replica is too far behind if one of its channels does not run, or is behind by more than the limit. A
  channel runs if receiver and applier are both `Yes`; otherwise `Seconds_Behind_Source` is NULL or means
  nothing. NULL from a running channel counts as too far, too.
- A server that does not replicate at all, such as a promoted replica, is not behind.
- A server that does not answer counts as too busy, or too far behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pymysql

from penstock.errors import PenstockError
from penstock.sources.mysql.connection import connect, query, query_named
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.faults import explain, fitting
from penstock.sources.mysql.options import MySqlOptions

_ANSWER_S = 5.0
"""How long a watched server may take to answer, in seconds. A server that is slower is too busy for
chunks."""
_CONNECT_MS_MAX = 3_000
"""How long connecting to a watched server may take: no chunk starts before all servers were looked at."""


@dataclass(frozen=True)
class Channel:
    """One channel of a replica, by its own report."""

    receives: str
    applies: str
    behind_s: int | None

    @classmethod
    def of(cls, row: dict[str, Any]) -> Channel:
        """Reads a row of SHOW REPLICA STATUS. The names of its columns depend on the release."""
        behind = row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master"))
        return cls(
            receives=str(row.get("Replica_IO_Running") or row.get("Slave_IO_Running") or ""),
            applies=str(row.get("Replica_SQL_Running") or row.get("Slave_SQL_Running") or ""),
            behind_s=None if behind is None else int(behind),
        )

    @property
    def runs(self) -> bool:
        return self.receives == "Yes" and self.applies == "Yes"


def too_busy(server: str, threads_running: int, threads_running_max: int | None) -> str:
    """Why; empty if it is not."""
    if threads_running_max is None or threads_running <= threads_running_max:
        return ""
    return f"{server} has Threads_running = {threads_running}, more than {threads_running_max}"


def too_far(server: str, channels: list[Channel], lag_max_ms: int) -> str:
    """Why; empty if it is not."""
    for channel in channels:
        if not channel.runs:
            return (
                f"replication to {server} does not run (receiver: {channel.receives or 'unknown'},"
                f" applier: {channel.applies or 'unknown'})"
            )
        if channel.behind_s is None:
            return f"{server} does not report its lag"
        if channel.behind_s * 1000 > lag_max_ms:
            return f"{server} is {channel.behind_s} s behind, more than {lag_max_ms / 1000:g} s"
    return ""


def address_of(config: MySqlOptions) -> str:
    return f"{config.host}:{config.port}"


def at(config: MySqlOptions, address: str) -> MySqlOptions:
    """The configuration of another server, which is reached like the source."""
    host, _, port = address.rpartition(":")
    return config.model_copy(update={"host": host, "port": int(port), "failover": []})


class WatchedServers:
    """Connections to the watched servers, one for each, kept between looks. Only one thread uses it."""

    def __init__(self) -> None:
        self._connections: dict[str, Any] = {}

    def ask(self, config: MySqlOptions, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Asks a server. Raises `PenstockError` if it does not answer; the next question reconnects."""
        rows: list[tuple[Any, ...]] = self._asked(config, lambda open_: query(open_, sql, arguments))
        return rows

    def ask_named(self, config: MySqlOptions, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._asked(config, lambda open_: query_named(open_, sql))
        return rows

    def dialect(self, config: MySqlOptions) -> Dialect:
        found: Dialect = self._asked(config, Dialect.detect)
        return found

    def threads_running(self, config: MySqlOptions) -> int:
        return int(self.ask(config, "SHOW GLOBAL STATUS LIKE 'Threads_running'")[0][1])

    def channels(self, config: MySqlOptions) -> list[Channel]:
        return [Channel.of(row) for row in self.ask_named(config, self.dialect(config).replica_status)]

    def _asked(self, config: MySqlOptions, question: Any) -> Any:
        address = address_of(config)
        try:
            if address not in self._connections:
                soon = min(config.connect_timeout, _CONNECT_MS_MAX)
                quick = config.model_copy(update={"connect_timeout": soon})
                self._connections[address] = connect(quick, read_timeout_s=_ANSWER_S, role="load")
            with fitting():
                return question(self._connections[address])
        except (PenstockError, pymysql.Error, OSError) as error:
            self.close(address)
            raise explain(error, config) from error

    def close(self, *addresses: str) -> None:
        """Closes the connections to these servers, or all of them."""
        for address in addresses or list(self._connections):
            if (connection := self._connections.pop(address, None)) is not None:
                connection._force_close()
