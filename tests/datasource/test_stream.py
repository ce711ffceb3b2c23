"""`spark.readStream.format("mysql_cdc")` on a real server, in a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.mysql.receiving import receiving

from penstock.testing.scenario import wait_for
from penstock.testing.servers import Database, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Make = Callable[..., "Following"]


class Following:
    """A query that writes a table's changes to Parquet files."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        table: str | None,
        *,
        format: str = "mysql_cdc",
        **options: Any,
    ) -> None:
        self.spark = spark
        self.format = format
        self.folder = folder
        self.options = {**({"table": table} if table else {}), "state": folder / "state", **options}
        self.query: StreamingQuery | None = None

    def load(self) -> DataFrame:
        options = {name: str(value) for name, value in self.options.items()}
        return self.spark.readStream.format(self.format).options(**options).load()

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = (
            self.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
        )
        if trigger:
            writer = writer.trigger(**trigger)
        self.query = writer.option("path", str(self.folder / "out")).start()
        return self.query

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        frame = self.frame()
        if frame is None:
            return []
        return [tuple(row) for row in frame.orderBy("_sequence", "_change_type").select(*columns).collect()]

    def frame(self) -> DataFrame | None:
        """All that has been written. None: nothing."""
        files = [str(path) for path in self._committed()]
        return self.spark.read.option("mergeSchema", "true").parquet(*files) if files else None

    def _committed(self) -> Iterator[Path]:
        """The files of batches that are done. Spark's sink has a list of each batch."""
        for path in sorted((self.folder / "out" / "_spark_metadata").glob("[0-9]*")):
            for line in path.read_text().splitlines()[1:]:
                yield self.folder / "out" / json.loads(line)["path"].rpartition("/")[2]

    def wait(self, number: int) -> None:
        def arrived() -> bool:
            if self.query is not None and (error := self.query.exception()) is not None:
                raise error
            return len(self.rows("_sequence")) >= number

        wait_for(arrived, f"{number} rows", seconds=120)


def account(server: Any) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


@pytest.fixture
def following(spark: SparkSession, tmp_path: Path) -> Iterator[Make]:
    made: list[Following] = []

    def make(*arguments: Any, **options: Any) -> Following:
        made.append(Following(spark, tmp_path, *arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_rows_and_then_changes_come_once_also_after_a_restart(following: Make, mysql: Database) -> None:
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), price DECIMAL(9,2), at DATETIME(3))",
        "INSERT INTO orders VALUES (1, 'a', 1.50, '2026-01-02 03:04:05.678'), (2, 'b', NULL, NULL)",
    )
    stream = following(f"{mysql.name}.orders", **account(mysql.server))
    stream.start()
    stream.wait(2)
    mysql.execute("UPDATE orders SET note = 'c' WHERE id = 2", "DELETE FROM orders WHERE id = 1")
    stream.wait(5)
    stream.stop()
    mysql.execute("INSERT INTO orders VALUES (3, 'd', 0, NULL)", "TRUNCATE TABLE orders")
    stream.start()
    stream.wait(7)
    assert sorted(stream.rows("_change_type", "id", "note")[:2]) == [("read", 1, "a"), ("read", 2, "b")]
    assert stream.rows("_change_type", "id", "note")[2:] == [
        ("update_preimage", 2, "b"),
        ("update_postimage", 2, "c"),
        ("delete", 1, "a"),
        ("insert", 3, "d"),
        ("truncate", None, None),
    ]
    executed = mysql.query("SELECT @@gtid_executed")[0][0].replace("\n", "")
    inserted = stream.rows("_transaction", "_source_position")[5]
    assert inserted[0].split(":")[0] in executed
    [(file,)] = [row[:1] for row in mysql.query("SHOW BINARY LOGS")[-1:]]
    found, position = inserted[1].split(":")
    assert found == file and int(position) > 4


def test_available_now_ends_with_the_whole_snapshot_and_all_that_was_committed(
    following: Make, mysql: Database
) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    mysql.execute("INSERT INTO t VALUES " + ", ".join(f"({number}, 0)" for number in range(500)))
    stream = following(f"{mysql.name}.t", **account(mysql.server), chunkRows=50, maxBytesPerTrigger=1024)
    stream.start(availableNow=True).awaitTermination(120)
    assert sorted(stream.rows("_change_type", "id")) == [("read", number) for number in range(500)]
    del stream.options["maxBytesPerTrigger"]
    for number in range(100):
        mysql.execute(f"UPDATE t SET a = 1 WHERE id = {number}")
    stream.start(availableNow=True).awaitTermination(120)
    found = [row for row in stream.rows("_change_type", "id") if row[0] == "update_postimage"]
    assert found == [("update_postimage", number) for number in range(100)]


@pytest.mark.slow  # the next one is quick
def test_available_now_hears_of_changed_columns_in_the_next_run(following: Make, mysql: Database) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    stream = following(f"{mysql.name}.t", **account(mysql.server))
    stream.start(availableNow=True).awaitTermination(120)
    mysql.execute("INSERT INTO t VALUES (2)", "ALTER TABLE t ADD a INT", "INSERT INTO t VALUES (3, 3)")
    stream.start(availableNow=True).awaitTermination(120)
    assert stream.rows("id") == [(1,), (2,)]
    with pytest.raises(Exception, match=r"columns of .*\.t have changed"):
        stream.start(availableNow=True).awaitTermination(120)
    stream.start(availableNow=True).awaitTermination(120)
    assert stream.rows("id", "a") == [(1, None), (2, None), (3, 3)]


def test_a_query_ends_where_columns_change_and_goes_on_with_the_new_ones(
    following: Make, mysql: Database
) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)")
    stream = following(f"{mysql.name}.t", **account(mysql.server))
    stream.start()
    stream.wait(1)
    mysql.execute("INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD b INT", "INSERT INTO t VALUES (3, 3, 3)")
    with pytest.raises(Exception, match=r"columns of .*\.t have changed"):
        stream.wait(3)
    assert stream.rows("_change_type", "id", "a") == [("read", 1, 1), ("insert", 2, 2)]
    stream.start()
    stream.wait(3)
    assert stream.rows("id", "a", "b")[-1] == (3, 3, 3)
    mysql.execute("INSERT INTO t VALUES (4, 4, 4)", "DROP TABLE t")
    with pytest.raises(Exception, match=r"cannot be followed any further: .*dropped"):
        stream.wait(9)
    assert stream.rows("id")[-1] == (4,)


@pytest.mark.slow
def test_state_and_checkpoint_go_together(following: Make, mysql: Database) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    stream = following(f"{mysql.name}.t", **account(mysql.server))
    stream.start()
    stream.wait(1)
    stream.stop()
    stream.options["state"] = stream.folder / "another"
    with pytest.raises(Exception, match="belongs to another `state`"):
        stream.start().awaitTermination(120)


@pytest.mark.slow  # test_past.py reads such a log in quick tests
def test_a_relay_log_that_somebody_else_writes_is_followed(
    following: Make, mysql_factory: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = mysql_factory(binlog_row_metadata="FULL")
    server.execute(
        "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, a INT, size ENUM('s', 'm'))"
    )
    server.execute("INSERT INTO shop.t VALUES (1, 1, 's')")
    with receiving(server, tmp_path / "receiver") as receiver:
        receiver.wait_until_level()
        stream = following("shop.t", relayLog=receiver.log_path, maxBytesPerTrigger="1KiB")
        stream.start()
        stream.wait(1)
        server.execute(*[f"INSERT INTO shop.t VALUES ({number}, 0, 'm')" for number in range(2, 28)])
        # The query's columns stay, their labels do not.
        server.execute(
            "ALTER TABLE shop.t MODIFY size ENUM('xs', 's', 'm')", "INSERT INTO shop.t VALUES (28, 0, 's')"
        )
        stream.wait(28)
        server.execute("INSERT INTO shop.t VALUES (29, 0, 'xs')")
        stream.wait(29)
        stream.stop()
        assert [one for (one,) in stream.rows("size")] == ["s", *["m"] * 26, "s", "xs"]
        server.execute(
            "TRUNCATE TABLE shop.t",
            "ALTER TABLE shop.t ADD b INT",
            "INSERT INTO shop.t VALUES (1, 2, 'm', 3)",
        )
        stream.start()
        with pytest.raises(
            Exception, match=r"ALTER TABLE shop\.t ADD b INT.* changed the columns of shop\.t"
        ):
            stream.wait(31)
        assert stream.rows("_change_type", "id")[28:] == [("insert", 29), ("truncate", None)]
        stream.start()
        stream.wait(31)
        assert stream.rows("_change_type", "id", "a", "b")[-1] == ("insert", 1, 2, 3)
