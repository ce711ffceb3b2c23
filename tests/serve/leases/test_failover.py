"""Several servers share a destination by a lease in a store: a directory, or S3."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import database_of
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import LONG_MS, Serving, eventually, rows_of

from penstock.testing.servers import Database, MySqlServer
from penstock.testing.servers.process import free_port
from penstock.testing.servers.s3 import KEY_ID, SECRET, Moto

TAKEOVER_S = 10
"""What is promised. It takes about as long as `lease_timeout`."""
_NUMBERS = itertools.count()


@dataclass
class Pair:
    """A database with the table `orders`, and two servers, each with a relay log of its own."""

    database: Database
    source: MySqlServer
    folder: Path
    url: str
    more: dict[str, Any]
    start: dict[str, Any]
    servers: list[Serving] = field(default_factory=list)

    def server(self, number: int) -> Serving:
        account = {
            "host": self.source.host, "port": self.source.port, "user": self.source.user,
            "password": self.source.password, "heartbeat": "1s", "start": self.start,
        }  # fmt: skip
        made = Serving(
            self.source, self.folder / str(number), listen={"canal": f"127.0.0.1:{free_port()}"},
            positions={"type": "store", "url": self.url, "lease_timeout": "4s"}, source=account,
            destinations={"shop": {"filter": rf"{self.database.name}\..*", "start": "earliest"}}, **self.more,
        )  # fmt: skip
        self.servers.append(made)
        return made

    def insert(self, *ids: int) -> None:
        for number in ids:
            self.database.execute(f"INSERT INTO orders VALUES ({number}, 'x')")

    def connect(self, server: Serving, seconds: float = 20.0) -> RawClient:
        """Tries until this server serves the destination."""
        deadline = time.monotonic() + seconds
        while True:
            client = RawClient(server.address, destination="shop")
            try:
                client.subscribe()
                return client
            except Failed:
                client.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.slow)])
def pair(request: pytest.FixtureRequest, source: MySqlServer, tmp_path: Path) -> Iterator[Pair]:
    database = database_of(source, f"leases_{os.getpid()}_{next(_NUMBERS)}")
    source.execute("FLUSH BINARY LOGS")  # their logs begin behind this
    start = {"file": source.binlog_files()[-1].name, "position": 4}
    with contextlib.ExitStack() as stack:
        url, more = str(tmp_path / "shared"), {}
        if request.param == "s3":
            store = stack.enter_context(Moto())
            store.make_bucket("lake")
            url = "s3://lake/serve"
            more = {"store": {"endpoint": store.url, "access_key_id": KEY_ID, "secret_access_key": SECRET}}
        made = Pair(database, source, tmp_path, url, more, start)
        try:
            yield made
        finally:
            for one in made.servers:
                one.kill()


def ids_of(entries: list[bytes]) -> list[int]:
    return [int(row[3]["id"]) for row in rows_of(entries) if len(row) == 4]


def read(client: RawClient, count: int) -> list[int]:
    """Reads and acknowledges batches until there were so many rows."""
    found: list[int] = []
    while len(found) < count:
        batch, entries = client.get(100, 5000)
        assert batch != -1, found
        found += ids_of(entries)
        client.acknowledge(batch)
    client.get(1, 1)  # its answer says that the acknowledgement is stored
    client.roll_back()
    return found


@pytest.mark.slow  # tests/serve/zookeeper has a quick one
def test_another_server_goes_on_behind_what_was_acknowledged(pair: Pair) -> None:
    one, two = pair.server(1), pair.server(2)
    one.start()
    client = pair.connect(one)
    two.start()
    pair.insert(1, 2, 3)
    assert read(client, 3) == [1, 2, 3]
    with RawClient(two.address, destination="shop") as other, pytest.raises(Failed, match=one.address):
        other.subscribe()
    pair.insert(4)
    assert ids_of(client.get(3, LONG_MS)[1]) == [4]  # not acknowledged
    killed = time.monotonic()
    one.kill()
    client = pair.connect(two)
    assert time.monotonic() - killed < TAKEOVER_S
    pair.insert(5)
    assert read(client, 2) == [4, 5]
    assert two.stop() == 0
    one.start()  # at once: it was given up in order
    pair.insert(6)
    assert read(pair.connect(one), 1) == [6]


def test_a_suspended_server_gives_no_data_and_writes_no_position_once_it_was_replaced(pair: Pair) -> None:
    one, two = pair.server(1), pair.server(2)
    one.start()
    pair.insert(1, 2)
    old = pair.connect(one)
    two.start()
    first, entries = old.get(3, LONG_MS)
    assert ids_of(entries) == [1]
    assert one.process is not None
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        old.acknowledge(first)  # it waits in the socket until the server goes on
        client = pair.connect(two)
        assert read(client, 2) == [1, 2]
        before = status(two)
    finally:
        os.kill(one.process.pid, signal.SIGCONT)
    with pytest.raises((Failed, OSError)):
        assert old.get(3, 1000)[0] == -2  # neither a batch nor an empty one
    with contextlib.suppress(OSError), pytest.raises(Failed, match="serve"):
        RawClient(one.address, destination="shop").subscribe()
    pair.insert(3)
    assert ids_of(client.get(3, LONG_MS)[1]) == [3]
    assert status(two) == before and before["destinations"]["shop"]["server"] == two.address


def status(server: Serving) -> dict[str, Any]:
    """Without the end of the source's log, which others write."""
    command = [sys.executable, "-m", "penstock", "cluster", "status", str(server.file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["destinations"]["shop"]["clients"]["1001"].pop("position_behind") is not None
    del found["source_position"]
    return found


@pytest.mark.slow
def test_while_the_store_is_away_nothing_is_given_and_afterwards_it_goes_on(pair: Pair) -> None:
    if "store" in pair.more:
        pytest.skip("a directory can be made unusable")
    one = pair.server(1)
    one.start()
    client = pair.connect(one)
    pair.insert(1)
    assert read(client, 1) == [1]
    shared, hidden = Path(pair.url), Path(pair.url).with_name("hidden")
    shared.rename(hidden)
    shared.write_text("no directory")
    try:
        pair.insert(2)
        deadline = time.monotonic() + 20
        with pytest.raises((Failed, OSError)):
            while time.monotonic() < deadline:
                client.get(1, 50)
                client.roll_back()
    finally:
        shared.unlink()
        hidden.rename(shared)
    client.close()
    assert read(pair.connect(one), 1) == [2]
    eventually(lambda: status(one)["destinations"]["shop"]["server"] == one.address, "server")
