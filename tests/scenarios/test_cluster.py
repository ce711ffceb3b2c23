"""Pipelines on a Spark cluster whose workers see neither the driver's disk nor each other's. What they share
is an S3 server, which checks credentials."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.driver_lease import LEASE
from penstock.testing.demo import CLUSTER_START
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import SHORT_LIVED, Scenario, wait_for
from penstock.testing.servers import Database
from penstock.testing.servers.s3 import KEY_ID, SECRET, S3Proxy, S3Server
from penstock.testing.servers.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # minutes for each start on a busy machine

ROWS = 15_000
CHUNK_ROWS = 1_000


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with S3Proxy() as store:
        store.make_bucket("lake")
        yield store


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as cluster:
        yield cluster


@pytest.fixture
def case(mysql: Database, tmp_path: Path, store: S3Server, cluster: SparkCluster) -> Scenario:
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(50), amount DECIMAL(10,2))",
        "INSERT INTO orders WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
        f"SELECT a.i + 1000 * b.i, CONCAT('note ', b.i), a.i FROM n a JOIN n b ON b.i <= {ROWS // 1000}",
    )
    nothing: Any = None
    case = Scenario(mysql, mysql.name, tmp_path, nothing, tmp_path / "lake")
    on_cluster(case, store, cluster, tmp_path / "state")
    return case


def on_cluster(case: Scenario, store: S3Server, cluster: SparkCluster, state: Path, **options: Any) -> None:
    """Tasks of Spark do all the work: the driver's own ways for small epochs and chunks are off."""
    prefix = f"s3://lake/{case.database}"
    catalog = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{case.folder / 'catalog.db'}",
        "warehouse": f"{prefix}/tables",
        "properties": store.iceberg_properties,
    }
    case.write_file(
        sink={"type": "iceberg", "namespace": case.namespace, "catalog": catalog},
        state=str(state),
        store={"endpoint": store.url, "access_key_id": KEY_ID, "secret_access_key": SECRET},
        staging=f"{prefix}/staging",
        relay_log={"archive": f"{prefix}/log"},
        spark={
            "master": cluster.url,
            "driver_memory": "1g",
            "start_timeout": CLUSTER_START,
            "conf": SHORT_LIVED
            | cluster.conf
            | {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
        },
        epoch={"driver_bytes_max": 0, "interval": "200ms"},
        snapshot={"chunk_rows": CHUNK_ROWS},
        stop_timeout="1min",
        **options,
    )


def objects(store: S3Server, folder: str) -> list[str]:
    """What is below a folder of the bucket."""
    return sorted(path.name for path in (store.folder / "objects/lake" / folder).rglob("*") if path.is_file())


def rows_at_target(case: Scenario, table: str) -> list[dict[str, Any]]:
    sql = f"SELECT * FROM lake.{case.namespace}.{table}"
    done = case.command("query", sql, "--json", "--limit", "99999", timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_equal(case: Scenario) -> None:
    """The judge is the server's own SELECT."""
    rows = rows_at_target(case, "orders")
    found = {row["id"]: (row["note"], str(row["amount"])) for row in rows}
    expected = {
        row[0]: (row[1], str(row[2])) for row in case.server.query(f"SELECT * FROM {case.database}.orders")
    }
    assert len(rows) == len(found) and found == expected


def change(case: Scenario, number: int) -> None:
    case.server.execute(
        f"UPDATE {case.database}.orders SET note = 'changed {number}' WHERE id % 7 = {number}",
        f"DELETE FROM {case.database}.orders WHERE id % 101 = {number}",
        f"INSERT INTO {case.database}.orders VALUES ({9_000_000 + number}, 'new', 1)",
    )


def chunks_placed(pipeline: RunningPipeline, count: int) -> None:
    pipeline.wait_until(
        lambda status: status["snapshot"]["chunks_placed"] >= count, f"{count} chunks", seconds=500
    )


def test_executors_end_in_the_middle_and_join_late(
    case: Scenario, store: S3Server, cluster: SparkCluster
) -> None:
    with case.running() as pipeline:
        chunks_placed(pipeline, 2)
        assert cluster.kill_executor()
        change(case, 1)
        late = cluster.add_worker()
        wait_for(lambda: late.executors(), "an executor on the new worker", seconds=120)
        cluster.workers[0].kill9()  # with all that it had
        change(case, 2)
        case.drain(pipeline)
        change(case, 3)
        case.drain(pipeline)
        assert pipeline.stop() == 0
    packed = list(late.work.rglob("penstock-env/penstock/__init__.py"))
    assert packed, "the executor that joined late got the packages"
    assert_equal(case)
    assert objects(store, f"{case.database}/staging") == [LEASE]


@pytest.mark.parametrize(
    ("killed", "survives"),
    [
        pytest.param(False, ("state.sqlite*",), id="after SIGTERM, with state.sqlite"),
        pytest.param(True, ("state.sqlite*", "relay"), id="after kill -9, with the relay log, too"),
    ],
)
def test_a_driver_continues_in_another_directory_with_what_must_survive(
    case: Scenario, store: S3Server, cluster: SparkCluster, killed: bool, survives: tuple[str, ...]
) -> None:
    with case.running() as pipeline:
        chunks_placed(pipeline, 5)
        change(case, 1)
        pipeline.next_epoch(seconds=300)
        ended = [*pipeline.processes()["jvm"], *pipeline.processes()["receiver"]]
        if killed:
            pipeline.kill("driver")
            pipeline.kill("receiver")
        else:
            assert pipeline.stop(seconds=300) == 0, pipeline.errors[-3000:]
        wait_for(lambda: not any(one.is_running() for one in ended), "all of the driver to end", seconds=300)
    change(case, 2)
    elsewhere = case.folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    for pattern in survives:
        for file in (case.folder / "state").glob(pattern):
            shutil.move(file, elsewhere / file.name)
    shutil.rmtree(case.folder / "state")
    on_cluster(case, store, cluster, elsewhere)
    done = case.command("run", "--once", "--json", timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_equal(case)
    assert objects(store, f"{case.database}/staging") == [LEASE]


def test_a_table_that_refers_to_itself_is_read_and_followed(
    case: Scenario, store: S3Server, cluster: SparkCluster
) -> None:
    at = case.database
    case.server.execute(
        f"CREATE TABLE {at}.tree (id INT PRIMARY KEY, up INT, note VARCHAR(20),"
        f" FOREIGN KEY (up) REFERENCES {at}.tree (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        f"INSERT INTO {at}.tree SELECT id - 1000, NULLIF((id - 1000) DIV 2, 0), 'old' FROM {at}.orders"
        " WHERE id <= 5000 ORDER BY id",
    )
    on_cluster(case, store, cluster, case.folder / "state", cascades="apply")
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            f"DELETE FROM {at}.tree WHERE id = 5",  # and all below it
            f"UPDATE {at}.tree SET note = 'new' WHERE id % 3 = 0",
            f"INSERT INTO {at}.tree VALUES (5, 2, 'again')",
        )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert not [one["parked"] for one in case.status()["tables"] if one["parked"]]
    found = sorted((row["id"], row["up"], row["note"]) for row in rows_at_target(case, "tree"))
    assert found == sorted(case.server.query(f"SELECT id, up, note FROM {at}.tree"))
    assert objects(store, f"{at}/staging") == [LEASE]
