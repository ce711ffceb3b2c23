"""`spark.read.format("mysql_cdc")` over a relay log of a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.mysql.receiving import receiving

from penstock.datasource.definitions import Definitions, Known
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema
from penstock.testing.servers import Database, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]


def test_a_part_of_the_past_is_a_table(
    spark: SparkSession, mysql_factory: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = mysql_factory(binlog_row_metadata="FULL")
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(9))")

    def rows(*columns: str, table: str = "shop.t", start: Any = "earliest", to: Any = "latest") -> list[Row]:
        reader = spark.read.format("mysql_cdc").options(relayLog=str(receiver.log_path), table=table)
        reader = reader.option("from", str(start)).option("to", str(to))
        return [tuple(row) for row in reader.load().orderBy("_sequence").select(*columns).collect()]

    with receiving(server, tmp_path) as receiver:
        server.execute(
            "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')", "UPDATE shop.t SET a = 'c' WHERE id = 1"
        )
        receiver.wait_until_level()
        middle = receiver.log.end
        between = server.query("SELECT SLEEP(1), UTC_TIMESTAMP(3)")[0][1]
        server.execute(
            "DELETE FROM shop.t WHERE id = 2", "TRUNCATE TABLE shop.t", "INSERT INTO shop.t VALUES (7, 'd')"
        )
        receiver.wait_until_level()
        first = [
            ("insert", 1, "a"),
            ("insert", 2, "b"),
            ("update_preimage", 1, "a"),
            ("update_postimage", 1, "c"),
        ]
        then = [("delete", 2, "b"), ("truncate", None, None), ("insert", 7, "d")]
        columns = ("_change_type", "id", "a")
        assert rows(*columns) == first + then
        assert rows(*columns, to=int(middle)) == first
        assert rows(*columns, start=int(middle)) == then
        assert rows(*columns, start=between.isoformat()) == then
        assert rows(*columns, to=between.isoformat()) == first
        many = spark.read.format("mysql_cdc").options(relayLog=str(receiver.log_path), tables="shop.*")
        quiet = {"from": str(int(middle)), "to": str(int(middle))}
        assert many.options(**quiet).load().count() == 0
        executed = server.query("SELECT @@gtid_executed")[0][0]
        gtids = [row[0] for row in rows("_transaction")]
        assert gtids[0] == gtids[1] != gtids[2] == gtids[3]
        assert all(one is None or one.split(":")[0] in executed for one in gtids)
        server.execute("ALTER TABLE shop.t ADD b INT", "INSERT INTO shop.t VALUES (8, 'e', 1)")
        receiver.wait_until_level()
        with pytest.raises(
            Exception, match=r"ALTER TABLE shop\.t ADD b INT.* changed the columns of shop\.t"
        ):
            rows("id")
        with pytest.raises(Exception, match=r"no change of shop\.nothing"):
            rows("id", table="shop.nothing")
        with pytest.raises(Exception, match="not the end of a transaction"):
            rows("id", to=int(middle) - 1)
    (receiver.log_path / "relay.json").write_text("{")
    with pytest.raises(Exception, match="new folder in `state`") as damaged:  # a query has no pipeline file
        rows("id")
    assert "penstock reset" not in str(damaged.value)


def test_a_definition_that_is_known_now_was_true_since_the_columns_last_changed(
    mysql_server: MySqlServer, mysql: Database, tmp_path: Path
) -> None:
    """Without names in the log: `binlog_row_metadata=MINIMAL`."""
    with receiving(mysql_server, tmp_path) as receiver:
        mysql.execute("CREATE TABLE u (id INT KEY)")
        receiver.wait_until_level()
        created = receiver.log.end
        changes = ("INSERT INTO u VALUES (1)", "TRUNCATE TABLE u")
        mysql.execute(*changes, *changes, "INSERT INTO u VALUES (2)")
        receiver.wait_until_level()
        table = TableId(mysql.name, "u")
        present = TableSchema(table, (Column("id", "int"),), ("id",))

        def found(end: Offset) -> list[tuple[Offset, TableSchema | None]]:
            known = Known(receiver.log.end, present)
            definitions = Definitions(receiver.log, table, DEFAULT_TYPES, known)
            return [(one.range.end, one.schema) for one in definitions.along(LogRange(created, end))]

        level = receiver.log.end
        whole = found(level)
        assert [schema for _, schema in whole] == [present] * 3
        assert found(whole[0][0])[-1][1] == present, "a part that ends before the offset at which it is known"
        mysql.execute("ALTER TABLE u MODIFY id INT", *changes)
        receiver.wait_until_level()
        assert [schema for _, schema in found(level)] == [None] * 3, "before columns have changed"
