"""Whole transactions in log order, from a relay log of a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.mysql.receiving import Receiving, receiving

from penstock.changes import Committed, TableChanged, Transaction, follow, log_order
from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.testing.servers import MySqlServer

Source = tuple[MySqlServer, Receiving]


@pytest.fixture
def source(emptied_mysql: Callable[..., MySqlServer], tmp_path: Path) -> Iterator[Source]:
    server = emptied_mysql()
    server.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(400))",
        "CREATE TABLE shop.others (id INT PRIMARY KEY)",
        "CREATE TABLE shop.unread (id INT PRIMARY KEY)",
    )
    with receiving(server, tmp_path, start="latest") as receiver:
        receiver.wait_until_level()
        yield server, receiver


Read = Callable[[], list[Any]]


def reading(source: Source, **options: Any) -> Read:
    """What is written between now and the call of the result."""
    _, receiver = source
    changes = follow(receiver.file, ["shop.orders", "shop.others"], order="log", **options)

    def read() -> list[Any]:
        receiver.wait_until_level()
        found = []
        with changes:
            for item in changes:
                if not isinstance(item, Committed):
                    found.append(item)
                elif item.offset >= receiver.log.end:
                    break
        return found

    return read


def test_transactions_are_whole_and_in_order_over_all_tables(source: Source) -> None:
    server, _ = source
    read = reading(source)
    server.execute(
        "BEGIN",
        "INSERT INTO shop.orders VALUES (1, 'a')",
        "INSERT INTO shop.unread VALUES (1)",
        "INSERT INTO shop.others VALUES (1)",
        "UPDATE shop.orders SET note = 'b'",
        "COMMIT",
        "INSERT INTO shop.unread VALUES (2)",
        "DELETE FROM shop.others",
    )
    first, second = read()
    orders, others = TableId("shop", "orders"), TableId("shop", "others")
    assert [message.table for message in first.messages] == [orders, others, orders]
    assert [message.table for message in second.messages] == [others]
    values = [json.loads(message.value) for message in (*first.messages, *second.messages)]
    assert [value["op"] for value in values] == ["c", "c", "u", "d"]
    assert values[2]["after"] == {"id": 1, "note": "b"}
    assert first.offset < second.offset and first.id != second.id and first.xid is not None
    executed = server.query("SELECT @@gtid_executed")[0][0]
    assert executed.startswith(first.id.partition(":")[0])


def test_a_definition_changes_between_the_transactions_around_its_statement(source: Source) -> None:
    server, _ = source
    read = reading(source)
    server.execute(
        "INSERT INTO shop.orders VALUES (1, 'a')",
        "ALTER TABLE shop.orders RENAME COLUMN note TO remark",
        "INSERT INTO shop.orders VALUES (2, 'b')",
    )
    before, changed, after = read()
    assert isinstance(changed, TableChanged) and changed.table == TableId("shop", "orders")
    assert json.loads(before.messages[0].value)["after"] == {"id": 1, "note": "a"}
    assert json.loads(after.messages[0].value)["after"] == {"id": 2, "remark": "b"}


def test_ranges_decoded_side_by_side_are_joined_in_order(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = source
    one, other = reading(source, format="maxwell"), reading(source, format="maxwell")
    for number in range(40):
        server.execute(
            "BEGIN",
            f"INSERT INTO shop.orders VALUES ({number}, REPEAT('x', 300))",
            f"INSERT INTO shop.others VALUES ({number})",
            "COMMIT",
        )
    whole = one()
    # Also where the messages of a transaction are in several pieces.
    monkeypatch.setattr(log_order, "READ_BYTES", 100)
    monkeypatch.setattr(log_order, "PART_BYTES", 2000)
    assert other() == whole
    assert [json.loads(one.messages[0].value)["data"]["id"] for one in whole] == list(range(40))
    assert all(isinstance(one, Transaction) for one in whole)


def test_a_format_that_does_not_exist_is_refused(source: Source) -> None:
    with pytest.raises(ConfigError, match="no format `nonsense`"):
        reading(source, format="nonsense")


def test_rows_of_an_xa_transaction_come_once_at_its_commit(source: Source) -> None:
    server, _ = source
    read = reading(source)
    server.execute(
        "XA START 'x'",
        "INSERT INTO shop.orders VALUES (1, 'prepared')",
        "XA END 'x'",
        "XA PREPARE 'x'",
    )
    server.execute("INSERT INTO shop.orders VALUES (2, 'before the commit')")
    server.execute("XA COMMIT 'x'")
    found = read()
    rows = [json.loads(message.value)["after"]["note"] for one in found for message in one.messages]
    assert rows == ["before the commit", "prepared"]
