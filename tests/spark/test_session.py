"""The session as a user's process sees it: each test starts a Python of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.config import SparkConfig
from penstock.sinks.console.options import ConsoleOptions
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.lake.scratch import make_directory
from penstock.spark.session import at_launch, local_cores, own_scratch, session_options

_ITS_OWN = """
import os, sys
from pathlib import Path
from penstock.config import SparkConfig
from penstock.errors import ConfigError
from penstock.sinks.registry import kind
from penstock.spark.session import build_session
root = Path(sys.argv[1])
sink = kind(sys.argv[2]).example(root / "lake")
config = SparkConfig(master="local[2]", driver_memory="700m", conf={"spark.sql.shuffle.partitions": "3"})
spark = build_session(config, sink, root / "state")
conf = spark.sparkContext.getConf()
assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
assert spark.conf.get("spark.sql.shuffle.partitions") == "3", "the user's option wins"
assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
assert spark.sparkContext.uiWebUrl is None
assert spark._jvm.java.lang.Runtime.getRuntime().maxMemory() <= 700 * 2**20
target = {"iceberg": "lake.shop.`a b`", "delta": f"delta.`{root}/lake/shop/t`"}[sink.type]
if sink.type == "iceberg":
    spark.sql("CREATE NAMESPACE lake.shop")
else:
    zone = spark._jvm.java.util.TimeZone.getDefault().getID()
    assert zone == "UTC", "elsewhere each commit would go through the whole log"
rows = "SELECT id, TIMESTAMP_NTZ'2024-01-01' AS at FROM range(3)"
spark.sql(f"CREATE TABLE {target} USING {sink.type} AS {rows}")
assert spark.table(target).count() == 3
try:
    build_session(config, sink, root / "state")
except ConfigError as error:
    assert "already running" in error.message
else:
    raise AssertionError
try:
    spark.sql("SELECT raise_error('broken')").collect()
except Exception:
    pass
spark.stop()
"""


def run(script: str, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(penstock.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": source, **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow  # scenarios/test_pipeline.py looks into each file of a run
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_session_is_quiet_and_writes_only_into_given_directories(tmp_path: Path, kind: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    root = tmp_path / "a root, 50% odd"  # Spark would split it at the comma
    done = run(_ITS_OWN, str(root), kind, cwd=here, TZ="Asia/Tokyo")
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
    assert list(here.iterdir()) == []
    assert {entry.name for entry in root.iterdir()} == {"lake", "state"}
    assert "broken" in (root / "state" / "logs" / "spark.log").read_text()
    assert not [left for left in (root / "state" / "tmp").rglob("*") if left.is_file()]


_REFUSED = """
import sys
from pathlib import Path
from penstock.config import SparkConfig
from penstock.errors import PenstockError
from penstock.sinks.console.registration import ConsoleOptions
from penstock.spark.session import build_session
try:
    build_session(SparkConfig(master=sys.argv[2]), ConsoleOptions(type="console"), Path(sys.argv[1]))
except PenstockError as error:
    print(error)
"""


def test_missing_java_is_named_with_the_cure(tmp_path: Path) -> None:
    done = run(_REFUSED, str(tmp_path), "local", cwd=tmp_path, PATH="/nowhere", JAVA_HOME="")
    assert "no `java` is on the PATH" in done.stdout, done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stdout


def test_java_that_is_too_old_is_named_with_the_cure(tmp_path: Path) -> None:
    java = tmp_path / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    done = run(_REFUSED, str(tmp_path), "local", cwd=tmp_path, JAVA_HOME=str(tmp_path / "old"))
    assert "needs Java 17 or newer" in done.stdout, done.stderr
    assert "is 8." in done.stdout
    assert "JAVA_HOME" in done.stdout


def test_a_master_that_spark_refuses_is_an_error_with_the_place_of_the_log(tmp_path: Path) -> None:
    done = run(_REFUSED, str(tmp_path), "nonsense://1", cwd=tmp_path)
    assert "Spark did not start: `spark.master` is not valid" in done.stdout, done.stderr
    log = tmp_path / "logs" / "errors.log"
    assert str(log) in done.stdout
    assert "Traceback" in log.read_text()


def test_options_of_ours_and_the_users_lists_come_together(tmp_path: Path) -> None:
    config = SparkConfig(
        conf={
            "spark.sql.extensions": "com.example.Mine",
            "spark.driver.extraJavaOptions": "-Dmine=1",
            "spark.driver.extraClassPath": "/mine.jar",
            "spark.ui.enabled": "true",
        }
    )
    options = session_options(config, [IcebergOptions(path=tmp_path / "lake")], tmp_path / "state")
    assert options["spark.sql.extensions"].endswith("IcebergSparkSessionExtensions,com.example.Mine")
    assert options["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    assert "iceberg-spark-runtime" in options["spark.driver.extraClassPath"]
    assert options["spark.driver.extraClassPath"].endswith(f"{os.pathsep}/mine.jar")
    assert options["spark.ui.enabled"] == "true"


def test_the_past_is_remembered_for_those_who_look(tmp_path: Path) -> None:
    sink = IcebergOptions(path=tmp_path / "lake")
    name = "spark.sql.ui.retainedExecutions"
    assert session_options(SparkConfig(), [sink], tmp_path / "state")[name] == "50"
    seen = SparkConfig(conf={"spark.ui.enabled": "true"})
    assert name not in session_options(seen, [sink], tmp_path / "state")


def test_a_catalog_the_user_sets_up_is_left_alone(tmp_path: Path) -> None:
    conf = {
        "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.prod.type": "rest",
    }
    options = session_options(SparkConfig(conf=conf), [IcebergOptions(catalog="prod")], tmp_path)
    assert options["spark.sql.catalog.prod.type"] == "rest"
    assert "spark.sql.catalog.prod.warehouse" not in options


def test_what_may_be_a_secret_is_no_argument_of_the_jvm() -> None:
    options = {
        "spark.hadoop.fs.s3a.secret.key": "x",
        "spark.hadoop.fs.s3a.access.key": "x",
        "spark.sql.catalog.lake.jdbc.password": "x",
        "spark.sql.catalog.lake.uri": "jdbc:x",
        "spark.sql.catalog.lake.credential": "x",
        "spark.driver.extraJavaOptions": "-Dtoken=x",
        "spark.hadoop.proxy": "http://me:x@proxy:1",
        "spark.authenticate.secret": "x",
        "spark.driver.memory": "2g",
        "spark.jars": "/a.jar",
    }
    assert set(at_launch(options)) == {"spark.driver.memory", "spark.jars"}


def test_spark_hides_the_same_options_in_its_event_log(tmp_path: Path) -> None:
    options = session_options(SparkConfig(), [ConsoleOptions(type="console")], tmp_path)
    hidden = re.compile(options["spark.redaction.regex"])
    for secret in (
        "spark.sql.catalog.lake.credential",
        "spark.sql.catalog.lake.s3.secret-access-key",
        "spark.sql.catalog.lake.jdbc.password",
        "spark.sql.catalog.lake.header.Authorization",
        "jdbc:postgresql://me:x@host/lake",
    ):
        assert hidden.search(secret), secret
    assert not hidden.search("spark.sql.catalog.lake.uri")


def test_cores_of_a_master() -> None:
    assert local_cores("local") == 1
    assert local_cores("local[3]") == 3
    assert local_cores("local[4,2]") == 4
    assert local_cores("local[*]") == os.cpu_count()
    assert local_cores("spark://host:7077") is None


def test_temporary_files_of_the_jvm_and_of_sinks_are_in_the_scratch_space(
    spark: SparkSession, lake_root: Path
) -> None:
    jvm: Any = spark._jvm
    own = own_scratch(lake_root / "state")
    file = Path(jvm.java.io.File.createTempFile("of-the-jvm", "").getPath())
    folder = Path(jvm.org.apache.spark.util.Utils.createTempDir().getPath())
    kept = make_directory(spark, "of-a-sink-")
    try:
        assert (file.parent, folder.parent) == (own, own)
        assert kept.parent == own and kept.stat().st_mode & 0o077 == 0
    finally:
        file.unlink()
        kept.rmdir()


def test_spark_gets_no_directory_with_a_comma(tmp_path: Path) -> None:
    """It would take it for two, and the second one would be in the current directory."""
    options = session_options(SparkConfig(), [ConsoleOptions(type="console")], tmp_path / "a, b")
    assert "spark.local.dir" not in options
    assert "java.io.tmpdir" not in options["spark.driver.extraJavaOptions"]


def test_what_a_killed_session_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "tmp" / "spark-999999999"
    left.mkdir(parents=True)
    (tmp_path / "tmp" / f"spark-{os.getppid()}").mkdir()
    session_options(SparkConfig(), [ConsoleOptions(type="console")], tmp_path)
    assert not left.exists()
    assert (tmp_path / "tmp" / f"spark-{os.getppid()}").exists()
