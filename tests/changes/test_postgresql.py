"""Changes of PostgreSQL, read from a relay log without Spark. The judge is the server's SELECT."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected
from tests.sources.postgresql.receiving import Receiving

from penstock.changes.log_order import Transaction
from penstock.changes.opening import follow
from penstock.changes.reader import ChangeBatch, Committed, TableChanged
from penstock.model.offset import Offset
from penstock.testing.servers.postgresql import PostgreSqlServer

STATEMENTS = (
    "INSERT INTO orders SELECT i, 'n' || i, i * 1.25 FROM generate_series(1, 50) i",
    "UPDATE orders SET note = 'b' WHERE id < 5",
    "UPDATE orders SET id = id + 100 WHERE id IN (3, 30)",
    "DELETE FROM orders WHERE id BETWEEN 10 AND 12",
    "ALTER TABLE orders ADD COLUMN more int DEFAULT 7",
    "INSERT INTO orders VALUES (200, NULL, 3, 8)",
    "UPDATE orders SET more = 9 WHERE id = 40",
)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[Receiving, psycopg.Connection[Any]]]:
    """A receiver that is not started, and a connection to its server."""
    with (
        PostgreSqlServer(settings={"wal_level": "logical"}) as server,
        connected(server) as connection,
    ):
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text, price numeric(9,2))")
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute("CREATE PUBLICATION penstock_p FOR ALL TABLES")
        yield Receiving(server, tmp_path, "p"), connection


@pytest.fixture
def source(stopped: tuple[Receiving, psycopg.Connection[Any]]) -> Iterator[tuple[Receiving, Any]]:
    receiving, connection = stopped
    with receiving.started():
        receiving.wait_until_streaming()
        receiving.wait_until_received(connection)
        yield stopped


def write(receiving: Receiving, connection: psycopg.Connection[Any]) -> Offset:
    """Returns where the log ends with all that was written."""
    for statement in STATEMENTS:
        connection.execute(statement.encode())
    receiving.wait_until_received(connection)
    return receiving.log().end


def selected(connection: psycopg.Connection[Any]) -> dict[int, dict[str, Any]]:
    cursor = connection.execute("SELECT * FROM orders")
    names = [one.name for one in cursor.description or ()]
    return {row[0]: dict(zip(names, row, strict=True)) for row in cursor}


def test_the_changes_of_a_table_lead_to_its_rows(source: tuple[Receiving, Any]) -> None:
    rows: dict[int, dict[str, Any]] = {}
    definitions = []
    with follow(source[0].file, ["public.orders"]) as changes:
        end = write(*source)
        for item in changes:
            if isinstance(item, Committed) and item.offset >= end:
                break
            if isinstance(item, TableChanged):
                definitions.append(item)
            if not isinstance(item, ChangeBatch):
                continue
            for row in item.batch.to_pylist():
                values = {name: value for name, value in row.items() if name[0] != "_"}
                if row["_change_type"] in ("delete", "update_preimage"):
                    del rows[row["id"]]
                else:
                    rows[row["id"]] = values
    wanted = selected(source[1])
    # A constant default is in no event: rows from before it have what the definition says.
    assert {id: {"more": 7, **row} for id, row in rows.items()} == wanted
    assert [one.unseen for one in definitions] == [""]


def test_transactions_come_whole_in_the_order_of_the_log(source: tuple[Receiving, Any]) -> None:
    rows: dict[int, dict[str, Any]] = {}
    sizes = list[int]()
    with follow(source[0].file, ["public.orders"], order="log") as transactions:
        end = write(*source)
        for item in transactions:
            if isinstance(item, Committed) and item.offset >= end:
                break
            if not isinstance(item, Transaction):
                continue
            messages = [json.loads(one.value or b"") for one in item.messages]
            sizes.append(len(messages))
            for message in messages:
                before, after = message.get("before"), message.get("after")
                if before is not None:
                    rows.pop(before["id"], None)
                if after is not None:
                    rows[after["id"]] = after
    assert [size for size in sizes if size] == [50, 4, 2, 3, 1, 1]
    assert rows.keys() == selected(source[1]).keys()


ALTERED = (
    "SELECT",
    "ALTER TABLE orders RENAME note TO remark",
    "ALTER TABLE orders DROP price, ADD price numeric(9,2)",
    "ALTER TABLE orders ALTER price TYPE text USING 'p' || price",
    "ALTER TABLE orders DROP remark, ADD remark int DEFAULT 5",
    "ALTER TABLE orders RENAME price TO p",
    "ALTER TABLE orders RENAME remark TO price",
    "ALTER TABLE orders RENAME p TO remark",
)


def test_rows_have_the_definition_of_their_time_though_all_of_it_comes_at_once(
    stopped: tuple[Receiving, Any],
) -> None:
    receiving, connection = stopped
    with receiving.started():
        receiving.wait_until_streaming()
        receiving.wait_until_received(connection)
    with follow(receiving.file, ["public.orders"], order="log") as transactions:
        selected = list[dict[str, Any]]()
        for number, alter in enumerate(ALTERED):
            connection.execute(alter.encode())
            connection.execute(f"INSERT INTO orders VALUES ({number}, {number}1, {number}2)".encode())
            query = f"SELECT to_jsonb(orders) FROM orders WHERE id = {number}"
            [(row,)] = connection.execute(query.encode()).fetchall()
            selected.append(row)
        with receiving.started():
            receiving.wait_until_received(connection)
        end = receiving.log().end
        found = list[dict[str, Any]]()
        for item in transactions:
            if isinstance(item, Committed) and item.offset >= end:
                break
            if isinstance(item, Transaction):
                found += [json.loads(one.value or b"")["after"] for one in item.messages]
    assert [{name: str(value) for name, value in one.items()} for one in found] == [
        {name: f"{value:.2f}" if isinstance(value, float) else str(value) for name, value in one.items()}
        for one in selected
    ]
