"""How many connections read chunks, as the server counts and limits them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import spark_jobs

from penstock.config import SnapshotConfig, SourceConfig, TablesConfig
from penstock.errors import TableError
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.model.table import TableState, new_table
from penstock.snapshot.gate import Gate, Permit
from penstock.sources.base import TableFilter
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.lookout import Lookout
from penstock.state import StateStore
from penstock.testing.scenario import wait_for
from penstock.testing.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.snapshots import SnapshotReader

CHUNKS = 12
WAITING = (
    "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'Waiting for table metadata lock'"
    " AND INFO LIKE 'SELECT `k`%'"
)


class CountingGate(Gate):
    """Knows how often a chunk was refused."""

    refused = 0

    def enter(self, *, at_source: bool = False) -> Permit | None:
        permit = super().enter(at_source=at_source)
        self.refused += permit is None
        return permit


class Case:
    def __init__(self, spark: SparkSession, mysql: Database, folder: Path) -> None:
        from penstock.spark.snapshots import SnapshotReader

        mysql.execute(
            "CREATE TABLE t (k INT PRIMARY KEY)",
            "INSERT INTO t VALUES " + ", ".join(f"({number})" for number in range(CHUNKS)),
        )
        self.mysql = mysql
        self._watcher = mysql.connect()
        with mysql.connect() as connection:
            schema = read_table(connection, TableId(mysql.name, "t"))
        assert schema is not None
        self.table = schema.table
        self.state = StateStore(folder / "state")
        self.account = f"reader{mysql.name[-8:]}"
        mysql.execute(
            f"CREATE USER {self.account}@127.0.0.1 IDENTIFIED BY 'p'",
            f"GRANT SELECT, REPLICATION CLIENT ON *.* TO {self.account}@127.0.0.1",
        )
        source = SourceConfig(host=mysql.host, port=mysql.port, user=self.account, password="p")
        config = SnapshotConfig(parallel=2)
        lookout = Lookout(config, lambda: source, TableFilter(TablesConfig(include=["*.*"])), lambda gtids: 0)
        self.gate = CountingGate(config, lambda: source, lookout)
        self.state.put_table(new_table(schema, Offset(0), snapshot="splitting", append_only=False))
        self.reader: SnapshotReader = SnapshotReader(
            spark,
            self.state,
            folder / "chunks",
            gate=self.gate,
            parallel=config.parallel,
            types=DEFAULT_TYPES,
            find_chunks=self._chunks,
            start_gtids=lambda offset: "",
            watermark_table=None,
            failed=self._failed,
        )
        self.counts: list[int] = []

    def _chunks(self, *_: object) -> Iterator[Chunk]:
        bounds = [None, *((str(number),) for number in range(1, CHUNKS)), None]
        for number in range(CHUNKS):
            yield Chunk(self.table, number, bounds[number], bounds[number + 1])

    def _failed(self, state: TableState, error: Exception) -> None:
        raise error

    def reading(self) -> int:
        """Sessions that read chunks, as the server counts them."""
        with self._watcher.cursor() as cursor:
            sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = %s"
            cursor.execute(sql, (self.account,))
            count = int((cursor.fetchone() or (0,))[0])
        self.counts.append(count)
        return count

    def waiting(self) -> set[int]:
        """Those of them that wait for the lock."""
        return {int(row[0]) for row in self.mysql.query(WAITING)}

    def staged(self) -> int:
        return int(self.state.chunk_counts(self.table).get("staged", 0))

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.reader.stop()
            self.state.close()
            self._watcher.close()
            self.mysql.execute(f"DROP USER {self.account}@127.0.0.1")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While it lasts, chunks that were begun do not end."""
        with self.mysql.connect() as connection, connection.cursor() as cursor:
            cursor.execute("LOCK TABLES t WRITE")
            yield
            cursor.execute("UNLOCK TABLES")


@pytest.fixture
def case(spark: SparkSession, mysql: Database, tmp_path: Path) -> Case:
    return Case(spark, mysql, tmp_path)


def test_the_server_never_counts_more_connections_than_parallel_also_when_it_changes(case: Case) -> None:
    case.reader.limits(parallel=1)  # two threads are there, one may read
    with case.running(), case.locked():
        case.reader.start()
        wait_for(lambda: case.reading() == 1, "the first chunk", seconds=200)
        refused = case.gate.refused
        wait_for(lambda: case.reading() and case.gate.refused > refused + 5, "the other thread to be refused")
        assert max(case.counts) == 1
        case.reader.limits(parallel=2)
        wait_for(lambda: case.reading() == 2, "the second chunk", seconds=60)
        wait_for(lambda: len(case.waiting()) == 2, "both chunks to wait for the lock")
        killed = case.waiting().pop()
        case.mysql.execute(f"KILL {killed}")
        wait_for(
            lambda: case.reading() and len(case.waiting() - {killed}) == 2,
            "the chunk that was cut off, again",
        )
        assert max(case.counts) == 2 and case.staged() == 0


def test_a_rate_spreads_chunks_and_can_be_lifted(case: Case) -> None:
    case.reader.limits(rows_per_second=1)
    with case.running():
        case.reader.start()
        wait_for(lambda: case.gate.to_json()["paused_by"] == "rows_per_second", "the rate")
        assert case.staged() < CHUNKS
        case.reader.limits(rows_per_second=0)
        wait_for(lambda: case.staged() == CHUNKS, "all chunks")
        assert case.reader.error is None


class Many:
    """Tables of one row, each one chunk. `limits` are the server's for the account that reads."""

    def __init__(self, spark: SparkSession, mysql: Database, folder: Path, count: int, limits: str) -> None:
        from penstock.spark.snapshots import SnapshotReader

        self.mysql, self.spark, self.count = mysql, spark, count
        self.account = f"many{mysql.name[-8:]}"
        mysql.execute(
            f"CREATE USER {self.account}@127.0.0.1 IDENTIFIED BY 'p' WITH {limits}",
            f"GRANT SELECT, REPLICATION CLIENT ON *.* TO {self.account}@127.0.0.1",
        )
        source = SourceConfig(host=mysql.host, port=mysql.port, user=self.account, password="p")
        config = SnapshotConfig(parallel=2)
        lookout = Lookout(config, lambda: source, TableFilter(TablesConfig(include=["*.*"])), lambda gtids: 0)
        self.state = StateStore(folder / "state")
        for number in range(count):
            mysql.execute(f"CREATE TABLE t{number} (k INT PRIMARY KEY)", f"INSERT INTO t{number} VALUES (7)")
            with mysql.connect() as connection:
                schema = read_table(connection, TableId(mysql.name, f"t{number}"))
            assert schema is not None
            self.state.put_table(new_table(schema, Offset(0), snapshot="splitting", append_only=False))
        self.reader = SnapshotReader(
            spark,
            self.state,
            folder / "chunks",
            gate=Gate(config, lambda: source, lookout),
            parallel=config.parallel,
            types=DEFAULT_TYPES,
            find_chunks=lambda table, *_: iter([Chunk(table.table, 0, None, None)]),
            start_gtids=lambda offset: "",
            watermark_table=None,
            failed=lambda state, error: self.errors.append(error),
        )
        self.errors: list[TableError] = []

    def staged(self) -> int:
        return sum(totals.read for totals in self.state.totals().values())

    @contextmanager
    def running(self) -> Iterator[None]:
        self.reader.start()
        try:
            yield
        finally:
            self.reader.stop()
            self.state.close()
            self.mysql.execute(f"DROP USER {self.account}@127.0.0.1")


def test_small_tables_are_read_without_jobs_over_few_connections(
    spark: SparkSession, mysql: Database, tmp_path: Path
) -> None:
    """The server refuses a third one at a time, and more than some in all."""
    case = Many(spark, mysql, tmp_path, 60, "MAX_USER_CONNECTIONS 2 MAX_CONNECTIONS_PER_HOUR 30")
    before = spark_jobs(spark)
    with case.running():
        wait_for(lambda: case.staged() == case.count, "all tables")
        assert spark_jobs(spark) == before
        assert not case.errors and case.reader.error is None


def test_a_small_table_that_cannot_be_read_leaves_the_others_alone(
    spark: SparkSession, mysql: Database, tmp_path: Path
) -> None:
    case = Many(spark, mysql, tmp_path, 9, "MAX_USER_CONNECTIONS 2")
    mysql.execute(
        f"REVOKE SELECT ON *.* FROM {case.account}@127.0.0.1",
        *[f"GRANT SELECT ON {mysql.name}.t{n} TO {case.account}@127.0.0.1" for n in range(9) if n != 4],
    )
    with case.running():
        wait_for(lambda: case.staged() == 8 and case.errors, "all tables but one")
        assert case.reader.error is None
        assert {error.details["table"] for error in case.errors} == {f"{mysql.name}.t4"}


def test_a_rate_holds_for_small_tables_too(spark: SparkSession, mysql: Database, tmp_path: Path) -> None:
    case = Many(spark, mysql, tmp_path, 9, "MAX_USER_CONNECTIONS 1")
    case.reader.limits(parallel=1, rows_per_second=1)
    with case.running():
        wait_for(lambda: case.reader.gate.to_json()["paused_by"] == "rows_per_second", "the rate")
        assert case.staged() < case.count
        case.reader.limits(rows_per_second=0)
        wait_for(lambda: case.staged() == case.count, "all chunks")
        assert not case.errors
