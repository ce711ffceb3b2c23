"""`penstock demo`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_demo_on_a_cluster_ends_equal_with_its_kills() -> None:
    """A private Spark cluster, whose workers see neither the driver's disk nor each other's."""
    command = [sys.executable, "-m", "penstock", "demo", "--cluster", "--rows", "20000", "--seconds", "10"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["equal"] and all(table["equal"] for table in result["tables"])
    assert result["kills"] == ["receiver", "driver", "executor"]


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_the_demo_on_s3_ends_equal_with_its_kills(sink: str) -> None:
    """A private S3 server; for Iceberg with a REST catalog (in SQLite where there is no Java for it)."""
    command = [sys.executable, "-m", "penstock", "demo", "--lake", "s3", "--rows", "20000", "--seconds", "10"]
    done = subprocess.run(
        [*command, "--sink", sink, "--json"], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["equal"] and all(table["equal"] for table in result["tables"])
    assert result["kills"] == ["receiver", "driver"]
    assert result["warehouse"].startswith("s3://")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_of_postgresql_ends_equal_with_its_kills() -> None:
    """PostgreSQL ends all sessions and recovers when its walsender is killed."""
    command = [sys.executable, "-m", "penstock", "demo", "--source", "postgresql", "--rows", "20000"]
    done = subprocess.run(
        [*command, "--seconds", "10", "--json"], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["equal"] and len(result["tables"]) == 4 and result["changes"] > 0
    assert result["kills"] == ["receiver", "driver", "walsender", "walsender"]


def test_the_demo_on_s3_says_what_it_cannot_do() -> None:
    command = [sys.executable, "-m", "penstock", "demo", "--lake", "s3", "--keep"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2 and "s3 goes without --keep" in done.stderr.replace("\n", " ")
