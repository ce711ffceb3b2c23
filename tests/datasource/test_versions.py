"""`mysql_cdc` with each version of pyspark that it claims to work with, classic and over Spark Connect.

The versions are installed into the cache, beside the packages of this environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from penstock.testing import servers
from penstock.testing.artifacts import entry, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

VERSIONS = ("4.1.4", "4.2.1", "4.3.0")
CONNECT = ("grpcio-status", "googleapis-common-protos", "zstandard")
"""What the client of Spark Connect needs, and classic Spark does not."""
PROGRAM = Path(__file__).parent / "versions_program.py"


def installed(name: str, *packages: str) -> str:
    """A folder of the cache with these packages and what they need."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *packages]
        run(command, f"the installation of {name}")

    return str(entry(name, build))


@pytest.mark.parametrize("mode", ["classic", "connect"])
@pytest.mark.parametrize("version", [pyspark.__version__, *VERSIONS])
def test_rows_changes_restarts_and_new_columns(version: str, mode: str, tmp_path: Path) -> None:
    paths = [str(PROGRAM.parents[2] / "src")]
    if version != pyspark.__version__:
        paths.insert(0, installed(f"pyspark-{version}", f"pyspark=={version}"))
    if mode == "connect":
        paths.append(installed(f"connect-{sys.version_info.minor}", *CONNECT))
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    environment.pop("SPARK_HOME", None)
    with servers.mysql(private=True) as server:
        account = [str(server.port), server.user, server.password]
        command = [sys.executable, str(PROGRAM), mode, str(tmp_path), *account]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "version": version,
        "first run": {"read": 1000},
        "second run": {"delete": 1, "read": 1000, "update_postimage": 10, "update_preimage": 10},
        "runs on": {"delete": 1, "insert": 1, "read": 1000, "update_postimage": 10, "update_preimage": 10},
        "ends": True,
        "goes on": {"delete": 1, "insert": 2, "read": 1000, "update_postimage": 10, "update_preimage": 10},
        "many": {"read": 1000},
    }
