"""A read-only replica is the source while it replicates under load, with parallel appliers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.scenarios.topology import ROWS, TABLES, Writers, pair

from penstock.testing.scenario import Scenario, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("order", ["ON", "OFF"])
def test_a_replica_with_parallel_appliers_is_read_and_followed_under_load(
    order: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    """`order`: slave_preserve_commit_order. Without it transactions stand in the replica's log in another
    order than at the primary, and its executed set has gaps."""
    parallel = {
        "slave_parallel_type": "LOGICAL_CLOCK",
        "slave_parallel_workers": 4,
        "slave_preserve_commit_order": order,
        "binlog_transaction_dependency_tracking": "WRITESET",
        "transaction_write_set_extraction": "XXHASH64",
    }
    with pair("mysql80", **parallel) as (primary, replica):
        options = {"snapshot": {"chunk_rows": ROWS // 12}}
        case = Scenario(replica, "shop", tmp_path, spark, lake_root, options=options)
        with case.running() as pipeline:
            with Writers(primary, 6) as writers:
                pipeline.wait_until(
                    lambda s: s["snapshot"]["done"] and s["epoch"] > 3, "the stream", seconds=400
                )
                seen = writers.committed
                wait_for(lambda: writers.committed > seen + 200, "more writes")
            wait_for(lambda: replica.gtid_executed() == primary.gtid_executed(), "the replica")
            case.drain(pipeline)
            assert pipeline.stop() == 0
        assert writers.committed > 300
        case.assert_equal(*TABLES)
        case.server = primary
        case.assert_equal(*TABLES)
