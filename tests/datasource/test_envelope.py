"""`mysql_cdc` with many tables in one stream."""

from __future__ import annotations

import base64
import decimal
import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.datasource.test_stream import Following, Make, account, following  # noqa: F401
from tests.sources.mysql.receiving import receiving

from penstock.datasource.envelope import objects
from penstock.testing.servers import Database, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def found(stream: Following, kind: str | None = None) -> list[tuple[Any, ...]]:
    """Table, kind of change, key and row."""
    rows = stream.rows("_table", "_change_type", "key", "row")
    return [
        (table, change, key and json.loads(key), row and json.loads(row))
        for table, change, key, row in rows
        if kind in (None, change)
    ]


def test_objects_have_the_values_of_rows() -> None:
    strange = 'a "quoted"\\ \n\x01 тест 😀'
    columns: dict[str, pa.Array] = {
        "i": pa.array([1, None, -(2**63)]),
        "d": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-0.01")], pa.decimal128(9, 2)),
        'a "name"': pa.array(["plain", None, strange]),
        "f": pa.array([0.1, None, 1e300]),
        "small": pa.array([0.1, None, 2.5], pa.float32()),
        "b": pa.array([b"\x00\xff", None, b""]),
        "t": pa.array([datetime(2026, 1, 2, 3, 4, 5, 678900, timezone.utc), None, None]),
        "yes": pa.array([True, None, False]),
    }
    made = [json.loads(one) for one in objects(columns).to_pylist()]
    assert made[0] == {
        "i": 1, "d": "1.50", 'a "name"': "plain", "f": 0.1, "small": 0.1,
        "b": base64.b64encode(b"\x00\xff").decode(), "t": "2026-01-02 03:04:05.678900", "yes": True,
    }  # fmt: skip
    assert made[1] == dict.fromkeys(columns)
    assert made[2]['a "name"'] == strange and made[2]["i"] == -(2**63) and made[2]["f"] == 1e300
    assert made[2]["d"] == "-0.01"


def test_tables_come_and_change_and_the_query_goes_on(
    following: Make,  # noqa: F811
    mysql: Database,
) -> None:
    mysql.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, price DECIMAL(9,2))",
        "CREATE TABLE b (x INT, y VARCHAR(9), PRIMARY KEY (y, x))",
        "INSERT INTO a VALUES (1, 1.50), (2, NULL)",
        "INSERT INTO b VALUES (7, 'q')",
    )
    stream = following(None, tables=f"{mysql.name}.*", **account(mysql.server))
    stream.start()
    stream.wait(3)
    assert sorted(found(stream), key=str) == [
        ("a", "read", {"id": 1}, {"id": 1, "price": "1.50"}),
        ("a", "read", {"id": 2}, {"id": 2, "price": None}),
        ("b", "read", {"x": 7, "y": "q"}, {"x": 7, "y": "q"}),
    ]
    mysql.execute(
        "UPDATE a SET price = 3 WHERE id = 2",
        "ALTER TABLE a ADD note VARCHAR(9) DEFAULT 'n'",
        "INSERT INTO a VALUES (3, 0, 'new')",
        "CREATE TABLE c (z INT)",
        "INSERT INTO c VALUES (5)",
        "DELETE FROM b",
    )
    stream.wait(8)
    stream.stop()
    mysql.execute("TRUNCATE TABLE a", "DROP TABLE b", "RENAME TABLE c TO d", "INSERT INTO d VALUES (6)")
    stream.start()
    stream.wait(11)
    assert found(stream)[3:9] == [
        ("a", "update_preimage", {"id": 2}, {"id": 2, "price": None}),
        ("a", "update_postimage", {"id": 2}, {"id": 2, "price": "3.00"}),
        ("a", "insert", {"id": 3}, {"id": 3, "price": "0.00", "note": "new"}),
        ("c", "insert", None, {"z": 5}),
        ("b", "delete", {"x": 7, "y": "q"}, {"x": 7, "y": "q"}),
        ("a", "truncate", None, None),
    ]
    renamed = found(stream)[9:]
    assert [(row[0], row[3]["z"]) for row in renamed] == [("d", 5), ("d", 6)]
    assert renamed[0][1] == "read"
    assert {row[0] for row in stream.rows("_database")} == {mysql.name}
    places = stream.rows("_transaction", "_source_position", "_commit_timestamp")
    assert all(all(row) for row in places[3:8])


def test_rows_that_changed_without_events_are_read_again(
    following: Make,  # noqa: F811
    mysql: Database,
) -> None:
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
        "(PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (100))",
        "INSERT INTO t VALUES (1), (2), (20)",
    )
    stream = following(None, tables=f"{mysql.name}.*", **account(mysql.server))
    stream.start()
    stream.wait(3)
    mysql.execute("ALTER TABLE t TRUNCATE PARTITION low", "INSERT INTO t VALUES (30)")
    stream.wait(6)
    rows = found(stream)[3:]
    assert rows[0][1] == "truncate"
    assert [row[2] for row in rows[1:]] == [{"id": 20}, {"id": 30}] and rows[1][1] == "read"


@pytest.mark.slow
def test_a_table_that_cannot_be_followed_is_told_and_the_others_go_on(
    following: Make,  # noqa: F811
    mysql: Database,
) -> None:
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO other VALUES (1)",
    )
    stream = following(None, tables=f"{mysql.name}.t, {mysql.name}.oth*", **account(mysql.server))
    stream.start()
    stream.wait(1)
    mysql.execute("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES other (id) ON DELETE CASCADE")
    with pytest.raises(Exception, match=r"cannot be followed any further.*\.t: .*foreign key"):
        stream.wait(9)
    mysql.execute("INSERT INTO other VALUES (2)", "INSERT INTO t VALUES (1, 1)")
    stream.start()
    stream.wait(2)
    assert [row[:3] for row in found(stream)] == [
        ("other", "read", {"id": 1}),
        ("other", "insert", {"id": 2}),
    ]


def test_rows_can_be_variants(following: Make, mysql: Database, spark: SparkSession) -> None:  # noqa: F811
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9))", "INSERT INTO t VALUES (1, 'x'), (2, NULL)"
    )
    stream = following(None, tables=f"{mysql.name}.*", rows="variant", **account(mysql.server))
    query = stream.load().writeStream.format("memory").queryName("variants").trigger(availableNow=True)
    query.option("checkpointLocation", str(stream.folder / "checkpoint")).start().awaitTermination(120)
    got = spark.sql(
        "SELECT variant_get(key, '$.id', 'int') AS k, row:a::string AS a FROM variants ORDER BY k"
    )
    assert [tuple(row) for row in got.collect()] == [(1, "x"), (2, None)]


def test_the_past_of_many_tables_is_a_table(
    spark: SparkSession,
    following: Make,  # noqa: F811
    mysql_factory: Callable[..., MySqlServer],
    tmp_path: Path,
) -> None:
    server = mysql_factory(binlog_row_metadata="FULL")
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, a INT)")
    with receiving(server, tmp_path / "receiver") as receiver:
        server.execute(
            "INSERT INTO shop.t VALUES (1, 1)",
            "ALTER TABLE shop.t ADD b INT",
            "CREATE TABLE shop.u (n INT)",
            "INSERT INTO shop.u VALUES (1)",
            "UPDATE shop.t SET b = 5",
            "TRUNCATE TABLE shop.t",
        )
        receiver.wait_until_level()
        reader = spark.read.format("mysql_cdc").options(relayLog=str(receiver.log_path), tables="shop.*")
        rows = reader.load().orderBy("_sequence").select("_table", "_change_type", "row").collect()
        assert [(table, kind, row and json.loads(row)) for table, kind, row in rows] == [
            ("t", "insert", {"id": 1, "a": 1}),
            ("u", "insert", {"n": 1}),
            ("t", "update_preimage", {"id": 1, "a": 1, "b": None}),
            ("t", "update_postimage", {"id": 1, "a": 1, "b": 5}),
            ("t", "truncate", None),
        ]
        stream = following(None, tables="shop.*", relayLog=receiver.log_path, maxBytesPerTrigger="1KiB")
        stream.start()
        stream.wait(5)
        server.execute("ALTER TABLE shop.u ADD m INT", "INSERT INTO shop.u VALUES (2, 3)")
        stream.wait(6)
        assert found(stream)[-1] == ("u", "insert", None, {"n": 2, "m": 3})
