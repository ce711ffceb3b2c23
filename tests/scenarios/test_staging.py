"""Whole pipelines whose tasks find everything in an object store: staged chunks, changes made by foreign
keys, scratch."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.canaries import files_with

from penstock.runtime.driver_lease import LEASE
from penstock.store.credentials import GivenKeys, Keys
from penstock.store.opening import open_store
from penstock.store.options import StoreOptions
from penstock.testing.scenario import SHORT_LIVED, Scenario, refusal
from penstock.testing.servers import Database
from penstock.testing.servers.s3 import KEY_ID, SECRET, Moto, S3Server
from penstock.testing.servers.spark_cluster import SparkCluster

CHILDREN = 25_000
"""More than the driver handles itself: what a foreign key does to them is computed by Spark."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with Moto() as server:
        server.make_bucket("lake")
        yield server


def staged_in(server: S3Server) -> dict[str, Any]:
    """Sections of the pipeline file: a place of its own."""
    keys = {"access_key_id": KEY_ID, "secret_access_key": SECRET}
    return {
        "staging": f"s3://lake/{uuid.uuid4().hex}",
        "store": {"endpoint": server.url, **keys},
        "cascades": "apply",
        # Nothing is left to the driver: all is read and placed by tasks.
        "epoch": {"interval": "200ms", "driver_bytes_max": 0},
        "snapshot": {"chunk_rows": 4000},
    }


def objects(server: S3Server, url: str) -> list[str]:
    """What is below a URL, without the leases of drivers."""
    store = open_store(url, StoreOptions(GivenKeys(Keys(KEY_ID, SECRET)), server.url))
    return [found.key for found in store.objects() if not found.key.endswith(f"/{LEASE}")]


def load(mysql: Database, children: int = CHILDREN) -> None:
    mysql.execute(
        "CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE c (id INT PRIMARY KEY, p_id INT, v VARCHAR(20), at DATETIME(6), price DECIMAL(12, 3),"
        " FOREIGN KEY (p_id) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO p VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    )
    for start in range(0, children + 3000, 4000):
        rows = ", ".join(
            f"({n}, {1 if n < children else 2}, 'row {n}', '2026-11-25 10:00:00.{n:06}', {n}.125)"
            for n in range(start, min(start + 4000, children + 3000))
        )
        mysql.execute(f"INSERT INTO c VALUES {rows}")


@pytest.mark.slow
def test_a_pipeline_staged_in_a_store_ends_equal_and_leaves_nothing_there(
    mysql: Database, scenario: Callable[..., Scenario], server: S3Server
) -> None:
    load(mysql)
    options = staged_in(server)
    case = scenario(**options)
    seen: set[str] = set()

    def look(status: dict[str, Any]) -> bool:
        seen.update(objects(server, options["staging"]))
        return bool(status["snapshot"]["chunks_placed"] >= 2)

    with case.running() as pipeline:
        pipeline.wait_until(look, "some chunks to be placed", seconds=300)
        pipeline.kill("driver")
        pipeline.ensure_alive()
        mysql.execute("UPDATE c SET v = 'changed' WHERE id % 7 = 0", "UPDATE p SET id = 9 WHERE id = 2")
        case.drain(pipeline, restart=True)
        mysql.execute("DELETE FROM p WHERE id = 1", "INSERT INTO c VALUES (-1, 9, 'new', NULL, 1)")
        pipeline.kill("jvm")
        pipeline.ensure_alive()
        case.drain(pipeline, restart=True)
        pipeline.stop()
    case.assert_equal("p", "c")
    left = objects(server, options["staging"])
    assert left == []
    assert any(key.endswith(".parquet") and "/chunks/" in key for key in seen)
    assert all(key.startswith("scenario-") for key in seen), "each pipeline has a folder of its own"
    state = case.folder / "state"
    assert not [path for path in state.rglob("*.parquet") if "spark-warehouse" not in path.parts]


@pytest.mark.slow
def test_the_keys_of_staging_are_in_no_file_log_or_event(
    mysql: Database, scenario: Callable[..., Scenario], server: S3Server
) -> None:
    load(mysql)
    events = Path(scenario().folder / "events")
    events.mkdir()
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(),
              "spark.eventLog.compress": "false"}  # fmt: skip
    spark = {"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED | logged}
    case = scenario(**staged_in(server), spark=spark)
    done = case.command("run", "--once", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    case.assert_equal("p", "c")
    assert SECRET not in done.stdout + done.stderr
    assert files_with(case.folder, SECRET) == [case.file]
    assert list(events.rglob("*"))


@pytest.mark.slow
def test_staging_cannot_be_moved_while_something_in_it_is_needed(
    mysql: Database, scenario: Callable[..., Scenario], server: S3Server
) -> None:
    load(mysql)
    case = scenario(**{**staged_in(server), "staging": None})
    with case.running() as pipeline:
        pipeline.wait_until(
            lambda status: bool(status["snapshot"]["chunks_placed"]), "a chunk to be placed", seconds=300
        )
        pipeline.kill("driver")
    options = staged_in(server)
    case.write_file(**options)
    refusal(case.command("run", "--once"), "`staging` is s3://lake/", "the state directory", "Set it back")
    case.write_file(**{**options, "staging": None})
    assert case.command("run", "--once").returncode == 0
    case.write_file(**options)
    mysql.execute("DELETE FROM c WHERE id % 2 = 0")
    assert case.command("run", "--once").returncode == 0
    case.assert_equal("p", "c")


# on a cluster, whose workers see no disk but their own ----------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as cluster:
        yield cluster


def on_cluster(cluster: SparkCluster, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.as_uri(),
              "spark.eventLog.compress": "false"}  # fmt: skip
    return {"master": cluster.url, "driver_memory": "1g", "conf": SHORT_LIVED | cluster.conf | logged}


@pytest.mark.slow
def test_a_directory_that_executors_do_not_see_is_told_with_the_host(
    mysql: Database, scenario: Callable[..., Scenario], cluster: SparkCluster, tmp_path: Path
) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    spark = on_cluster(cluster, tmp_path / "events")
    case = scenario(staging=(tmp_path / "not-shared").as_uri(), spark=spark)
    refusal(case.command("run", "--once"), "executor on", "`staging`", "not-shared", "object store")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_on_a_cluster_tasks_find_everything_in_the_store_and_secrets_in_their_environment(
    mysql: Database,
    scenario: Callable[..., Scenario],
    server: S3Server,
    cluster: SparkCluster,
    tmp_path: Path,
) -> None:
    load(mysql, children=9000)
    account, password = f"s{mysql.name[-8:]}", "hunter2-Zb81fkq0"
    mysql.execute(
        f"CREATE USER {account}@'%' IDENTIFIED BY '{password}'",
        f"GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO {account}@'%'",
    )
    options = staged_in(server)
    catalog = {
        "type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}",
        "warehouse": f"s3://lake/{uuid.uuid4().hex}", "properties": server.iceberg_properties,
    }  # fmt: skip
    case = scenario(
        **options,
        source={"host": mysql.host, "port": mysql.port, "user": account, "password": password},
        relay_log={"archive": f"{options['staging']}-log"},
        spark=on_cluster(cluster, tmp_path / "events"),
    )
    case.write_file(sink={"type": "iceberg", "namespace": case.namespace, "catalog": catalog})
    done = case.command("run", "--once", "--json", timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    mysql.execute("DELETE FROM p WHERE id = 1", "INSERT INTO c VALUES (-1, 2, 'new', NULL, 1)")
    done = case.command("run", "--once", "--json", timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    verified = case.command("verify", "--json", timeout=900)
    assert [one["equal"] for one in json.loads(verified.stdout)["tables"]] == [True, True], verified.stderr
    assert objects(server, options["staging"]) == []
    shown = done.stdout + done.stderr
    places = [case.folder, *(worker.work for worker in cluster.workers)]
    for secret in (SECRET, password):
        assert secret not in shown
        found = [path for place in places for path in files_with(place, secret)]
        # Penstock's own code has the key of the private S3 server.
        assert [path for path in found if "penstock-env" not in path.parts] == [case.file]
