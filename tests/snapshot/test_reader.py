"""How many connections read chunks, as the server counts and limits them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import spark_jobs
from tests.snapshot.test_staging import CHUNK, SCHEMA, ScriptedReader

from penstock.config import RetriesConfig, Secret, SnapshotConfig, TablesConfig
from penstock.model.chunk import Chunk
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import EpochPlan, PlaceChunks, TablePlan
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.model.table import new_table
from penstock.secret import lent
from penstock.snapshot.gate import Gate, Permit
from penstock.snapshot.staging import Staging
from penstock.sources.chunks import Host
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot.host_selection import MySqlHosts
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore
from penstock.store.opening import open_store
from penstock.testing.proxy import Proxy
from penstock.testing.scenario import wait_for
from penstock.testing.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from penstock.snapshot.chunk_jobs import ChunkSource
from penstock.snapshot.reader import SnapshotReader
from penstock.spark.stage_chunk import SparkJobs

CHUNKS = 12
WAITING = (
    "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'Waiting for table metadata lock'"
    " AND INFO LIKE 'SELECT `k`%'"
)


class CountingGate(Gate):
    """Knows how often a chunk was refused."""

    refused = 0

    def enter(self, *, at_source: bool = False, failed: Host | None = None) -> Permit | None:
        permit = super().enter(at_source=at_source, failed=failed)
        self.refused += permit is None
        return permit


class Case:
    def __init__(self, spark: SparkSession, mysql: Database, folder: Path, **options: Any) -> None:
        """`options`: of the source."""
        from penstock.snapshot.reader import SnapshotReader

        mysql.execute(
            "CREATE TABLE t (k INT PRIMARY KEY)",
            "INSERT INTO t VALUES " + ", ".join(f"({number})" for number in range(CHUNKS)),
        )
        self.mysql, self.folder = mysql, folder
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
        self.password = lent({"password": Secret("p")}, folder)
        told = {
            "port": mysql.port,
            "user": self.account,
            "password": self.password.__enter__()["password"],
            **options,
        }
        source = MySqlOptions.model_validate(told)
        config = SnapshotConfig(parallel=2)
        hosts = MySqlHosts(
            config, lambda: source, TableFilter(TablesConfig(include=["*.*"])), lambda gtids: 0
        )
        self.gate = CountingGate(config, hosts)
        self.staging = Staging(open_store(folder.absolute().as_uri()))
        self.state.put_table(new_table(schema, Offset(0), reads=True, append_only=False))
        self.reader: SnapshotReader = SnapshotReader(
            SparkJobs(spark),
            self.state,
            self.staging,
            ChunkSource(find=self._chunks, executed_at=lambda offset: "", types=DEFAULT_TYPES),
            self.gate,
            parallel=config.parallel,
            retries=RetriesConfig(),
        )
        self.counts: list[int] = []

    def _chunks(self, *_: object) -> Iterator[Chunk]:
        bounds = [None, *((str(number),) for number in range(1, CHUNKS)), None]
        for number in range(CHUNKS):
            yield Chunk(self.table, number, bounds[number], bounds[number + 1])

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
            self.password.__exit__(None, None, None)
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


def test_what_was_staged_for_a_snapshot_that_is_no_more_is_removed_while_others_are_read(case: Case) -> None:
    [table] = case.state.tables().values()
    with case.running():
        case.reader.start()
        wait_for(lambda: case.staged() == CHUNKS, "all chunks", seconds=200)
        assert case.staging.snapshots() == {"0"}, "the table is still being read: its chunks are not placed"
        case.state.put_table(new_table(table.schema, Offset(7), reads=True, append_only=False))
        wait_for(lambda: "0" not in case.staging.snapshots(), "the old folder to be removed")


def test_what_a_pending_plan_names_stays_and_all_else_that_is_outdated_goes_at_the_end(case: Case) -> None:
    """A stream under load always has a plan that is pending."""
    planned = case.staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "7")
    case.staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "8")
    place = PlaceChunks((planned,), (), "merge")
    [table] = case.state.tables().values()
    steps = TablePlan(table.schema, (place,), Offset(7))
    case.state.plan(EpochPlan(1, LogRange(Offset(4), Offset(9)), (steps,)))
    with case.running():
        case.reader.start()
        wait_for(lambda: "8" not in case.staging.snapshots(), "the folder that no plan names to be removed")
        assert "7" in case.staging.snapshots()
        case.reader.stop()
        assert "7" in case.staging.snapshots()
        [pending] = case.state.pending()
        case.state.applied(pending)
        case.reader.stop()
        assert "7" not in case.staging.snapshots()


def test_a_rate_spreads_chunks_and_can_be_lifted(case: Case) -> None:
    case.reader.limits(rows_per_second=1)
    with case.running():
        case.reader.start()
        wait_for(lambda: case.gate.to_json()["paused_by"] == "rows_per_second", "the rate")
        assert case.staged() < CHUNKS
        case.reader.limits(rows_per_second=0)
        wait_for(lambda: case.staged() == CHUNKS, "all chunks")
        assert case.reader.error is None


@pytest.fixture
def proxy(mysql: Database) -> Iterator[Proxy]:
    with Proxy(mysql.host, mysql.port) as proxy:
        yield proxy


def test_a_dead_network_is_told_and_outlived_and_a_slow_query_is_not_cut_off(
    spark: SparkSession, mysql: Database, tmp_path: Path, proxy: Proxy
) -> None:
    case = Case(spark, mysql, tmp_path, port=proxy.port, connect_timeout="1s", read_timeout="1s")
    with case.running():
        with case.locked():
            case.reader.start()
            wait_for(lambda: len(case.waiting()) == 2, "two chunks to wait for the lock", seconds=200)
            first = case.waiting()
            looks = proxy.accepted
            wait_for(lambda: proxy.accepted >= looks + 4, "the server to be asked what it does, twice each")
            assert case.waiting() == first and not case.reader.retries.to_json("snapshot")
            proxy.drop()
            wait_for(lambda: case.reader.retries.to_json("snapshot"), "the trouble to be told")
            [told] = case.reader.retries.to_json("snapshot")
            assert told["table"] == f"{mysql.name}.t" and told["reason"]
        proxy.pass_on()
        wait_for(lambda: case.staged() == CHUNKS, "all chunks")
        assert case.reader.error is None and not case.reader.retries.to_json("snapshot")


def test_the_reader_stops_in_time_while_its_chunks_wait_for_a_dead_network(
    spark: SparkSession, mysql: Database, tmp_path: Path, proxy: Proxy
) -> None:
    """With limits as they are by default: the jobs are cancelled."""
    case = Case(spark, mysql, tmp_path, port=proxy.port)
    with case.running(), case.locked():
        case.reader.start()
        wait_for(lambda: len(case.waiting()) == 2, "two chunks to wait for the lock", seconds=200)
        proxy.drop()
        began = time.monotonic()
        case.reader.stop(14)
        assert time.monotonic() - began < 14
        assert not [thread.name for thread in case.reader._threads if thread.is_alive()]
    assert case.reader.error is None


class Many:
    """Tables of one row, each one chunk. `limits` are the server's for the account that reads."""

    def __init__(self, spark: SparkSession, mysql: Database, folder: Path, count: int, limits: str) -> None:
        from penstock.snapshot.reader import SnapshotReader

        self.mysql, self.spark, self.count = mysql, spark, count
        self.account = f"many{mysql.name[-8:]}"
        mysql.execute(
            f"CREATE USER {self.account}@127.0.0.1 IDENTIFIED BY 'p' WITH {limits}",
            f"GRANT SELECT, REPLICATION CLIENT ON *.* TO {self.account}@127.0.0.1",
        )
        self.password = lent({"password": Secret("p")}, folder)
        source = MySqlOptions(
            host=mysql.host,
            port=mysql.port,
            user=self.account,
            password=self.password.__enter__()["password"],
        )
        config = SnapshotConfig(parallel=2)
        hosts = MySqlHosts(
            config, lambda: source, TableFilter(TablesConfig(include=["*.*"])), lambda gtids: 0
        )
        self.state = StateStore(folder / "state")
        for number in range(count):
            mysql.execute(f"CREATE TABLE t{number} (k INT PRIMARY KEY)", f"INSERT INTO t{number} VALUES (7)")
            with mysql.connect() as connection:
                schema = read_table(connection, TableId(mysql.name, f"t{number}"))
            assert schema is not None
            self.state.put_table(new_table(schema, Offset(0), reads=True, append_only=False))
        self.reader = SnapshotReader(
            SparkJobs(spark),
            self.state,
            Staging(open_store(folder.absolute().as_uri())),
            ChunkSource(
                find=lambda table, *_: iter([Chunk(table.table, 0, None, None)]),
                executed_at=lambda offset: "",
                types=DEFAULT_TYPES,
            ),
            Gate(config, hosts),
            parallel=config.parallel,
            retries=RetriesConfig(),
        )

    def parked(self) -> set[str]:
        return {str(name) for name, table in self.state.tables().items() if table.parked is not None}

    def staged(self) -> int:
        return sum(totals.read for totals in self.state.totals().values())

    @contextmanager
    def running(self) -> Iterator[None]:
        self.reader.start()
        try:
            yield
        finally:
            self.reader.stop()
            self.password.__exit__(None, None, None)
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
        assert not case.parked() and case.reader.error is None


def test_a_small_table_that_cannot_be_read_leaves_the_others_alone(
    spark: SparkSession, mysql: Database, tmp_path: Path
) -> None:
    case = Many(spark, mysql, tmp_path, 9, "MAX_USER_CONNECTIONS 2")
    mysql.execute(
        f"REVOKE SELECT ON *.* FROM {case.account}@127.0.0.1",
        *[f"GRANT SELECT ON {mysql.name}.t{n} TO {case.account}@127.0.0.1" for n in range(9) if n != 4],
    )
    with case.running():
        wait_for(lambda: case.staged() == 8 and case.parked(), "all tables but one")
        assert case.reader.error is None
        assert case.parked() == {f"{mysql.name}.t4"}


def test_a_rate_holds_for_small_tables_too(spark: SparkSession, mysql: Database, tmp_path: Path) -> None:
    case = Many(spark, mysql, tmp_path, 9, "MAX_USER_CONNECTIONS 1")
    case.reader.limits(parallel=1, rows_per_second=1)
    with case.running():
        wait_for(lambda: case.reader.gate.to_json()["paused_by"] == "rows_per_second", "the rate")
        assert case.staged() < case.count
        case.reader.limits(rows_per_second=0)
        wait_for(lambda: case.staged() == case.count, "all chunks")
        assert not case.parked()
