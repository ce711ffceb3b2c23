"""Streams of one table with its columns: `Server.subscribe_table`."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from tests.serve.conftest import database_of
from tests.serve.serving import Serving, eventually, serving

from penstock.client import Server, TableBatch, TableStream, connect, connect_async
from penstock.errors import ConfigError
from penstock.testing.servers import Database, MySqlServer


@pytest.fixture(scope="module")
def source() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        yield server


class Shop:
    def __init__(self, database: Database, serving: Serving, server: Server) -> None:
        self.database, self.serving, self.server = database, serving, server
        self.orders = f"{database.name}.orders"

    def stream(self, client: str = "billing") -> TableStream:
        return self.server.subscribe_table("shop", client, self.orders)


@pytest.fixture
def shop(source: MySqlServer, tmp_path: Path) -> Iterator[Shop]:
    database = database_of(source, f"typed_{tmp_path.name[-20:].replace('-', '_')}")
    destinations = {
        "shop": {"filter": rf"{database.name}\..*", "start": "earliest"},
        "few": {
            "filter": rf"{database.name}\..*", "start": "earliest",
            "exclude_columns": {f"{database.name}.orders": ["note"]},
        },
    }  # fmt: skip
    listen = {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    with (
        serving(source, tmp_path, listen=listen, destinations=destinations) as made,
        connect(made.listening["grpc"]) as server,
    ):
        yield Shop(database, made, server)


def rows_of(batch: TableBatch) -> list[tuple[str, int]]:
    columns = (batch.rows.column(name).to_pylist() for name in ("_change_type", "id"))
    return list(zip(*columns, strict=True))


def read(stream: TableStream, count: int) -> list[tuple[str, int]]:
    """Rows of batches, which are acknowledged."""
    found: list[tuple[str, int]] = []
    while len(found) < count:
        batch = next(stream)
        found += rows_of(batch)
        batch.acknowledge()
    return found


def test_rows_have_the_columns_of_their_table(shop: Shop) -> None:
    shop.database.execute("INSERT INTO orders VALUES (1, 'a'), (2, NULL)", "DELETE FROM orders WHERE id = 2")
    with shop.stream() as stream:
        assert (
            stream.schema.field("id").type == pa.int32() and stream.schema.field("note").type == pa.string()
        )
        assert read(stream, 3) == [("insert", 1), ("insert", 2), ("delete", 2)]
    with shop.server.subscribe_table("few", "billing", shop.orders) as stream:
        assert "note" not in stream.schema.names
        batch = next(one for one in stream if one.rows.num_rows)
        assert "note" not in batch.rows.column_names
        year = batch.rows.column("_commit_timestamp")[0].as_py().year
        assert year == datetime.datetime.now(datetime.timezone.utc).year


def test_a_stream_begins_before_its_table_was_created(source: MySqlServer, tmp_path: Path) -> None:
    """What the source had when the receiver began is one span of the log's index: CREATE TABLE, and rows
    under two definitions."""
    source.execute("FLUSH BINARY LOGS")
    account = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
    begin = {**account, "start": {"file": source.binlog_files()[-1].name, "position": 4}}
    database = database_of(source, "typed_early")
    database.execute("INSERT INTO orders VALUES (1, 'a')", "ALTER TABLE orders ADD amount INT")
    database.execute("INSERT INTO orders VALUES (2, 'b', 3)")
    destinations = {"shop": {"filter": rf"{database.name}\..*", "start": "earliest"}}
    listen = {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    found: list[tuple[str, int]] = []
    with (
        serving(source, tmp_path, source=begin, listen=listen, destinations=destinations) as made,
        connect(made.listening["grpc"]) as server,
    ):
        while len(found) < 2:
            with server.subscribe_table("shop", "billing", f"{database.name}.orders") as stream:
                while len(found) < 2 and (batch := next(stream, None)) is not None:
                    found += rows_of(batch)
                    batch.acknowledge()
    assert found == [("insert", 1), ("insert", 2)]


def test_a_stream_ends_when_the_columns_change_and_the_next_one_goes_on(shop: Shop) -> None:
    shop.database.execute(
        "INSERT INTO orders VALUES (1, 'a')",
        "ALTER TABLE orders ADD amount DECIMAL(10, 2)",
        "INSERT INTO orders VALUES (2, 'b', 1.5)",
    )
    statements: list[str] = []
    found: list[tuple[str, int]] = []
    schemas: list[pa.Schema] = []
    while len(found) < 2:
        with shop.stream() as stream:
            schemas.append(stream.schema)
            for batch in stream:
                found += rows_of(batch)
                statements += [batch.statement["kind"]] if batch.statement else []
                time.sleep(0.2)  # meanwhile the server sees that the next rows have other columns
                batch.acknowledge()
                if len(found) == 2:
                    break
            else:
                assert stream.schema_changed
    assert found == [("insert", 1), ("insert", 2)]
    assert statements == ["CREATE", "ALTER"][-len(statements) :]
    assert ["amount" in one.names for one in schemas] == [False, True]


def test_a_statement_that_empties_the_table_is_told(shop: Shop) -> None:
    shop.database.execute("INSERT INTO orders VALUES (1, 'a')")
    with shop.stream() as stream:
        assert read(stream, 1) == [("insert", 1)]
        shop.database.execute("TRUNCATE TABLE orders", "INSERT INTO orders VALUES (3, 'c')")
        batch = next(stream)
        assert batch.statement is not None and batch.statement["kind"] == "TRUNCATE"
        batch.acknowledge()
        assert read(stream, 1) == [("insert", 3)]


def test_each_statement_in_a_transaction_is_told_and_rows_behind_it_have_their_columns(shop: Shop) -> None:
    shop.database.execute(
        "INSERT INTO orders VALUES (1, 'a')",
        "SET SESSION binlog_format = STATEMENT", "BEGIN",
        "UPDATE orders SET note = 'x'", "UPDATE orders SET note = 'y'", "COMMIT",
        "SET SESSION binlog_format = ROW", "ALTER TABLE orders RENAME COLUMN note TO remark",
        "INSERT INTO orders VALUES (2, 'b')",
    )  # fmt: skip
    told: list[str] = []
    rows: list[dict[str, object]] = []
    while len(rows) < 2:
        with shop.stream() as stream:
            for batch in stream:
                if batch.statement is not None:
                    told.append(batch.statement["sql"].split()[0] + batch.statement["sql"][-3:])
                rows += batch.rows.select(stream.schema.names[:2]).to_pylist()
                batch.acknowledge()
                if len(rows) == 2:
                    break
    assert told[-3:] == ["UPDATE'x'", "UPDATE'y'", "ALTERark"]
    assert rows == [{"id": 1, "note": "a"}, {"id": 2, "remark": "b"}]


def test_a_client_id_of_one_table_cannot_go_on_with_another(shop: Shop) -> None:
    """What that has before the client's place would be left out without a word."""
    shop.database.execute("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1, 'a')")
    with shop.stream() as stream:
        read(stream, 1)
    items = f"{shop.database.name}.items"
    with pytest.raises(ConfigError, match="another table"):
        shop.server.subscribe_table("shop", "billing", items)

    def unsubscribed() -> bool:
        with suppress(ConfigError):  # the server may not have seen yet that the stream has ended
            shop.server.unsubscribe("shop", "billing", table=shop.orders)
            return True
        return False

    eventually(unsubscribed, "the end of the stream")
    with shop.server.subscribe_table("shop", "billing", items) as stream:
        assert stream.schema.names[0] == "id"


def test_what_was_not_acknowledged_comes_again_also_from_another_process(shop: Shop) -> None:
    shop.database.execute("INSERT INTO orders VALUES (1, 'a')")
    with shop.stream() as stream:
        assert read(stream, 1) == [("insert", 1)]
        shop.database.execute("INSERT INTO orders VALUES (2, 'b')")
        batch = next(stream)
        assert rows_of(batch) == [("insert", 2)]
        batch.roll_back()
        assert rows_of(next(stream)) == [("insert", 2)]
    shop.serving.kill()
    shop.serving.start()
    with (
        connect(shop.serving.listening["grpc"]) as server,
        server.subscribe_table("shop", "billing", shop.orders) as stream,
    ):
        assert read(stream, 1) == [("insert", 2)]


def test_programs_with_an_event_loop_read_tables_too(shop: Shop) -> None:
    async def read() -> list[tuple[str, int]]:
        async with (
            connect_async(shop.serving.listening["grpc"]) as server,
            server.subscribe_table("shop", "async", shop.orders) as stream,
        ):
            found: list[tuple[str, int]] = []
            async for batch in stream:
                found += rows_of(batch)
                await server.acknowledge(batch)
                if len(found) >= 2:
                    break
            return found

    shop.database.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    assert asyncio.run(asyncio.wait_for(read(), 30)) == [("insert", 1), ("insert", 2)]


def test_a_table_that_is_not_there_is_refused(shop: Shop) -> None:
    for table, said in (("x.y", "no table"), (f"{shop.database.name}.none", "no table"), ("orders", "name")):
        with pytest.raises(ConfigError, match=said):
            shop.server.subscribe_table("shop", "billing", table)
    # The client's place is free.
    with shop.stream() as stream:
        shop.database.execute("INSERT INTO orders VALUES (1, 'a')")
        assert read(stream, 1) == [("insert", 1)]
