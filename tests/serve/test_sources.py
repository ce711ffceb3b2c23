"""A destination over several sources: their changes in one order, and places in all of their logs."""

from __future__ import annotations

import itertools
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import database_of
from tests.serve.entry import CanalEntry
from tests.serve.raw_client import RawClient
from tests.serve.serving import LONG_MS, Serving, eventually, rows_of, serving

from penstock.client import connect
from penstock.testing.servers import Database, MySqlServer

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def other_source() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        yield server


@dataclass
class Shards:
    """Two servers with one table each, and a server that serves both: `all`, and each by itself."""

    east: Database
    west: Database
    serving: Serving
    sources: list[MySqlServer]

    def insert(self, where: Database, *ids: int) -> None:
        """One transaction."""
        where.execute("BEGIN", *(f"INSERT INTO orders VALUES ({one}, 'x')" for one in ids), "COMMIT")

    def client(self, destination: str = "all", **options: Any) -> RawClient:
        made = RawClient(self.serving.address, destination=destination, **options)
        made.subscribe()
        return made


@pytest.fixture
def shards(source: MySqlServer, other_source: MySqlServer, tmp_path: Path) -> Iterator[Shards]:
    name = f"shards_{os.getpid()}_{next(_NUMBERS)}"
    databases = [database_of(one, name) for one in (source, other_source)]
    sources = {}
    for label, server in (("east", source), ("west", other_source)):
        server.execute("FLUSH BINARY LOGS")  # their logs begin behind this
        sources[label] = {
            "source": {
                "host": server.host, "port": server.port, "user": server.user, "password": server.password,
                "start": {"file": server.binlog_files()[-1].name, "position": 4},
            },
            "relay_log": {"path": str(tmp_path / label), "disk_free_min": 0},
        }  # fmt: skip
    tables = {"filter": rf"{name}\..*", "start": "earliest"}
    options = {
        "listen": {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
        "http": {"listen": "127.0.0.1:0"},
        "source": None, "relay_log": None, "sources": sources,
        "destinations": {"all": tables, "west": {**tables, "sources": ["west"]}},
    }  # fmt: skip
    with serving(source, tmp_path, **options) as made:
        yield Shards(databases[0], databases[1], made, [source, other_source])


def ids_of(entries: list[bytes]) -> list[int]:
    return [int(row[3]["id"]) for row in rows_of(entries) if len(row) == 4]


def read(client: RawClient, count: int, *, size: int = 100) -> list[int]:
    """Reads and acknowledges batches until there were so many rows."""
    found: list[int] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline, found
        batch, entries = client.get(size, 2000)
        if batch != -1:
            found += ids_of(entries)
            client.acknowledge(batch)
    client.get(1, 1)  # its answer says that the acknowledgement is stored
    client.roll_back()
    return found


def test_changes_of_two_servers_come_in_the_order_of_their_commits(shards: Shards) -> None:
    expected = []
    for number in range(1, 13):
        where = shards.east if number % 3 else shards.west
        shards.insert(where, number * 10, number * 10 + 1)
        expected += [number * 10, number * 10 + 1]
    client = shards.client()
    assert read(client, len(expected), size=7) == expected
    assert read(shards.client("west"), 8) == [30, 31, 60, 61, 90, 91, 120, 121]


@pytest.mark.slow
def test_rollbacks_and_restarts_go_on_at_the_places_of_all_sources(shards: Shards) -> None:
    shards.insert(shards.east, 1, 2, 3, 4, 5)
    shards.insert(shards.west, 6, 7)
    shards.insert(shards.east, 8)
    client = shards.client()
    # A batch that is smaller than the transaction divides it: B 1 2 | 3 4 5 E | B 6 7 E ...
    first, entries = client.get(3, LONG_MS)
    assert ids_of(entries) == [1, 2]
    client.acknowledge(first)
    second, entries = client.get(3, LONG_MS)
    assert ids_of(entries) == [3, 4, 5]
    client.roll_back(second)
    assert ids_of(client.get(3, LONG_MS)[1]) == [3, 4, 5]
    client.get(1, 1)
    shards.serving.kill()
    shards.serving.start()
    shards.insert(shards.west, 9)
    client = shards.client()
    assert read(client, 7, size=4) == [3, 4, 5, 6, 7, 8, 9]
    assert shards.serving.stop() == 0
    shards.serving.start()
    shards.insert(shards.east, 10)
    assert read(shards.client(), 1) == [10]


def test_an_idle_source_delays_the_others_only_until_its_next_heartbeat(shards: Shards) -> None:
    client = shards.client()
    shards.insert(shards.east, 1)
    assert read(client, 1) == [1]  # within its limit: the other source sends a heartbeat each second


@pytest.mark.slow
def test_a_source_that_is_away_holds_the_others_up_and_nothing_is_lost(shards: Shards) -> None:
    client = shards.client()
    shards.insert(shards.west, 1)
    assert read(client, 1) == [1]
    shards.sources[1].kill9()
    try:
        shards.insert(shards.east, 2)
        assert client.get(10, 4000) == (-1, [])
        shards.serving.kill()
        shards.serving.start()
        client = shards.client()
        assert client.get(10, 4000) == (-1, [])
    finally:
        shards.sources[1].start()
    shards.insert(shards.west, 3)
    assert read(client, 2) == [2, 3]


def test_the_report_and_clients_of_flight_know_the_places_of_each_source(shards: Shards) -> None:
    shards.insert(shards.east, 1)
    shards.insert(shards.west, 2)
    client = shards.client()
    assert read(client, 2) == [1, 2]

    def report() -> dict[str, Any]:
        url = f"http://{shards.serving.listening['http']}/destinations/all"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["clients"]["1001"]
        return found

    assert sorted(report()["offsets"]) == sorted(report()["sources"]) == ["east", "west"]
    shards.insert(shards.west, 3)
    eventually(lambda: report()["behind_transactions"] == 1, "transaction that is behind")
    assert report()["sources"]["west"]["behind_transactions"] == 1
    with connect(shards.serving.listening["grpc"]) as server:
        with server.read("all", start="earliest", filter=r".*\.orders") as stream:
            found: list[int] = []
            while len(found) < 2:
                batch = next(stream)
                found += [one["after"]["id"] for one in batch.changes]
        with server.read("all", start=batch.position, filter=r".*\.orders") as stream:
            while len(found) < 3:
                found += [one["after"]["id"] for one in next(stream).changes]
    assert found == [1, 2, 3]


@pytest.mark.slow
def test_transactions_under_load_are_whole_and_each_is_given_once(shards: Shards) -> None:
    expected = set()
    for number in range(150):
        where = (shards.east, shards.west)[number % 2]
        ids = [number * 100 + one for one in range(1 + number % 7)]
        shards.insert(where, *ids)
        expected |= {(number % 2, one) for one in ids}
        if number in (50, 100):
            shards.serving.kill()
            shards.serving.start()
    client = shards.client()
    kinds = ""
    found: list[int] = []
    while len(found) < len(expected):
        batch, entries = client.get(5, 3000)
        for one in entries:
            kinds += "?BRE"[CanalEntry.Entry.FromString(one).entryType]
        found += ids_of(entries)
        client.acknowledge(batch)
    assert found == sorted(found)  # they were written one after the other
    assert len(found) == len(expected)
    inside = False
    for kind in kinds:
        assert inside == (kind in "RE")
        inside = kind != "E"
