"""What Spark, a catalog, a class path, a store or a cluster cannot do is told in one paragraph with the cure;
the stack trace is in the log that the paragraph names. Each case runs the real thing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.daemon import EXPECTED
from penstock.testing.scenario import SHORT_LIVED, Completed, Scenario, refusal
from penstock.testing.servers import Database
from penstock.testing.servers.spark_cluster import SparkCluster

ICEBERG = "org.apache.iceberg.spark.SparkCatalog"
LAKE = "spark.sql.catalog.lake"
CANARY = "CANARY9137"


@pytest.fixture
def case(mysql: Database, tmp_path: Path) -> Scenario:
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(50))",
        f"INSERT INTO orders VALUES (1, '{CANARY}')",
    )
    nothing: Any = None
    return Scenario(mysql, mysql.name, tmp_path, nothing, tmp_path / "lake")


def with_spark(case: Scenario, conf: dict[str, str], **options: Any) -> None:
    found = {"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED | conf}
    case.write_file(spark=found | options, staging=case.folder.as_uri())


def refused(case: Scenario, *named: str, done: Completed | None = None) -> str:
    """One paragraph; the log that it names has the stack trace; and no row value is told."""
    done = done or case.command("run", "--once", timeout=280)
    paragraph = refusal(done, *named)
    log = case.folder / "state" / "logs" / "errors.log"
    assert str(log) in paragraph and "Traceback" in log.read_text()
    assert CANARY not in done.stderr
    return paragraph


@contextmanager
def taken_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield str(other.getsockname()[1])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def test_a_jar_that_does_not_exist_is_named_before_spark_starts(case: Scenario) -> None:
    with_spark(case, {"spark.jars": "/nowhere/driver.jar"})
    refusal(case.command("run", "--once"), "/nowhere/driver.jar", "spark.jars")


def test_a_master_that_nobody_is_is_named_within_seconds(case: Scenario) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    with_spark(case, {}, master=master)
    began = time.monotonic()
    refusal(case.command("run", "--once"), master, "Connection refused", "`spark.master`")
    assert time.monotonic() - began < 60, "Spark's own limit"


CASES: dict[str, tuple[dict[str, str], list[str]]] = {
    "catalog class": ({LAKE: "org.nonsense"}, ["catalog lake", "org.nonsense", "spark.jars"]),
    "catalog type": ({LAKE: ICEBERG, f"{LAKE}.type": "nonsense"}, ["Unknown catalog type: nonsense", LAKE]),
    "no warehouse": ({LAKE: ICEBERG, f"{LAKE}.type": "hadoop"}, ["warehousePath", LAKE]),
    "no metastore": ({LAKE: ICEBERG}, ["Hive metastore", "`type`"]),
    "rest catalog": (
        {LAKE: ICEBERG, f"{LAKE}.type": "rest", f"{LAKE}.uri": "http://127.0.0.1:9"}, ["http://127.0.0.1:9"]
    ),
    "rest address": ({LAKE: ICEBERG, f"{LAKE}.type": "rest", f"{LAKE}.uri": "not a uri"}, ["not a uri"]),
    "jdbc driver": (
        {LAKE: ICEBERG, f"{LAKE}.type": "jdbc", f"{LAKE}.uri": "jdbc:sqlite:/x?password=hunter2",
         f"{LAKE}.warehouse": "/tmp"}, ["no JDBC driver for jdbc:sqlite", "spark.driver.extraClassPath"],
    ),
    "catalog implementation": (
        {LAKE: ICEBERG, f"{LAKE}.catalog-impl": "org.nonsense.Cat"}, ["org.nonsense.Cat"]
    ),
    "s3a": (
        {LAKE: ICEBERG, f"{LAKE}.type": "hadoop", f"{LAKE}.warehouse": "s3a://bucket/x"},
        ["S3AFileSystem", "hadoop-aws"],
    ),
    "a value": ({"spark.sql.shuffle.partitions": "many"}, ["spark.sql.shuffle.partitions", "many"]),
    "scratch": ({"spark.local.dir": "/proc/nowhere"}, ["/proc/nowhere"]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_spark_conf_cannot_be_is_told_with_the_cure(case: Scenario, name: str) -> None:
    conf, named = CASES[name]
    with_spark(case, conf)
    assert "hunter2" not in refused(case, *named)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "named"),
    [("10m", "ran out of memory"), ("300m", "at least"), ("plenty", "-Xmxplenty"), ("900000g", "Lower")],
)
def test_memory_that_spark_cannot_have_is_told(case: Scenario, memory: str, named: str) -> None:
    case.write_file(spark={"master": "local[2]", "driver_memory": memory})
    done = case.command("run", "--once", "--json")
    assert done.returncode == 1 and done.stdout == "", "not even the JVM writes to stdout"
    found = json.loads(done.stderr.splitlines()[-1])
    assert found["error"] == "SparkFailed" and named in found["message"] + found["hint"]
    assert "`spark.driver_memory`" in found["hint"] and Path(found["log"]).exists()


@pytest.mark.slow
@pytest.mark.parametrize("option", ["spark.driver.port", "spark.ui.port"])
def test_a_port_that_spark_cannot_have_is_told(case: Scenario, option: str) -> None:
    with taken_port() as port:
        with_spark(case, {option: port, "spark.ui.enabled": "true", "spark.port.maxRetries": "0"})
        refused(case, option, "free port")


@pytest.mark.slow
def test_a_warehouse_that_is_a_file_is_named(case: Scenario) -> None:
    (case.folder / "file").write_text("")
    place = str(case.folder / "file")
    with_spark(case, {LAKE: ICEBERG, f"{LAKE}.type": "hadoop", f"{LAKE}.warehouse": place})
    refused(case, place, "is a file")


@pytest.mark.slow
def test_every_command_tells_what_is_wrong_with_the_catalog(case: Scenario) -> None:
    with_spark(case, {})
    assert case.command("run", "--once").returncode == 0
    with_spark(case, {LAKE: "org.nonsense"})
    for command in (("verify",), ("query", "SELECT 1"), ("compact",), ("repair",), ("run", "--once")):
        paragraph = refusal(case.command(*command), "org.nonsense")
        assert "errors.log" in paragraph


# a cluster -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as cluster:
        yield cluster


def on_cluster(case: Scenario, cluster: SparkCluster, conf: dict[str, str], **options: Any) -> None:
    with_spark(case, cluster.conf | conf, master=cluster.url, **options)


BAD_PYTHON: dict[str, tuple[dict[str, str], dict[str, str], list[str]]] = {
    "no package": ({}, {"environment": "none"}, ["lacks the package", "`spark.environment: none`"]),
    "no Python": (
        {"spark.pyspark.python": "/nowhere/python3"}, {}, ["cannot run /nowhere/python3", "Install Python 3."]
    ),
    # The driver says that it has this Python, because other ones are not on every machine.
    "another Python": (
        {f"spark.executorEnv.{EXPECTED}": "3.9"}, {}, ["the driver has Python 3.9", "spark.pyspark.python"]
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD_PYTHON)
def test_a_python_of_workers_that_cannot_run_tasks_is_told_with_the_host(
    case: Scenario, cluster: SparkCluster, name: str
) -> None:
    conf, options, named = BAD_PYTHON[name]
    on_cluster(case, cluster, conf, **options)
    assert "No module" not in refused(case, "on 127.0.0.", *named)


@pytest.mark.slow
def test_a_cluster_that_gives_no_executor_is_told_within_the_limit(
    case: Scenario, cluster: SparkCluster
) -> None:
    on_cluster(case, cluster, {"spark.executor.memory": "64g"}, start_timeout="15s")
    refusal(case.command("run", "--once"), "15 s", "spark.executor.memory", "`spark.start_timeout`")
