from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import Serving, eventually

from penstock.testing import servers
from penstock.testing.servers import Database, MySqlServer, ZooKeeperEnsemble
from penstock.testing.servers.process import free_port

SESSION = "4s"
"""Shorter ones end while a busy machine does something else."""


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperEnsemble]:
    with servers.zookeeper() as made:
        yield made


_NUMBERS = itertools.count()


@dataclass
class Nodes:
    """The nodes of a destination, as another program sees them."""

    client: Any
    destination: str

    def get(self, path: str) -> bytes:
        data: bytes = self.client.get(f"/otter/canal/destinations/{self.destination}/{path}")[0]
        return data

    def set(self, path: str, data: bytes) -> None:
        whole = f"/otter/canal/destinations/{self.destination}/{path}"
        self.client.ensure_path(whole)
        self.client.set(whole, data)

    def exists(self, path: str) -> bool:
        return self.client.exists(f"/otter/canal/destinations/{self.destination}/{path}") is not None


@dataclass
class Group:
    """A database with the table `orders`, and servers that share destinations for it, each with a relay log
    of its own."""

    database: Database
    ensemble: ZooKeeperEnsemble
    destination: str
    nodes: Nodes
    folder: Path
    stack: ExitStack
    source: MySqlServer

    def server(self, number: int, **options: Any) -> Serving:
        account = {
            "host": self.source.host, "port": self.source.port, "user": self.source.user,
            "password": self.source.password, "heartbeat": "1s",
        }  # fmt: skip
        known = {
            "listen": {"canal": f"127.0.0.1:{free_port()}"},
            "positions": {"type": "zookeeper"},
            "zookeeper": self.ensemble.hosts,
            "zookeeper_timeout": SESSION,
            "source": {**account, "start": self.start},
            "destinations": {self.destination: {"filter": rf"{self.database.name}\..*", "start": "earliest"}},
        }
        made = Serving(self.source, self.folder / str(number), **(known | options))
        self.stack.callback(made.kill)
        return made

    @property
    def start(self) -> dict[str, Any]:
        return {"file": self.file, "position": 4}

    file: str = ""

    def execute(self, *statements: str) -> None:
        self.database.execute(*statements)

    def insert(self, first: int, last: int | None = None) -> None:
        """A transaction for each row."""
        for number in range(first, (last or first) + 1):
            self.execute(f"INSERT INTO orders VALUES ({number}, 'x')")

    def connect(self, server: Serving, seconds: float = 20.0, **options: Any) -> RawClient:
        """Tries until this server serves the destination."""
        deadline = time.monotonic() + seconds
        while True:
            client = RawClient(server.address, destination=self.destination, **options)
            try:
                client.subscribe()
                return client
            except Failed:
                client.socket.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def running(self) -> str:
        try:
            return self.nodes.get("running").decode()
        except NoNodeError:
            return ""

    def term(self) -> int:
        """The number of the present term, which is part of the numbers of its batches."""
        return int(self.nodes.client.exists(f"/otter/penstock/destinations/{self.destination}").version)

    def wait_for(self, server: Serving, seconds: float = 20.0) -> None:
        eventually(lambda: server.address in self.running(), "server that serves it", seconds)


@pytest.fixture
def group(source: MySqlServer, zookeeper: ZooKeeperEnsemble, tmp_path: Path) -> Iterator[Group]:
    yield from group_of(source, zookeeper, tmp_path)


def group_of(source: MySqlServer, ensemble: ZooKeeperEnsemble, folder: Path) -> Iterator[Group]:
    number = next(_NUMBERS)
    database = Database(source, f"group_{number}_{time.time_ns()}")
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(2000))")
    source.execute("FLUSH BINARY LOGS")  # their log begins behind this
    client = KazooClient(",".join(ensemble.hosts))
    client.start()
    name = f"group-{number}-{time.time_ns()}"
    with ExitStack() as stack:
        stack.callback(client.close)
        stack.callback(client.stop)
        made = Group(database, ensemble, name, Nodes(client, name), folder, stack, source)
        made.file = source.binlog_files()[-1].name
        yield made
