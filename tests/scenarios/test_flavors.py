"""A whole pipeline on each server of the matrix: load, stream under writes, a killed receiver; then equal."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from penstock.testing import servers
from penstock.testing.meanwhile import Work, meanwhile
from penstock.testing.scenario import Scenario
from penstock.testing.servers import MySqlClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("orders", "items")
_NO_GTIDS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mysql57": ("mysql57", {}),
    "mysql57-plain": ("mysql57", {**_NO_GTIDS, "binlog_checksum": "NONE"}),
    "mysql97": ("mysql97", {"binlog_transaction_compression": "ON", "binlog_row_metadata": "FULL"}),
    "mysql97-plain": ("mysql97", _NO_GTIDS),
    "mariadb1011": ("mariadb1011", {}),
    "mariadb118": ("mariadb118", {"log_bin_compress": "ON", "log_bin_compress_min_len": 10}),
}
MARKS = "CREATE TABLE marks.t (slot SMALLINT UNSIGNED PRIMARY KEY, mark CHAR(36) NOT NULL) ENGINE = InnoDB"


def load(server: MySqlClient, rows: int) -> None:
    server.execute(
        "CREATE DATABASE shop",
        "CREATE DATABASE marks",
        MARKS,
        "CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, state VARCHAR(20) NOT NULL,"
        " price DECIMAL(10,2), placed DATETIME(3))",
        "CREATE TABLE shop.items (order_id INT, line INT, note VARCHAR(300), PRIMARY KEY (order_id, line))",
    )
    with server.connect() as connection, connection.cursor() as cursor:
        orders = [
            (n, f"new {n}", n / 7, f"2024-01-01 00:{n % 60:02}:00.{n % 1000:03}") for n in range(1, rows)
        ]
        cursor.executemany("INSERT INTO shop.orders VALUES (%s, %s, %s, %s)", orders)
        cursor.executemany(
            "INSERT INTO shop.items VALUES (%s, 1, REPEAT('n', %s))", [(n, n % 300) for n in range(1, rows)]
        )


def session(server: MySqlClient, rows: int, seed: int) -> Work:
    """It changes rows all over both tables."""

    def write(ending: threading.Event) -> None:
        dice = random.Random(seed)
        with server.connect() as connection, connection.cursor() as cursor:
            while not ending.wait(0.05):
                try:
                    change(cursor, dice)
                except pymysql.err.OperationalError as error:
                    if error.args[0] != 1213:  # a deadlock takes the transaction back
                        raise

    def change(cursor: Any, dice: random.Random) -> None:
        key = dice.randint(1, rows)
        cursor.execute("BEGIN")
        cursor.execute(
            "UPDATE shop.orders SET state = %s, price = price + 1 WHERE id = %s",
            (f"s{dice.random():.6f}", key),
        )
        if dice.random() < 0.3:
            cursor.execute("DELETE FROM shop.items WHERE order_id = %s", (key,))
        cursor.execute("INSERT INTO shop.orders (state) VALUES ('more')")
        cursor.execute("REPLACE INTO shop.items VALUES (%s, %s, 'x')", (key, seed + 2))
        cursor.execute("COMMIT" if dice.random() < 0.9 else "ROLLBACK")

    return write


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("variant", VARIANTS)
def test_load_and_stream_under_writes_with_a_killed_receiver_end_equal(
    variant: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    name, options = VARIANTS[variant]
    rows = 4000
    with servers.FLAVORS[name](options) as server:
        load(server, rows)
        source = {"watermark_table": "marks.t"} if options.get("gtid_mode") == "OFF" else {}
        case = Scenario(
            server, "shop", tmp_path, spark, lake_root, options={"snapshot": {"chunk_rows": 500}},
            source_options=source,
        )  # fmt: skip
        checked = case.command("doctor")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        with case.running() as pipeline:
            with meanwhile(session(server, rows, 0), session(server, rows, 1)):
                pipeline.wait_until(
                    lambda s: s["snapshot"]["done"] and s["epoch"] > 1, "the snapshot", seconds=900
                )
                pipeline.kill("receiver")
                before = pipeline.latest["epoch"]
                pipeline.wait_until(lambda s: s["epoch"] > before, "epochs after the kill", seconds=300)
            case.drain(pipeline)
            assert pipeline.stop() == 0
        case.assert_equal(*TABLES)
