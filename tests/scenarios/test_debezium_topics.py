"""A MySQL, a real Debezium that fills topics of a real broker, and a pipeline that follows them into Iceberg.
The judge is the server's own SELECT. Debezium, the driver and the receiver are killed in the middle."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.debezium.receiving import Topics

from bench import java, workload
from penstock.relaylog.status import read_status
from penstock.testing import servers
from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PARTITIONS, ROUNDS = 2, 6
TABLE = """CREATE TABLE shop.orders (
    id BIGINT PRIMARY KEY, customer VARCHAR(60), price DECIMAL(12,2), ratio DOUBLE, day DATE, at DATETIME(6),
    seen TIMESTAMP(6) NULL, took TIME(6), kind ENUM('a','b'), body TEXT, raw VARBINARY(20), flag TINYINT(1),
    gone INT DEFAULT 3)"""
ROW = """INSERT INTO shop.orders
    (id, customer, price, ratio, day, at, seen, took, kind, body, raw, flag) VALUES
    ({id}, 'käse 🧀 {id}', {id}.25, {id}/3, '2024-02-29', '1969-02-28 23:59:59.123456',
    '2024-02-29 23:59:59.5', '-10:11:12.5', 'b', REPEAT('x', {id} % 300), x'00ff', 1)"""


class Debezium:
    """Debezium in a process of its own. After a kill, `start` continues from its stored offset."""

    def __init__(
        self,
        connector: str,
        properties: Mapping[str, Any],
        bootstrap: str,
        folder: Path,
        *,
        partitions: int = PARTITIONS,
    ) -> None:
        jars = java.debezium_jars(connector)
        self._command = java.compiled("DebeziumTopics", jars, options=("-Xmx400m",))
        properties = {
            "name": "shop",
            "topic.prefix": "shop",
            "snapshot.mode": "initial",
            "converter.schemas.enable": "true",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": folder / "offsets",
            "offset.flush.interval.ms": 3000,
            "poll.interval.ms": 50,
            **properties,
        }
        file = folder / "debezium.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._arguments = [bootstrap, str(partitions), str(file)]
        self._log, self._offsets = folder / "debezium.log", folder / "offsets"
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of_mysql(cls, server: MySqlServer, bootstrap: str, folder: Path) -> Debezium:
        properties = {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.hostname": server.host,
            "database.port": server.port,
            "database.user": workload.PEER_USER,
            "database.password": workload.PEER_PASSWORD,
            "database.ssl.mode": "disabled",
            "database.server.id": 94013,
            "database.include.list": "shop",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": folder / "history",
        }
        return cls("mysql", properties, bootstrap, folder)

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen([*self._command, *self._arguments], stdout=log, stderr=log)

    def has_stored_a_position_after_its_snapshot(self) -> bool:
        """Before, it would begin its snapshot again after a kill, and rows that are deleted in between would
        stay in the topics, whoever reads them."""
        stored = self._offsets.read_bytes() if self._offsets.exists() else b""
        return b'"pos"' in stored and b"snapshot" not in stored

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def has_failed(self) -> str:
        failed = self._process is not None and self._process.poll() is not None
        return self._log.read_text()[-3000:] if failed else ""


@contextmanager
def running(process: Debezium) -> Iterator[Debezium]:
    process.start()
    try:
        yield process
    finally:
        process.kill()


def write(server: MySqlServer, chance: random.Random, number: int) -> None:
    """A round of changes, which continues the rounds before it."""
    begin = 1000 + number * 200
    server.execute(*(ROW.format(id=at) for at in range(begin, begin + 200)))
    for _ in range(60):
        at = chance.randrange(1, begin + 200)
        server.execute(
            f"UPDATE shop.orders SET price = price + 1, customer = 'round {number}' WHERE id = {at}",
            f"DELETE FROM shop.orders WHERE id = {chance.randrange(1, begin + 200)}",
            f"UPDATE shop.orders SET id = id + 1000000 WHERE id = {chance.randrange(1, begin + 200)}",
        )


def test_tables_are_equal_to_the_database_though_debezium_and_the_pipeline_are_killed(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance, server = random.Random(seed), mysql_factory()
    server.execute(
        *workload.PEER_ACCOUNT, "CREATE DATABASE shop", TABLE, "CREATE TABLE shop.tail (id INT PRIMARY KEY)",
        "INSERT INTO shop.tail VALUES (1)", "CREATE TABLE shop.ended (id INT PRIMARY KEY)",
    )  # fmt: skip
    server.execute(*(ROW.format(id=at) for at in range(1, 300)))
    with (
        servers.kafka() as cluster,
        running(Debezium.of_mysql(server, cluster.bootstrap, tmp_path)) as connector,
    ):
        topics = Topics(cluster.bootstrap)
        scenario = Scenario(server, "shop", tmp_path, spark, lake_root)
        source = {"type": "debezium", "bootstrap": cluster.bootstrap, "topics": "shop.shop.*"}
        scenario.write_file(source=source)
        with scenario.running() as pipeline:
            wait_for(
                lambda: connector.has_failed() or topics.has_messages("shop.shop.tail"),
                "snapshot",
                seconds=300,
            )
            write(server, chance, 0)
            wait_for(connector.has_stored_a_position_after_its_snapshot, "a position", seconds=120)
            for number in range(1, ROUNDS):
                write(server, chance, number)
                if number == 2:
                    server.execute(
                        "ALTER TABLE shop.orders ADD COLUMN n INT NOT NULL DEFAULT 7, DROP COLUMN gone"
                    )
                time.sleep(chance.random() * 3)  # lets each part get a different way before the kill
                victim = chance.choice(["debezium", "driver", "receiver"])
                if victim == "debezium" or number == 3:
                    connector.kill()
                    connector.start()
                elif victim == "driver":
                    pipeline.kill("driver")
                    pipeline.start()
                else:
                    pipeline.kill("receiver")
        server.execute("INSERT INTO shop.ended VALUES (1)")
        wait_for(
            lambda: connector.has_failed() or topics.has_messages("shop.shop.ended"),
            "last row",
            seconds=400,
        )
        assert not connector.has_failed(), connector.has_failed()
        done = scenario.command("run", "--once")
        assert done.returncode == 0, done.stderr
        scenario.assert_equal("orders", "tail", "ended")
        messages: dict[str, Any] = read_status(tmp_path / "state" / "relay")["messages"]
        assert messages["skipped"] == 0
