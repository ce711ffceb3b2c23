"""How busy a server is, and how far its replicas are behind: the rule, and the questions.

The rule: **what cannot be told counts as too much**, since nobody would notice a guard that is blind.

- A server is too busy while `Threads_running` is above the limit. The variable counts every session that runs
  a statement: ours that asks, chunks that are being read, the streams of replicas (also our receiver's).
- A replica is too far behind while one of its channels does not run (not `Yes` for receiver and applier both:
  `Seconds_Behind_Source` is NULL then, or a number that means nothing), or is behind by more than the limit.
  NULL from a channel that runs counts as too far, too.
- A server that does not replicate at all (a replica that was promoted) is not behind anything.
- A server that does not answer counts as too busy, or too far behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pymysql

from penstock.config import SourceConfig
from penstock.errors import PenstockError
from penstock.sources.mysql.connection import connect, explain, query, query_named
from penstock.sources.mysql.dialect import Dialect

_ANSWER_S = 5.0
_CONNECT_MS_MAX = 3_000


@dataclass(frozen=True)
class Channel:
    """One channel of a replica, as it tells of itself."""

    receives: str
    applies: str
    behind_s: int | None

    @classmethod
    def of(cls, row: dict[str, Any]) -> Channel:
        """From a row of SHOW REPLICA STATUS, under whatever name the release has for it."""
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


def address_of(config: SourceConfig) -> str:
    return f"{config.host}:{config.port}"


def at(config: SourceConfig, address: str) -> SourceConfig:
    """Another server, reached as the source is."""
    host, _, port = address.rpartition(":")
    return config.model_copy(update={"host": host, "port": int(port), "failover": []})


class Onlooker:
    """One connection to each server that is looked at, kept between looks. Serves one thread."""

    def __init__(self) -> None:
        self._connections: dict[str, Any] = {}

    def ask(self, config: SourceConfig, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Raises `PenstockError` when the server does not answer; the next question connects anew."""
        rows: list[tuple[Any, ...]] = self._asked(config, lambda open_: query(open_, sql, arguments))
        return rows

    def ask_named(self, config: SourceConfig, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._asked(config, lambda open_: query_named(open_, sql))
        return rows

    def dialect(self, config: SourceConfig) -> Dialect:
        found: Dialect = self._asked(config, Dialect.detect)
        return found

    def threads_running(self, config: SourceConfig) -> int:
        return int(self.ask(config, "SHOW GLOBAL STATUS LIKE 'Threads_running'")[0][1])

    def channels(self, config: SourceConfig) -> list[Channel]:
        return [Channel.of(row) for row in self.ask_named(config, self.dialect(config).replica_status)]

    def _asked(self, config: SourceConfig, question: Any) -> Any:
        address = address_of(config)
        try:
            if address not in self._connections:
                soon = min(config.connect_timeout, _CONNECT_MS_MAX)
                quick = config.model_copy(update={"connect_timeout": soon})
                self._connections[address] = connect(quick, read_timeout_s=_ANSWER_S, role="load")
            return question(self._connections[address])
        except (PenstockError, pymysql.Error, OSError) as error:
            self.close(address)
            raise explain(error, config) from error

    def close(self, *addresses: str) -> None:
        """The connections to these servers; without any: all."""
        for address in addresses or list(self._connections):
            if (connection := self._connections.pop(address, None)) is not None:
                connection._force_close()
