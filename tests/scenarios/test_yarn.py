"""A pipeline whose tasks run on YARN."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing.scenario import SHORT_LIVED, Scenario
from penstock.testing.servers.yarn import YarnCluster


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_pipeline_on_yarn_ends_equal_with_the_packages_that_it_brought(
    scenario: Callable[..., Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = scenario(staging=(tmp_path / "staging").as_uri())  # containers see this machine's disk
    case.server.execute(
        f"CREATE TABLE {case.database}.orders (id INT PRIMARY KEY, note VARCHAR(50))",
        f"INSERT INTO {case.database}.orders WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n"
        " WHERE i < 900) SELECT i, CONCAT('note ', i) FROM n",
    )
    monkeypatch.setenv("PYSPARK_PYTHON", f"{sys.base_prefix}/bin/python3")  # has no packages of ours
    with YarnCluster() as yarn:
        for name, value in yarn.environment.items():
            monkeypatch.setenv(name, value)
        conf = SHORT_LIVED | yarn.conf
        # So that tasks of Spark read the chunks and write the rows, and not the driver.
        case.write_file(
            spark={"master": "yarn", "driver_memory": "1g", "start_timeout": "10min", "conf": conf},
            epoch={"driver_bytes_max": 0, "interval": "200ms"},
            snapshot={"chunk_rows": 300},
        )
        with case.running() as pipeline:
            case.drain(pipeline)
            case.server.execute(f"UPDATE {case.database}.orders SET note = 'changed' WHERE id % 3 = 0")
            case.drain(pipeline)
            assert pipeline.stop() == 0
    case.assert_equal("orders")
