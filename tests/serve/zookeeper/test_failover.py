"""Several servers share a destination: one serves it, and another one when that ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import pytest
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import LONG_MS, Serving, eventually, rows_of
from tests.serve.zookeeper.conftest import Group

from penstock.client import connect
from penstock.errors import TransientError
from penstock.serve.destination import BATCHES_MAX
from penstock.testing.canal.client import ClientError, JavaClient
from penstock.testing.proxy import Proxy
from penstock.testing.servers.process import free_port

TAKEOVER_S = 15
"""It takes 5 s; on a machine that does much else it takes longer."""


def ids_of(entries: list[bytes]) -> list[int]:
    return [int(row[3]["id"]) for row in rows_of(entries) if len(row) == 4]


def read(client: RawClient | JavaClient, count: int) -> list[int]:
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


def test_another_server_goes_on_behind_what_was_acknowledged(group: Group) -> None:
    one, two = group.server(1), group.server(2)
    one.start()
    group.wait_for(one)
    two.start()
    group.insert(1, 3)
    with JavaClient(f"zookeeper:{','.join(group.ensemble.hosts)}", group.destination) as client:
        client.connect()
        client.subscribe()
        assert read(client, 3) == [1, 2, 3]
        group.insert(4)
        serving = given_by(group, client, 4, one, two)  # on a busy machine, `one` may have lost its session
        other = two if serving is one else one
        killed = time.monotonic()
        serving.kill()
        group.insert(5)
        assert read(client, 2) == [4, 5]
        assert time.monotonic() - killed < TAKEOVER_S
        assert other.address in group.running()


def given_by(group: Group, client: RawClient | JavaClient, number: int, *servers: Serving) -> Serving:
    """Has the batch with one row given, by the server that serves then, and returns that server. The number
    of a batch tells in which term it was given."""
    while True:
        batch, entries = client.get(3, LONG_MS)
        assert ids_of(entries) == [number]  # it is not acknowledged
        running, term = group.running(), group.term()
        found = next((one for one in servers if one.address in running), None)
        if found is not None and batch // BATCHES_MAX == term:
            return found
        client.roll_back()  # another server serves since


@pytest.mark.slow
def test_a_client_waits_while_it_is_not_certain_that_its_server_still_serves(group: Group) -> None:
    """As on a machine that is busy for a moment. The session has not ended, so nothing is refused."""
    [zookeeper] = group.ensemble.servers
    with Proxy(zookeeper.host, zookeeper.port) as proxy, ThreadPoolExecutor() as pool:
        through = {"zookeeper": [f"127.0.0.1:{proxy.port}"], "zookeeper_timeout": "12s"}
        one = group.server(1, **through)
        one.start()
        group.wait_for(one)
        client, term = group.connect(one), group.term()
        proxy.stall()
        stalled = time.monotonic()
        while True:
            asked = pool.submit(client.get, 1, 1)
            try:
                assert asked.result(0.3)[0] == -1
            except FutureTimeout:  # it waits
                break
            assert time.monotonic() < stalled + TAKEOVER_S
        proxy.pass_on()
        assert asked.result()[0] == -1
        group.insert(1)
        assert read(client, 1) == [1] and group.term() == term


@pytest.mark.slow
def test_what_is_outstanding_stays_so_if_a_server_is_killed_that_had_lost_its_session(group: Group) -> None:
    """Then the kill changes nothing: the next batch comes behind the one that is outstanding, and cannot be
    acknowledged before it. A client that tries gets an error, begins again, and gets both in order."""
    [zookeeper] = group.ensemble.servers
    with Proxy(zookeeper.host, zookeeper.port) as proxy:
        one = group.server(1, zookeeper=[f"127.0.0.1:{proxy.port}"])
        two = group.server(2)
        one.start()
        group.wait_for(one)
        two.start()
        group.insert(1, 3)
        with JavaClient(f"zookeeper:{','.join(group.ensemble.hosts)}", group.destination) as client:
            client.connect()
            client.subscribe()
            assert read(client, 3) == [1, 2, 3]
            first = group.term()
            proxy.stall()  # `one` gets no answers, as on a machine that is too busy
            group.wait_for(two)
            group.insert(4)
            assert given_by(group, client, 4, one, two) is two
            term = group.term()
            assert term > first
            one.kill()
            group.insert(5)
            given: list[tuple[int, list[int]]] = []
            while len(given) < 3:
                batch, entries = client.get(3, LONG_MS)  # the client connects again by itself
                given += [(batch, ids_of(entries))] if batch != -1 else []
                with contextlib.suppress(ClientError):
                    client.acknowledge(batch)
            assert two.address in group.running() and group.term() == term
    assert [ids for _, ids in given] == [[5], [4], [5]]
    numbers = [batch for batch, _ in given]
    assert numbers == sorted(numbers) and {one // BATCHES_MAX for one in numbers} == {term}


@pytest.mark.slow
def test_a_server_that_stops_in_order_is_replaced_at_once(group: Group) -> None:
    one, two = group.server(1), group.server(2)
    one.start()
    group.wait_for(one)
    two.start()
    eventually(lambda: group.nodes.exists(f"cluster/{two.address}"), "second server")
    group.insert(1)
    client = group.connect(one)
    assert read(client, 1) == [1]
    stopped = time.monotonic()
    assert one.stop() == 0
    client = group.connect(two)
    assert time.monotonic() - stopped < 5
    group.insert(2)
    assert read(client, 1) == [2]


@pytest.mark.slow  # tests/serve/leases has a quick one
def test_a_suspended_server_gives_no_data_and_writes_no_position_once_it_was_replaced(group: Group) -> None:
    one, two = group.server(1), group.server(2)
    one.start()
    group.wait_for(one)
    two.start()
    group.insert(1, 2)
    old = group.connect(one)
    first, entries = old.get(3, LONG_MS)
    assert ids_of(entries) == [1]
    assert one.process is not None
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        old.acknowledge(first)  # it waits in the socket until the server goes on
        group.wait_for(two)
        client = group.connect(two)
        assert read(client, 2) == [1, 2]
        cursor = group.nodes.get("1001/cursor")
    finally:
        os.kill(one.process.pid, signal.SIGCONT)
    with pytest.raises((Failed, OSError)):
        assert old.get(3, 1000)[0] == -2  # neither a batch nor an empty one
    with contextlib.suppress(OSError), pytest.raises(Failed, match="serve"):
        RawClient(one.address, destination=group.destination).subscribe()
    group.insert(3)
    assert ids_of(client.get(3, LONG_MS)[1]) == [3]
    assert group.nodes.get("1001/cursor") == cursor and two.address in group.running()


@pytest.mark.slow
def test_while_zookeeper_is_silent_nothing_is_given_and_afterwards_it_goes_on(group: Group) -> None:
    one = group.server(1)
    one.start()
    client = group.connect(one)
    group.insert(1)
    assert read(client, 1) == [1]
    [server] = group.ensemble.servers
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        group.insert(2)
        deadline = time.monotonic() + 20
        with pytest.raises((Failed, OSError)):
            while time.monotonic() < deadline:
                client.get(1, 50)
                client.roll_back()
    finally:
        os.kill(server.pid, signal.SIGCONT)
    client.socket.close()
    client = group.connect(one)
    assert read(client, 1) == [2]


@pytest.mark.slow
def test_a_client_in_python_connects_again_where_an_acknowledgement_could_not_be_stored(group: Group) -> None:
    listen = {"canal": f"127.0.0.1:{free_port()}", "grpc": f"127.0.0.1:{free_port()}"}
    one = group.server(1, listen=listen)
    one.start()
    group.wait_for(one)
    group.insert(1)
    [zookeeper] = group.ensemble.servers
    with connect(listen["grpc"]) as server:
        with server.subscribe(group.destination, "billing") as stream:
            batch = next(stream)
            zookeeper.kill9()
            try:
                with pytest.raises(TransientError):
                    batch.acknowledge()
            finally:
                zookeeper.start()
        group.wait_for(one)
        group.insert(2)  # the acknowledgement may have been stored after all

        def ids() -> list[int]:
            try:
                with server.subscribe(group.destination, "billing") as stream:
                    return [change["after"]["id"] for change in next(stream).changes]
            except TransientError:
                return []

        eventually(lambda: ids()[-1:] == [2], "next batch")


@pytest.mark.slow
def test_destinations_are_spread_over_servers_and_move_when_one_joins(group: Group) -> None:
    names = [f"{group.destination}-{number}" for number in range(4)]
    section = {"filter": rf"{group.database.name}\..*", "start": "earliest"}
    options = {"destinations": dict.fromkeys(names, section)}
    one, two = group.server(1, **options), group.server(2, **options)

    def servers() -> list[str]:
        found = []
        for name in names:
            path = f"/otter/canal/destinations/{name}/running"
            with contextlib.suppress(Exception):
                found.append(json.loads(group.nodes.client.get(path)[0])["address"])
        return sorted(found)

    one.start()
    eventually(lambda: servers() == [one.address] * 4, "server of all destinations")
    group.insert(1)
    for name in names:
        client = RawClient(one.address, destination=name)
        client.subscribe()
        assert read(client, 1) == [1]
        client.socket.close()
    two.start()
    half = sorted([one.address, two.address] * 2)
    eventually(lambda: servers() == half, "half of the destinations on each server", 30)
    group.insert(2)
    for name in names:
        address = json.loads(group.nodes.client.get(f"/otter/canal/destinations/{name}/running")[0])[
            "address"
        ]
        client = RawClient(address, destination=name)
        client.subscribe()
        assert read(client, 1) == [2]


@pytest.mark.slow
def test_the_status_says_who_serves_and_how_far_behind_clients_are(group: Group) -> None:
    one = group.server(1)
    one.start()
    client = group.connect(one)
    group.insert(1)
    assert read(client, 1) == [1]
    [(file, position, *_)] = group.source.query("SHOW MASTER STATUS")

    def status() -> dict[str, Any]:
        command = [sys.executable, "-m", "penstock", "cluster", "status", str(one.file), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    found = status()
    assert found["source_position"] == f"{file}:{position}"
    assert found["servers"][one.address]["name"] == "serve"
    destination = found["destinations"][group.destination]
    assert destination["server"] == one.address and destination["ready"] == [one.address]
    known = destination["clients"]["1001"]
    assert (known["position"], known["files_behind"], known["position_behind"]) == (
        f"{file}:{position}",
        0,
        0,
    )
    group.source.execute("FLUSH BINARY LOGS")
    group.insert(2, 4)

    def lag() -> tuple[int, int]:
        known = status()["destinations"][group.destination]["clients"]["1001"]
        return known["files_behind"], known["behind_transactions"]

    eventually(lambda: lag() == (1, 3), "report of three transactions", 30)
