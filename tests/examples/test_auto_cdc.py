"""Spark's AUTO CDC flow fed from `mysql_cdc`, with the version of Spark that has it.

No format of tables with MERGE is released for that version yet. So this checks that Spark resolves the whole
graph, with the columns that the source has, and that nothing but MERGE is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.datasource.test_versions import CONNECT, installed

from penstock.testing import servers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
VERSION = "4.3.0"


def test_the_flow_is_resolved_and_lacks_only_a_target_with_merge(tmp_path: Path) -> None:
    spark = Path(installed(f"pyspark-{VERSION}", f"pyspark=={VERSION}"))
    connect = installed(f"connect-{sys.version_info.minor}", *CONNECT)
    with servers.mysql(private=True) as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, total DECIMAL(9,2))",
            "INSERT INTO shop.orders VALUES (1, 1.5), (2, 2.5)",
        )
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(spark), str(ROOT / "src"), connect]),
            "SPARK_HOME": str(spark / "pyspark"),
            "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SHOP_HOST": "127.0.0.1", "SHOP_PORT": str(server.port), "SHOP_USER": server.user,
            "SHOP_PASSWORD": server.password, "SHOP_STATE": str(tmp_path / "state"),
        }  # fmt: skip

        def spark_pipelines(command: str) -> subprocess.CompletedProcess[str]:
            spec = ROOT / "examples" / "auto_cdc" / "spark-pipeline.yml"
            program = ["bash", str(spark / "bin" / "spark-pipelines"), command, "--spec", str(spec)]
            return subprocess.run(
                program, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900
            )

        tried = spark_pipelines("dry-run")
        assert tried.returncode == 0, tried.stderr[-3000:]
        run = spark_pipelines("run")
        said = run.stdout + run.stderr
    assert run.returncode != 0 and "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in said, said[-3000:]
