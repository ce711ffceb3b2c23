"""The protocol as strangers may use it: limits, hostile bytes, and clients that take each other's place."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

import psutil
import pytest
from tests.serve.conftest import Shop
from tests.serve.entry import CanalEntry
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import LONG_MS, eventually, rows_of, serving

from penstock.testing.servers import MySqlServer


def closed(client: RawClient) -> bool:
    """Whether the server closes the connection without an answer."""
    try:
        client.receive()
    except (ConnectionError, TimeoutError):
        return True
    return False


def test_a_second_client_of_one_id_waits_and_is_refused_until_the_first_one_ends(shop: Shop) -> None:
    shop.insert(1)
    first, second = (
        RawClient(shop.address, destination=shop.destination),
        RawClient(shop.address, destination=shop.destination),
    )
    first.subscribe()
    began = time.monotonic()
    with pytest.raises(Failed, match="another client"):
        second.subscribe()
    assert time.monotonic() - began > 3
    assert len(first.get(3, LONG_MS)[1]) == 3
    first.close()
    second.subscribe()
    assert len(second.get(3, LONG_MS)[1]) == 3
    second.close()


def test_a_failed_acknowledgement_is_the_answer_to_the_next_request(shop: Shop) -> None:
    shop.insert(1)
    with RawClient(shop.address, destination=shop.destination) as client:
        client.subscribe()
        batch, _ = client.get(3, LONG_MS)
        client.acknowledge(77)
        client.roll_back(78)
        with pytest.raises(Failed, match="78"):
            client.get(100, 100)
        assert client.get(100, 100) == (-1, [])
        client.acknowledge(batch)
        client.send(11, CanalEntry.Ack())  # a heartbeat
        assert client.receive().type == 3
        client.send(10, CanalEntry.Ack())  # DUMP
        assert CanalEntry.Ack.FromString(client.receive().body).error_code == 400
        assert client.get(100, 100) == (-1, [])


def test_a_batch_with_auto_ack_counts_once_the_client_says_something_else(shop: Shop) -> None:
    shop.insert(1)
    with RawClient(shop.address, destination=shop.destination) as client:
        client.subscribe()
        assert len(client.get(3, LONG_MS, auto_ack=True)[1]) == 3
    with RawClient(shop.address, destination=shop.destination) as client:
        client.subscribe()
        assert len(client.get(3, LONG_MS, auto_ack=True)[1]) == 3
        assert client.get(100, 100) == (-1, [])
    with RawClient(shop.address, destination=shop.destination) as client:
        client.subscribe()
        assert client.get(100, 200) == (-1, [])


def test_a_wait_ends_with_the_connection(shop: Shop) -> None:
    first = RawClient(shop.address, destination=shop.destination)
    first.subscribe()
    first.send(6, CanalEntry.Get(**first.names, fetch_size=10, timeout=0, unit=3))
    first.close()
    with RawClient(shop.address, destination=shop.destination) as second:
        second.subscribe()  # refused if the first one still waited


def test_a_client_that_sends_much_and_goes_leaves_its_place(shop: Shop) -> None:
    first = RawClient(shop.address, destination=shop.destination)
    first.subscribe()
    first.send(6, CanalEntry.Get(**first.names, fetch_size=10, timeout=1000, unit=2))
    for number in range(300):
        first.acknowledge(number + 1)
    first.close()
    with RawClient(shop.address, destination=shop.destination) as second:
        second.subscribe()


def test_an_entry_larger_than_any_batch_is_given_alone(shop: Shop) -> None:
    shop.execute("ALTER TABLE orders MODIFY note LONGTEXT")
    for number in (1, 2, 3):
        shop.execute(f"INSERT INTO orders VALUES ({number}, REPEAT('x', {3_000_000 * number}))")
    with RawClient(shop.address, destination=shop.kib) as client:
        client.subscribe()
        found: list[bytes] = []
        while (batch := client.get(1, 3000))[0] != -1:
            found += batch[1]
            client.acknowledge(batch[0])
    rows = [row for row in rows_of(found) if len(row) == 4]
    assert [len(row[3]["note"]) for row in rows] == [3_000_000, 6_000_000, 9_000_000]


def test_before_the_login_packets_are_small_and_only_a_login_is_taken(shop: Shop) -> None:
    for data in (struct.pack(">i", 9000), struct.pack(">i", -1), b"GET / HTTP/1.1\r\n\r\n"):
        client = RawClient(shop.address, login=False)
        client.socket.sendall(data)
        assert closed(client)
    client = RawClient(shop.address, login=False)
    client.send(6, CanalEntry.Get(**client.names, fetch_size=1))
    assert closed(client)


def test_connections_are_limited(source: MySqlServer, tmp_path: Path) -> None:
    with serving(source, tmp_path, connections_max=3) as server:
        clients = [RawClient(server.address) for _ in range(3)]
        host, _, port = server.address.rpartition(":")
        more = socket.create_connection((host, int(port)), timeout=10)
        with more, contextlib.suppress(ConnectionError):
            assert more.recv(1) == b""
        clients[0].close()
        eventually(lambda: _connects(server.address), "free place")
        for client in clients:
            client.close()


def _connects(address: str) -> bool:
    try:
        RawClient(address).close()
    except (ConnectionError, struct.error):
        return False
    return True


def attack(address: str, dice: random.Random) -> None:
    """A connection with damaged packets, at a random point of a conversation."""
    with contextlib.suppress(ConnectionError, Failed, TimeoutError, AssertionError):
        client = RawClient(address, client_id=f"bad-{dice.randrange(5)}", login=dice.random() < 0.7)
        client.socket.settimeout(0.2)
        with client:
            for _ in range(dice.randrange(1, 6)):
                body = CanalEntry.Get(**client.names, fetch_size=dice.randrange(-5, 9), timeout=1, unit=2)
                packet = CanalEntry.Packet(type=dice.randrange(14), body=body.SerializeToString())
                data = bytearray(packet.SerializeToString())
                for _ in range(dice.choice((0, 0, 1, 3, 20))):
                    data[dice.randrange(len(data))] = dice.randrange(256)
                length = len(data) if dice.random() < 0.8 else dice.randrange(-(2**31), 2**31)
                client.socket.sendall(struct.pack(">i", length) + data[: dice.randrange(len(data) + 1)])
                if dice.random() < 0.3:
                    client.receive()


def hostile(shop: Shop, seed: int, seconds: float) -> None:
    assert shop.serving.process is not None
    server, dice = psutil.Process(shop.serving.process.pid), random.Random(seed)
    shop.insert(1)
    attack(shop.address, dice)
    before, files = server.memory_info().rss, server.num_fds()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        attack(shop.address, dice)
    with RawClient(shop.address, destination=shop.destination) as client:
        client.subscribe()
        assert [row[3]["id"] for row in rows_of(client.get(3, LONG_MS)[1])] == ["1"]
    eventually(lambda: server.num_fds() <= files + 5, "end of the connections", 30)
    assert server.memory_info().rss - before < 30 * 1024**2
    said = shop.serving.errors.read_text()
    assert "bug" not in said and "Traceback" not in said


def test_hostile_bytes_neither_stop_the_server_nor_let_it_grow(own_shop: Shop) -> None:
    hostile(own_shop, 1, 3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hostile_bytes_for_ten_minutes(own_shop: Shop) -> None:
    hostile(own_shop, 2, 600)
