"""Several servers: replication between them, and applications that go where the primary is."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pymysql

from penstock.testing import servers
from penstock.testing.meanwhile import meanwhile
from penstock.testing.servers import DatabaseServer, MariaDbServer

ROWS = 3000
TABLES = ("orders", "ledger")


def replicate(primary: DatabaseServer, replica: DatabaseServer) -> None:
    place = f"MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, MASTER_CONNECT_RETRY = 1"
    place += f", MASTER_USER = 'root', MASTER_PASSWORD = '{primary.password}'"
    how = "MASTER_AUTO_POSITION = 1, GET_MASTER_PUBLIC_KEY = 1"
    if isinstance(primary, MariaDbServer):
        how = "MASTER_USE_GTID = slave_pos"
    replica.execute(f"CHANGE MASTER TO {place}, {how}", "START SLAVE")


def promote(replica: DatabaseServer) -> None:
    replica.execute("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")


@contextmanager
def pair(name: str, **options: Any) -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    """A primary with the tables, and a replica. The replica's binlog files have the greater numbers, so that
    places in both logs can be told apart."""
    flavor = servers.FLAVORS[name]
    with (
        flavor({"server_id": 1, "log_slave_updates": "ON", **options}) as primary,
        flavor({"server_id": 2, "log_slave_updates": "ON", "read_only": "ON", **options}) as replica,
    ):
        for _ in range(30):
            replica.execute("FLUSH BINARY LOGS")
        replicate(primary, replica)
        primary.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, state VARCHAR(40), price DECIMAL(10,2))",
            "CREATE TABLE shop.ledger (id BIGINT PRIMARY KEY, note VARCHAR(60))",
        )
        with primary.connect() as connection, connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO shop.orders VALUES (%s, 'new', %s)", [(n, n / 7) for n in range(1, ROWS)]
            )
        yield primary, replica


class Writers:
    """Applications: they change orders, append to the ledger, and go where the primary is."""

    def __init__(self, server: DatabaseServer, count: int = 3) -> None:
        self.server = server
        self.committed = 0
        self._count = count
        self._running = ExitStack()

    def __enter__(self) -> Writers:
        self._running.enter_context(meanwhile(*[partial(self._run, seed) for seed in range(self._count)]))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._running.close()

    def _run(self, seed: int, ending: threading.Event) -> None:
        numbers = itertools.count(seed * 1_000_000)
        dice = random.Random(seed)
        while not ending.wait(0.05):
            try:
                with self.server.connect(connect_timeout=2) as connection:
                    self._write(connection, dice, numbers, ending)
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
                continue  # the server is gone, or not writable yet; the next one is tried

    def _write(
        self, connection: Any, dice: random.Random, numbers: Iterator[int], ending: threading.Event
    ) -> None:
        with connection.cursor() as cursor:
            while not ending.wait(0.02):
                number = next(numbers)
                cursor.execute("BEGIN")
                cursor.execute(
                    "UPDATE shop.orders SET state = %s, price = price + 1 WHERE id = %s",
                    (f"s{number}", dice.randint(1, ROWS)),
                )
                cursor.execute("INSERT INTO shop.ledger VALUES (%s, %s)", (number, f"n{number}"))
                cursor.execute("COMMIT")
                self.committed += 1
