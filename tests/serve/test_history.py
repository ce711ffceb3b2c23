"""Where clients begin, and with which definitions: the log's past, and its loss."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import Shop
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import LONG_MS, Serving, rows_of, serving

from penstock.client import connect
from penstock.testing import servers
from penstock.testing.servers import Database, MySqlServer


def read_all(server: Serving, count: int = 0, **names: Any) -> list[Any]:
    """At least `count` rows and statements, and all that there are then."""
    found: list[Any] = []
    with RawClient(server.address, **names) as client:
        client.subscribe()
        deadline = time.monotonic() + 30
        while (batch := client.get(1000, 500))[0] != -1 or len(found) < count:
            assert time.monotonic() < deadline, found
            if batch[0] != -1:
                found += rows_of(batch[1])
                client.acknowledge(batch[0])
    return found


def notes(rows: list[Any]) -> list[Any]:
    return [row[3] if len(row) == 4 else row[2].split()[0] for row in rows]


def test_a_client_that_is_far_behind_gets_the_columns_of_then(own_shop: Shop) -> None:
    shop = own_shop
    shop.execute("INSERT INTO orders VALUES (1, 'a')")
    shop.execute("ALTER TABLE orders RENAME COLUMN note TO remark", "INSERT INTO orders VALUES (2, 'b')")
    shop.serving.stop()
    shop.execute("ALTER TABLE orders DROP COLUMN remark, ADD price INT", "INSERT INTO orders VALUES (3, 9)")
    shop.execute("CREATE TABLE more (x INT)", "INSERT INTO more VALUES (5)")
    shop.serving.start()
    expected = [
        {"id": "1", "note": "a"}, "ALTER", {"id": "2", "remark": "b"}, "ALTER", {"id": "3", "price": "9"},
        "CREATE", {"x": "5"},
    ]  # fmt: skip
    assert notes(read_all(shop.serving, len(expected))) == expected
    shop.serving.kill()
    shop.serving.start()
    assert read_all(shop.serving) == []
    assert notes(read_all(shop.serving, client_id="another")) == expected


def test_who_reads_the_whole_log_after_a_restart_gets_the_columns_of_then(
    source: MySqlServer, tmp_path: Path
) -> None:
    """Also if all clients of the server have acknowledged what is behind them."""
    database = Database(source)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    destinations = {"example": {"filter": rf"{database.name}\..*", "start": "latest"}}
    listen = {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    with serving(source, tmp_path, destinations=destinations, listen=listen) as server:
        read_all(server)
        database.execute("INSERT INTO t VALUES (1, 2, 3)")
        for change in ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "ADD c INT"):
            database.execute(f"ALTER TABLE t {change}")
            read_all(server, 1)
        server.stop()
        server.start()
        with connect(server.listening["grpc"]) as flight, flight.read("example", start="earliest") as batches:
            row = next(batches).changes[0]["after"]
        assert row == {"id": 1, "a": 2, "b": 3}


def test_statements_that_change_rows_come_also_without_those_that_define_tables(
    source: MySqlServer, tmp_path: Path
) -> None:
    database = Database(source)
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 2)",
        "SET SESSION binlog_format = STATEMENT", "UPDATE t SET a = 7",
    )  # fmt: skip
    options = {"filter": rf"{database.name}\..*", "start": "earliest", "ddl": False}
    both = {"rows": options, "nothing": options | {"row_statements": False}}
    with serving(source, tmp_path, destinations=both) as server:
        row = {"id": "1", "a": "2"}
        assert notes(read_all(server, 2, destination="rows")) == [row, "UPDATE"]
        assert notes(read_all(server, 1, destination="nothing")) == [row]


def test_rows_that_a_statement_loads_come_as_the_statement(source: MySqlServer, tmp_path: Path) -> None:
    """In statement format, the log has the file itself and an event of its own for LOAD DATA."""
    database = Database(source)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    rows = tmp_path / "rows.txt"
    rows.write_text("1\n2\n")
    source.execute("SET GLOBAL local_infile = ON")
    with source.connect(local_infile=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute(f"LOAD DATA LOCAL INFILE '{rows}' INTO TABLE {database.name}.t")
    destinations = {"example": {"filter": rf"{database.name}\..*", "start": "earliest"}}
    with serving(source, tmp_path, destinations=destinations) as server:
        assert notes(read_all(server, 3)) == ["CREATE", "CREATE", "LOAD"]  # a database, a table, rows


def test_a_log_from_the_sources_beginning_has_definitions_from_its_statements(
    source: MySqlServer, tmp_path: Path
) -> None:
    database = Database(source)
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 2)",
        "ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (2)", "RENAME TABLE t TO u",
        "INSERT INTO u VALUES (3)",
    )  # fmt: skip
    destination = {"filter": rf"{database.name}\..*", "start": "earliest"}
    with serving(source, tmp_path, destinations={"example": destination}) as server:
        assert notes(read_all(server, 7)) == [
            "CREATE", "CREATE", {"id": "1", "a": "2"}, "ALTER", {"id": "2"}, "RENAME", {"id": "3"},
        ]  # fmt: skip


def test_rows_whose_definition_is_not_known_are_refused_by_name(source: MySqlServer, tmp_path: Path) -> None:
    database = Database(source)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "CREATE TABLE v (id INT PRIMARY KEY)")
    source.execute("FLUSH BINARY LOGS")
    file, _ = source.position()
    database.execute("INSERT INTO v VALUES (7)", "INSERT INTO t VALUES (1, 2)", "ALTER TABLE t DROP COLUMN a")
    database.execute("INSERT INTO t VALUES (2)")
    account = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
    options = {
        "source": {**account, "start": {"file": file, "position": 4}},
        "destinations": {
            "example": {"filter": rf"{database.name}\..*", "start": "earliest"},
            "without": {"filter": rf"{database.name}\..*", "exclude": r".*\.t", "start": "earliest"},
        },
    }
    with serving(source, tmp_path, **options) as server:
        with RawClient(server.address) as client:
            client.subscribe()
            assert notes(rows_of(client.get(3, LONG_MS)[1])) == [{"id": "7"}]
            with pytest.raises(Failed, match=rf"{database.name}\.t "):
                client.get(3, LONG_MS)
        assert notes(read_all(server, 1, destination="without")) == [{"id": "7"}]


def test_a_client_begins_at_a_place_of_the_source(source: MySqlServer, tmp_path: Path) -> None:
    database = Database(source)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    file, position = source.position()
    executed = source.query("SELECT @@gtid_executed")[0][0].replace("\n", "")
    moment = source.query("SELECT DATE_FORMAT(UTC_TIMESTAMP(6) + INTERVAL 1 SECOND, '%Y-%m-%dT%TZ')")[0][0]
    database.execute("DO SLEEP(2.1)", "ALTER TABLE t ADD COLUMN n INT", "INSERT INTO t VALUES (2, 9)")
    starts = {"at": {"file": file, "position": position}, "set": {"gtid": executed},
              "time": {"timestamp": moment}}  # fmt: skip
    destinations = {
        name: {"filter": rf"{database.name}\..*", "start": start} for name, start in starts.items()
    }
    with serving(source, tmp_path, destinations=destinations) as server:
        for name in starts:
            found = notes(read_all(server, 2, destination=name))
            assert found == ["ALTER", {"id": "2", "n": "9"}], name


def test_a_place_at_which_no_client_can_begin_is_refused_with_the_reason(
    source: MySqlServer, tmp_path: Path
) -> None:
    database = Database(source)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    file, position = source.position()
    database.execute("BEGIN", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "COMMIT")
    inside = source.query(f"SHOW BINLOG EVENTS IN '{file}' FROM {position} LIMIT 4, 1")[0][1]
    uuid = source.variable("server_uuid")
    starts = {
        "inside": ({"file": file, "position": inside}, f"transaction. It begins at {file}:{position}"),
        "behind": ({"file": "binlog.999999", "position": 4}, "before binlog.999999:4"),
        "unknown": ({"gtid": f"{uuid}:1-99999999"}, "does not have"),
        "early": ({"gtid": "00000000-0000-0000-0000-000000000000:1"}, "begins behind"),
        "first": ({"file": file, "position": 4}, "begins behind"),
    }  # fmt: skip
    destinations = {
        name: {"filter": rf"{database.name}\..*", "start": start} for name, (start, _) in starts.items()
    }
    options = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
    begin = {**options, "start": {"file": file, "position": position}}
    with serving(source, tmp_path, source=begin, destinations=destinations) as server:
        for name, (_, reason) in starts.items():
            with RawClient(server.address, destination=name) as client, pytest.raises(Failed) as error:
                client.subscribe()
            assert reason in str(error.value), name


def test_a_client_begins_where_a_file_of_the_source_begins(source: MySqlServer, tmp_path: Path) -> None:
    """At 4, as Canal's users write it. The log's first transaction is behind the events that describe the
    file."""
    source.execute("FLUSH BINARY LOGS")
    file, _ = source.position()
    database = Database(source)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    at = {"file": file, "position": 4}
    account = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
    destinations = {"example": {"filter": rf"{database.name}\..*", "start": at}}
    with serving(source, tmp_path, source={**account, "start": at}, destinations=destinations) as server:
        assert notes(read_all(server, 3)) == ["CREATE", "CREATE", {"id": "1"}]  # of the database, too


@pytest.mark.parametrize("knows_source", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_log_of_another_receiver_is_read_and_followed(
    source: MySqlServer, tmp_path: Path, knows_source: bool
) -> None:
    database = Database(source)
    destination = {"filter": rf"{database.name}\..*", "start": "earliest"}
    options: dict[str, Any] = {"destinations": {"example": destination}}
    if not knows_source:  # then it has only what the log says
        source.execute("SET GLOBAL binlog_row_metadata = FULL")
    try:
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, b INT)", "INSERT INTO t VALUES (1, 2)")
        with serving(source, tmp_path / "first", **options) as first:
            read_all(first, 2)
            options["relay_log"] = {"path": str(tmp_path / "first" / "relay")}
            options |= {} if knows_source else {"source": None, "positions": {"type": "memory"}}
            with serving(source, tmp_path / "second", name="second", **options) as second:
                assert notes(read_all(second, 3)) == ["CREATE", "CREATE", {"id": "1", "b": "2"}]
                database.execute("INSERT INTO t VALUES (2, 3)")
                expected = [{"id": "2", "b": "3"}]
                assert notes(read_all(second, 1))[-1:] == expected
                assert notes(read_all(first, 1)) == expected
    finally:
        source.execute("SET GLOBAL binlog_row_metadata = MINIMAL")


@pytest.mark.slow
def test_mariadbs_sequences_oracle_types_and_tables_from_partitions_are_read(tmp_path: Path) -> None:
    with servers.mariadb1011() as server:
        server.execute(
            "CREATE DATABASE shop", "USE shop", "CREATE SEQUENCE s START WITH 5", "SELECT NEXTVAL(s)",
            "SET sql_mode = ORACLE", "CREATE TABLE o (id NUMBER(5) PRIMARY KEY, d DATE)",
            "INSERT INTO o VALUES (1, '2020-01-02 03:04:05')", "SET sql_mode = DEFAULT",
            "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (9), "
            "PARTITION b VALUES LESS THAN (99))", "ALTER TABLE p CONVERT PARTITION b TO TABLE q",
            "INSERT INTO q VALUES (7)",
        )  # fmt: skip
        with serving(server, tmp_path) as made:
            rows = [row[3] for row in read_all(made, 8) if len(row) == 4]
        [(next_value, cache)] = server.query("SELECT next_not_cached_value, cache_size FROM shop.s")
    assert rows[0]["next_not_cached_value"] == str(next_value) and rows[0]["cache_size"] == str(cache)
    assert rows[1:] == [{"id": "1", "d": "2020-01-02 03:04:05"}, {"id": "7"}]
