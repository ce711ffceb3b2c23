"""Canal's own Java client reads from our server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.conftest import Shop
from tests.serve.serving import LONG_MS, kinds_of, rows_of, serving

from penstock.serve.listeners.passwords import double_sha1
from penstock.testing.canal.client import ClientError, JavaClient
from penstock.testing.servers import MySqlServer


@pytest.fixture
def client(shop: Shop) -> Iterator[JavaClient]:
    with JavaClient(shop.address, shop.destination) as made:
        made.connect()
        made.subscribe()
        yield made


def ids_of(entries: list[bytes]) -> list[int]:
    return [int(row[3]["id"]) for row in rows_of(entries)]


def test_changes_of_all_kinds_arrive_in_order_with_both_images(shop: Shop, client: JavaClient) -> None:
    name = f"{shop.database.name}.orders"
    shop.execute(
        "INSERT INTO orders VALUES (1, 'a'), (2, NULL)", "UPDATE orders SET note = 'b' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2", "ALTER TABLE orders ADD price DECIMAL(9,2)",
        "INSERT INTO orders VALUES (3, 'é', 1.50)",
    )  # fmt: skip
    found: list[bytes] = []
    while len(rows_of(found)) < 6:
        batch, entries = client.get(100)
        found += entries
        client.acknowledge(batch)
    assert rows_of(found) == [
        (1, name, {}, {"id": "1", "note": "a"}),
        (1, name, {}, {"id": "2", "note": None}),
        (2, name, {"id": "1", "note": "a"}, {"id": "1", "note": "b"}),
        (3, name, {"id": "2", "note": None}, {}),
        (5, name, "ALTER TABLE orders ADD price DECIMAL(9,2)"),
        (1, name, {}, {"id": "3", "note": "é", "price": "1.50"}),
    ]
    assert kinds_of(found) == "BREBREBRERBRE"
    assert client.get(100, 200) == (-1, [])


def test_several_batches_are_outstanding_and_acknowledged_in_order(shop: Shop, client: JavaClient) -> None:
    for number in range(1, 7):
        shop.insert(number)
    batches = [client.get(6, LONG_MS) for _ in range(3)]
    assert [ids_of(entries) for _, entries in batches] == [[1, 2], [3, 4], [5, 6]]
    client.acknowledge(batches[0][0])
    client.acknowledge(batches[2][0])  # out of order: refused at the next request, and nothing is lost
    with pytest.raises(ClientError, match="not the first"):
        client.get(6, 100)
    assert client.get(6, 100) == (-1, [])
    client.roll_back(batches[2][0])
    again, entries = client.get(6, LONG_MS)
    assert ids_of(entries) == [5, 6]
    client.roll_back()
    everything = client.get(12, LONG_MS)
    assert ids_of(everything[1]) == [3, 4, 5, 6]
    client.acknowledge(everything[0])
    with pytest.raises(ClientError, match="does not exist"):
        client.acknowledge(again)
        client.get(6, 100)


def test_a_new_connection_begins_behind_the_last_acknowledgement(shop: Shop, client: JavaClient) -> None:
    shop.insert(1)
    shop.insert(2)
    first, _ = client.get(3, LONG_MS)
    client.get(3, LONG_MS)
    client.acknowledge(first)
    client.disconnect()
    client.connect()
    client.subscribe()
    assert ids_of(client.get(3, LONG_MS)[1]) == [2]


def test_a_kill_of_client_or_server_repeats_only_what_was_not_acknowledged(
    own_shop: Shop,
) -> None:
    shop, client = own_shop, JavaClient(own_shop.address, "example")
    client.connect()
    client.subscribe()
    for number in range(1, 4):
        shop.insert(number)
    first, entries = client.get(3, LONG_MS)
    assert ids_of(entries) == [1]
    client.acknowledge(first)
    second, entries = client.get(3, LONG_MS)
    assert ids_of(entries) == [2]
    client.close()
    with JavaClient(shop.address, "example") as other:
        other.connect()
        other.subscribe()
        second, entries = other.get(3, LONG_MS)
        assert ids_of(entries) == [2]
        other.acknowledge(second)
        assert ids_of(other.get(3, LONG_MS)[1]) == [3]  # its answer says that the acknowledgement has arrived
        shop.serving.kill()
        with pytest.raises(ClientError):
            other.get(3)
    shop.insert(4)
    with JavaClient(shop.serving.start(), "example") as other:
        other.connect()
        other.subscribe()
        assert ids_of(other.get(6, LONG_MS)[1]) == [3, 4]


def test_users_log_in_with_scrambled_passwords(source: MySqlServer, tmp_path: Path) -> None:
    users = {"canal": {"password_sha1_sha1": double_sha1(b"secret").hex()}, "other": {"password": "x"}}
    with serving(source, tmp_path, users=users) as server:
        for user, password in (("canal", "secret"), ("other", "x")):
            with JavaClient(server.address, "example", user=user, password=password) as client:
                client.connect()
                client.subscribe()
        for user, password in (("canal", "Secret"), ("canal", ""), ("", ""), ("nobody", "secret")):
            with (
                JavaClient(server.address, "example", user=user, password=password) as client,
                pytest.raises(ClientError, match="auth failed"),
            ):
                client.connect()


def test_the_filter_of_a_client_narrows_its_destination(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id INT PRIMARY KEY)")
    with JavaClient(shop.address, shop.later) as client:
        client.connect()
        client.subscribe(r".*\.items,beside\..*")
        shop.execute("INSERT INTO orders VALUES (1, 'a')", "INSERT INTO items VALUES (7)")
        _, entries = client.get(3, LONG_MS)
        assert [(row[1], row[3]) for row in rows_of(entries)] == [
            (f"{shop.database.name}.items", {"id": "7"})
        ]


def test_clients_of_other_ids_and_destinations_are_independent(shop: Shop, client: JavaClient) -> None:
    shop.insert(1)
    batch, _ = client.get(3, LONG_MS)
    client.acknowledge(batch)
    with JavaClient(shop.address, shop.kib) as other:
        other.connect()
        other.subscribe()
        assert ids_of(other.get(3, LONG_MS)[1]) == [1]
    assert client.get(100, 100) == (-1, [])


def test_what_does_not_exist_is_refused(shop: Shop) -> None:
    with JavaClient(shop.address, "nothing") as client:
        client.connect()
        with pytest.raises(ClientError, match="no destination"):
            client.subscribe()
    with JavaClient(shop.address, shop.destination) as client:
        client.connect()
        with pytest.raises(ClientError, match="regular expression"):
            client.subscribe("shop.[")
        client.subscribe()


def test_a_subscription_that_ends_begins_again_at_the_start(shop: Shop, client: JavaClient) -> None:
    shop.insert(1)
    batch, _ = client.get(3, LONG_MS)
    client.acknowledge(batch)
    client.unsubscribe()
    client.subscribe()
    assert ids_of(client.get(3, LONG_MS)[1]) == [1]
