"""A MySQL server as the source of a seed: its shop, what operators do to it, and its own judge."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
from tests.chaos import judge
from tests.chaos.operations import Definitions
from tests.chaos.schedule import Schedule
from tests.scenarios.topology import promote, replicate

from penstock.testing import workload
from penstock.testing.servers import DatabaseServer, MySqlServer
from penstock.testing.servers.base import _copy_sparse
from penstock.testing.workload import Shop
from penstock.testing.writer import MOVED, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DURABLE = {
    "innodb_flush_log_at_trx_commit": 1,
    "sync_binlog": 1,
    "innodb_doublewrite": "ON",
    "log_slave_updates": "ON",
}
"""A server that is killed must have what it has confirmed."""


class MySqlSource:
    """`shared`: the server of the seeds of a worker. None: two servers of its own, a primary and a replica
    of it."""

    def __init__(self, database: str, shared: DatabaseServer | None) -> None:
        self.namespace, self.pattern = database, f"{database}.*"
        self._stack = ExitStack()
        self.replica: DatabaseServer | None = None
        if shared is not None:
            self.server = shared
            self._stack.callback(self._drop)
            return
        enter = self._stack.enter_context
        self.server = enter(MySqlServer({**DURABLE, "server_id": 1}))
        self.replica = enter(MySqlServer({**DURABLE, "server_id": 2, "read_only": "ON"}))
        replicate(self.server, self.replica)

    def close(self) -> None:
        self._stack.close()

    def _drop(self) -> None:
        with suppress(pymysql.err.Error):
            self.server.execute(f"DROP DATABASE IF EXISTS {self.namespace}")

    def load(self, shop: Shop) -> None:
        self._drop()
        workload.load(self.server, shop, batch_rows=1000)
        self.server.execute(
            f"CREATE TABLE {self.namespace}.ledger (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO {self.namespace}.ledger VALUES (0, 'first')",
        )

    def section(self, port: int) -> dict[str, Any]:
        source: dict[str, Any] = {"host": "127.0.0.1", "port": port}
        if self.replica is not None:
            source = {"host": [f"127.0.0.1:{port}", f"127.0.0.1:{self.replica.port}"]}
        account = {"user": self.server.user, "password": self.server.password}
        return {**source, **account, "heartbeat": "1s", "connect_timeout": "5s", "reconnect_max": "2s"}

    def definitions(self, dice: random.Random, *, defaults: bool) -> Definitions:
        return Definitions(self, dice, defaults=defaults)

    def writer(self, shop: Shop, schedule: Schedule) -> Writer:
        self._writer = Writer(
            self.server, shop, rate=schedule.settings.rate, threads=2, seed=schedule.seed, patient=True,
            large_every_s=schedule.settings.large_every_s, large_rows=800,
        )  # fmt: skip
        return self._writer

    def insert(self, table: str, rows: list[tuple[int, str]]) -> None:
        """Each row in a transaction of its own."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            for number, text in rows:
                cursor.execute(f"INSERT INTO {self.namespace}.{table} VALUES ({number}, '{text}')")

    def tables(self) -> list[str]:
        sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1"
        return [str(row[0]) for row in self.server.query(sql, (self.namespace,))]

    @property
    def highest(self) -> dict[str, int]:
        """By table: no row of now or earlier has a greater key. What the table holds would not tell: rows go
        again."""
        highest = self._writer.highest
        return {
            "orders": highest, "items": highest, "products": highest, "customers": MOVED + highest
        }  # fmt: skip

    def end(self) -> tuple[str, int]:
        """Where the log ends."""
        return self.server.position()

    def drain(self, service: Any, *, seconds: float) -> None:
        service.drained(*self.end(), seconds=seconds, restart=True)

    def has_received(self, status: dict[str, Any], goal: tuple[str, int]) -> bool:
        at = status.get("position") or {"file": "", "position": 0}
        return (at["file"], at["position"]) >= goal

    def activity(self) -> list[str]:
        return [str(row) for row in self.server.query("SHOW FULL PROCESSLIST")]

    # its end ------------------------------------------------------------------------------------------------

    def purge(self, write: Callable[[], None]) -> str:
        """`write`: changes rows."""
        self.server.execute("FLUSH BINARY LOGS")
        write()
        file, _at = self.server.position()
        self.server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        self.server.execute(f"PURGE BINARY LOGS TO '{self.server.position()[0]}'")
        return f"purged all before {self.server.position()[0]}, {file} with it"

    def copy_to(self, folder: Path) -> None:
        server = self.server
        assert isinstance(server, MySqlServer)
        server.stop()
        shutil.copytree(server.datadir, folder, copy_function=_copy_sparse)
        server.start()

    def restore(self, folder: Path) -> None:
        server = self.server
        assert isinstance(server, MySqlServer)
        server.kill9()
        shutil.rmtree(server.datadir)
        shutil.copytree(folder, server.datadir, copy_function=_copy_sparse)
        shutil.rmtree(folder)
        server.start()

    def fail_over(self, until: Callable[[Callable[[], bool], float], bool]) -> bool:
        """The primary dies, and the replica takes its place. False: the replica did not catch up."""
        primary, replica = self.server, self.replica
        assert replica is not None
        holder = primary.connect()
        with holder.cursor() as cursor:
            cursor.execute("FLUSH TABLES WITH READ LOCK")
        if not until(lambda: replica.gtid_executed() == primary.gtid_executed(), 60):
            return False
        primary.kill9()
        promote(replica)
        self.server = self._writer.server = replica
        return True

    # the judge ----------------------------------------------------------------------------------------------

    def rows_differ(self, table: str, frame: DataFrame) -> str:
        return judge.rows_differ(self.server, f"{self.namespace}.{table}", frame)
