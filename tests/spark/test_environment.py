"""Which Python runs tasks on a cluster, and how it finds our packages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.artifacts import environment as packages
from penstock.config import SparkConfig
from penstock.sinks import registry
from penstock.spark import environment
from penstock.spark.daemon import EXPECTED, refuse_other_python
from penstock.spark.session import SHUFFLE_PARTITIONS, fit_shuffles, own_scratch, session_options

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    archive = tmp_path / "cache" / "packages.tar.gz"
    archive.parent.mkdir()
    archive.write_bytes(b"packed")
    monkeypatch.setattr(packages, "archive", lambda: archive)


def options(state: Path, **changes: Any) -> dict[str, str]:
    config = SparkConfig.model_validate({"master": "spark://h:7077", **changes})
    return session_options(config, [registry.kind("console").example(state)], state)


def test_tasks_on_a_cluster_use_the_packages_that_spark_brings(tmp_path: Path) -> None:
    found = options(tmp_path)
    link = own_scratch(tmp_path) / "packages.tar.gz"
    assert found["spark.archives"] == f"{link}#penstock-env"
    assert found["spark.executorEnv.PYTHONPATH"] == "./penstock-env"
    assert found["spark.pyspark.python"] == f"python{OWN}"
    (tmp_path / "cache" / "packages.tar.gz").unlink()
    assert link.read_bytes() == b"packed", "executors that join later get it, although the cache forgot it"


def test_what_the_user_chose_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert options(tmp_path)["spark.pyspark.python"] == "/opt/python"
    conf = {
        "spark.pyspark.python": "/usr/bin/python",
        "spark.archives": "more.zip",
        "spark.executorEnv.PYTHONPATH": "/more",
    }
    found = options(tmp_path, conf=conf)
    assert found["spark.pyspark.python"] == "/usr/bin/python"
    assert found["spark.archives"].endswith("#penstock-env,more.zip")
    assert found["spark.executorEnv.PYTHONPATH"] == "./penstock-env:/more"


def test_an_image_with_the_packages_gets_none(tmp_path: Path) -> None:
    found = options(tmp_path, environment="none")
    assert "spark.archives" not in found and "spark.executorEnv.PYTHONPATH" not in found
    assert found["spark.pyspark.python"] == "python3"
    assert found[f"spark.executorEnv.{EXPECTED}"] == OWN


def test_one_machine_needs_no_archive(tmp_path: Path) -> None:
    found = options(tmp_path, master="local[2]")
    assert "spark.archives" not in found and f"spark.executorEnv.{EXPECTED}" not in found


def test_the_variable_of_the_user_stays_for_later_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    with environment.tasks_run("python9"):
        assert os.environ["PYSPARK_PYTHON"] == "python9"
    assert "PYSPARK_PYTHON" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with environment.tasks_run("python9"):
        pass
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


def test_another_python_ends_with_both_versions_before_it_imports_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(EXPECTED, OWN)
    refuse_other_python()
    monkeypatch.setenv(EXPECTED, "3.9")
    with pytest.raises(SystemExit, match=rf"\[PENSTOCK_OTHER_PYTHON\] {OWN} instead of 3.9"):
        refuse_other_python()


class Session:
    """What `fit_shuffles` asks of a session."""

    def __init__(self) -> None:
        self.set: dict[str, str] = {}
        self.sparkContext = SimpleNamespace(defaultParallelism=3)
        self.conf = SimpleNamespace(set=self.set.__setitem__)


def test_shuffles_fit_the_cluster_unless_its_size_or_their_number_is_the_users() -> None:
    found = []
    for changes in ({}, {SHUFFLE_PARTITIONS: "50"}, {"spark.dynamicAllocation.enabled": "true"}):
        session: Any = Session()
        fit_shuffles(session, changes)
        found.append(session.set)
    assert found == [{SHUFFLE_PARTITIONS: "6"}, {}, {}]
