"""What Spark, a catalog, a class path, a store or a cluster cannot do is told in one paragraph with the cure;
the stack trace is in the log that the paragraph names. Each case runs the real thing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest

import penstock
from penstock.testing.scenario import SHORT_LIVED, Completed, Scenario, refusal, wait_for
from penstock.testing.servers import Database

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


@contextmanager
def cluster(folder: Path, python_path: str) -> Iterator[str]:
    """A standalone master and a worker whose `python3` is the one on that path; the master's address."""
    home = Path(pyspark.__file__).parent
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")},
        "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "PATH": f"{python_path}:/usr/bin:/bin",
    }  # fmt: skip
    java = ["java", "-Xmx256m", "-cp", f"{home}/jars/*"]
    deploy = "org.apache.spark.deploy"
    commands = {
        "master": [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port),
                   "--webui-port", "0"],
        "worker": [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "1g",
                   "--webui-port", "0", "-d", str(folder / "work"), f"spark://127.0.0.1:{port}"],
    }  # fmt: skip
    folder.mkdir()
    processes = []
    try:
        for name, arguments in commands.items():
            with (folder / name).open("wb") as log:
                processes.append(
                    subprocess.Popen([*java, *arguments], env=environment, stdout=log, stderr=log,
                                     stdin=subprocess.DEVNULL)
                )  # fmt: skip
            wait_for(partial(_is_up, folder / name), f"the {name} to be up", seconds=120)
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


def _is_up(log: Path) -> bool:
    text = log.read_text()
    return "New state: ALIVE" in text or "Successfully registered with master" in text


@pytest.mark.slow
def test_a_cluster_whose_python_lacks_our_package_is_told_with_the_host(
    case: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # PySpark hands it to the workers
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    with cluster(tmp_path / "cluster", str(bare / "bin")) as master:
        conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
        with_spark(case, conf, master=master)
        began = time.monotonic()
        paragraph = refused(case, "127.0.0.1", "lacks the package", "PYSPARK_PYTHON", "penstock==")
        assert time.monotonic() - began < 120
    assert "No module" not in paragraph


@pytest.mark.slow
def test_a_cluster_whose_python_has_our_package_works(
    case: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = str(Path(penstock.__file__).parent.parent)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with cluster(tmp_path / "cluster", "/usr/bin") as master:
        conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
        with_spark(case, conf | {"spark.executorEnv.PYTHONPATH": source}, master=master)
        done = case.command("run", "--once", timeout=280)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_cluster_that_gives_no_executor_is_told_within_the_limit(case: Scenario, tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", "/usr/bin") as master:
        conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "64g"}
        with_spark(case, conf, master=master, start_timeout="15s")
        refusal(case.command("run", "--once"), "15 s", "spark.executor.memory", "`spark.start_timeout`")
