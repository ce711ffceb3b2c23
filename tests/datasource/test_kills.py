"""A query over `mysql_cdc` that is killed again and again, under writes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.change_log import newest_rows

from penstock.testing import oracle, workload
from penstock.testing.scenario import wait_for
from penstock.testing.servers import MySqlServer
from penstock.testing.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TABLE = "orders"
PROGRAM = """
import sys
from pyspark.sql import SparkSession
folder, port, user, password, which, names = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "800m")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate()
)
changes = spark.readStream.format("mysql_cdc").options(
    host="127.0.0.1", port=port, user=user, password=password, state=folder + "/state",
    chunkRows="1000", maxBytesPerTrigger="200000", **{which: names},
).load()
writer = changes.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
writer.option("path", folder + "/out").start().awaitTermination()
"""


class Query:
    """The program, in a process of its own. `which`: `table` or `tables`."""

    def __init__(self, folder: Path, server: MySqlServer, names: str, which: str = "table") -> None:
        self.folder = folder
        account = (str(server.port), server.user, server.password)
        self._command = [sys.executable, "-c", PROGRAM, str(folder), *account, which, names]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self.folder / "errors", "ab") as errors:
            return subprocess.Popen(
                self._command, stdout=errors, stderr=errors, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip

    @property
    def batches(self) -> int:
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))

    def has_more_than(self, batches: int) -> bool:
        if self._process.poll() is not None:  # on a busy machine Spark gives its own processes up
            self._process = self._start()
        return self.batches > batches

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.mark.parametrize("seed", range(1, 6))
def test_each_change_is_there_once_and_the_newest_rows_are_the_tables(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance, server = random.Random(seed), mysql_factory()
    shop = workload.Shop.of_rows(8000)
    workload.load(server, shop)
    table = f"{shop.database}.{TABLE}"
    query = Query(tmp_path, server, table)
    try:
        with Writer(server, shop, seed=seed, rate=200, large_every_s=5, large_rows=2000):
            for _ in range(4):
                wait_for(partial(query.has_more_than, query.batches), "a batch", seconds=240)
                time.sleep(chance.uniform(0, 3))  # the random moment itself
                query.kill()
        wanted, columns = oracle.rows_of(server, table), oracle.columns_of(server, table)

        def equal() -> bool:
            query.has_more_than(0)
            found = newest_rows(spark.read.parquet(str(tmp_path / "out")), columns).collect()
            return oracle.canonical_rows((tuple(row) for row in found), columns) == wanted

        wait_for(equal, "the table's rows", seconds=240)
        log = spark.read.parquet(str(tmp_path / "out"))
        events = [row for row in log.select("_sequence", "_change_type").collect() if row[1] != "read"]
        doubled = [item for item, count in Counter(map(tuple, events)).items() if count > 1]
        assert not doubled, doubled[:5]
    finally:
        query.kill()


class Changes:
    """Random changes of two tables, one statement a transaction, and what they were. `alter` changes the
    columns of one of them."""

    def __init__(self, server: MySqlServer, seed: int) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.defaults: dict[tuple[str, str], int] = {}
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Changes:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self.failure is None, self.failure

    def _write(self) -> None:
        try:
            number = 10_000
            while not self._ended.wait(0.005):
                with self._guard:
                    number += 1
                    self._one(self._chance.choice(("a", "b")), number)
        except BaseException as error:
            self.failure = error

    def _one(self, table: str, number: int) -> None:
        kind = self._chance.choice(("insert", "update", "update", "delete"))
        some = self._server.query(
            f"SELECT id FROM mix.{table} WHERE id >= {self._chance.randrange(12_000)} ORDER BY id LIMIT 1"
        )
        if kind == "insert" or not some:
            kind, text = "insert", f"INSERT INTO mix.{table} (id, v) VALUES ({number}, '{number}')"
        elif kind == "update":
            text = f"UPDATE mix.{table} SET v = 'u{number}' WHERE id = {some[0][0]}"
        else:
            text = f"DELETE FROM mix.{table} WHERE id = {some[0][0]}"
        self._server.execute(text)
        self.counts[table, kind] += 1

    def alter(self, number: int) -> None:
        with self._guard:
            table = self._chance.choice(("a", "b"))
            clauses = [f"ADD COLUMN c{number} INT NOT NULL DEFAULT {number}"]
            self.defaults[table, f"c{number}"] = number
            dropped = [name for one, name in self.defaults if one == table and name != f"c{number}"]
            if dropped and self._chance.random() < 0.5:
                clauses.append(f"DROP COLUMN {dropped[0]}")
                del self.defaults[table, dropped[0]]
            self._server.execute(f"ALTER TABLE mix.{table} {', '.join(clauses)}")


def _newest(rows: list[tuple[str, str, str, str, int]]) -> dict[str, dict[int, dict[str, object]]]:
    """The rows of each table after all changes, in their order."""
    found: dict[str, dict[int, dict[str, object]]] = {"a": {}, "b": {}}
    for table, kind, key, row, _ in sorted(rows, key=lambda one: (one[4], one[1] != "update_preimage")):
        number = json.loads(key)["id"]
        if kind == "delete":
            found[table].pop(number, None)
        elif kind != "update_preimage":
            found[table][number] = json.loads(row)
    return found


@pytest.mark.parametrize("seed", range(1, 4))
def test_many_tables_have_each_change_once_while_their_columns_change(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance, server = random.Random(seed), mysql_factory()
    filler = ", ".join(f"({number}, 'first')" for number in range(3000))
    server.execute(
        "CREATE DATABASE mix",
        *(f"CREATE TABLE mix.{name} (id INT PRIMARY KEY, v VARCHAR(20))" for name in ("a", "b")),
        *(f"INSERT INTO mix.{name} VALUES {filler}" for name in ("a", "b")),
    )
    query = Query(tmp_path, server, "mix.*", "tables")
    try:
        wait_for(partial(query.has_more_than, 0), "a batch", seconds=400)
        with Changes(server, seed) as changes:
            for kill in range(4):
                wait_for(partial(query.has_more_than, query.batches), "a batch", seconds=400)
                changes.alter(kill)
                time.sleep(chance.uniform(0, 3))  # the random moment itself
                query.kill()
                if chance.random() < 0.5:
                    changes.alter(100 + kill)
        wanted = {
            name: {
                row[0]: row
                for row in server.query(f"SELECT id, v{_also(changes, name)} FROM mix.{name}")
            }
            for name in ("a", "b")
        }  # fmt: skip

        def rows() -> list[tuple[str, str, str, str, int]]:
            log = spark.read.parquet(str(tmp_path / "out"))
            found = log.select("_table", "_change_type", "key", "row", "_sequence").collect()
            return [(row[0], row[1], row[2], row[3], row[4]) for row in found]

        def equal() -> bool:
            query.has_more_than(0)
            newest = _newest(rows())
            found = {
                name: {
                    number: (
                        number,
                        row["v"],
                        *(row.get(c, d) for (t, c), d in changes.defaults.items() if t == name),
                    )
                    for number, row in newest[name].items()
                }
                for name in newest
            }
            return found == wanted

        wait_for(equal, "the tables' rows", seconds=400)
        events = [row for row in rows() if row[1] != "read"]
        doubled = [one for one, count in Counter((t, s, k) for t, k, _, _, s in events).items() if count > 1]
        assert not doubled, doubled[:5]
        kinds = {"insert": "insert", "update_postimage": "update", "delete": "delete"}
        counted = Counter((row[0], kinds[row[1]]) for row in events if row[1] in kinds)
        assert counted == changes.counts, "every change of which the writer knows, and no other"
    finally:
        query.kill()
        print((tmp_path / "errors").read_text("utf-8", "replace")[-4000:])


def _also(changes: Changes, table: str) -> str:
    return "".join(f", {column}" for one, column in changes.defaults if one == table)
