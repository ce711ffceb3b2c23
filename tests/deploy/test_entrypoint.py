"""The image's entry point, with the environment that Spark gives an executor's container."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.deploy.kubernetes import ROOT

ENTRYPOINT = ROOT / "deploy" / "docker" / "entrypoint"
EXECUTOR = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_EXECUTOR_MEMORY": "2g",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@shop.lake.svc:7078",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "shop-exec-7",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
    "SPARK_JAVA_OPT_1": '-Dname=with "quotes" and spaces',
}


def started(tmp_path: Path, *arguments: str) -> list[str]:
    """The program that the entry point becomes, with its arguments."""
    for name in ("java", "penstock"):
        program = tmp_path / name
        program.write_text(f'#!/bin/bash\nprintf "%s\\n" {name} "$@"\n')
        program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **EXECUTOR}
    done = subprocess.run([ENTRYPOINT, *arguments], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_an_executor_gets_all_that_spark_says_about_it(tmp_path: Path) -> None:
    found = started(tmp_path, "executor")
    assert found[:5] == [
        "java",
        EXECUTOR["SPARK_JAVA_OPT_0"],
        EXECUTOR["SPARK_JAVA_OPT_1"],
        "-Xms2g",
        "-Xmx2g",
    ]
    options = dict(zip(found[8::2], found[9::2], strict=True))
    assert options == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "shop-exec-7",
    }


def test_everything_else_is_a_command_of_penstock(tmp_path: Path) -> None:
    assert started(tmp_path, "run", "a file.yaml") == ["penstock", "run", "a file.yaml"]
