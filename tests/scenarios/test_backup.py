"""A backup of everything at one moment, as `docs/operations.md` describes it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Pipeline
from penstock.errors import ConfigError
from penstock.testing.scenario import Scenario
from penstock.testing.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(case: Scenario) -> None:
    jvm: Any = case.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # another machine would have read nothing yet
    Pipeline.load(case.file).run(once=True, spark=case.spark)
    case.assert_equal("orders")


@pytest.mark.slow
def test_a_backup_of_state_and_targets_is_restored_and_goes_on_and_one_of_the_state_alone_is_refused(
    mysql: Database, spark: SparkSession, tmp_path: Path
) -> None:
    machine, backup = tmp_path / "machine", tmp_path / "backup"
    machine.mkdir()
    case = Scenario(mysql, mysql.name, machine, spark, machine / "lake", "delta")
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, v INT)", "INSERT INTO orders VALUES (1, 1), (2, 2), (3, 3)"
    )
    run(case)
    shutil.copytree(machine, backup, symlinks=True)
    mysql.execute("INSERT INTO orders VALUES (4, 4)", "UPDATE orders SET v = 20 WHERE id = 2")
    run(case)

    shutil.move(machine / "state", tmp_path / "newest")
    shutil.copytree(backup / "state", machine / "state", symlinks=True)
    with pytest.raises(ConfigError, match="is ahead of this pipeline's state"):
        run(case)

    shutil.rmtree(machine)  # the disk is lost, with all that was written since
    shutil.copytree(backup, machine, symlinks=True)
    mysql.execute("DELETE FROM orders WHERE id = 1", "INSERT INTO orders VALUES (5, 5)")
    run(case)
    assert {(2, 20), (4, 4), (5, 5)} <= {(row.id, row.v) for row in case.target("orders").collect()}
