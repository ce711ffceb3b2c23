"""A list of hosts: the primary dies under load, a replica is promoted, and the pipeline goes on there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios.topology import TABLES, Writers, pair, promote

from penstock.relaylog.reader import RelayLog
from penstock.relaylog.status import read_status
from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import DatabaseServer, MariaDbServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing.running import RunningPipeline


def kill_primary(primary: DatabaseServer, replica: DatabaseServer) -> None:
    """While writers wait for their commits; the replica has everything that was committed."""
    holder = primary.connect()
    with holder.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
    wait_for(lambda: replica.gtid_executed() == primary.gtid_executed(), "the replica to have everything")
    primary.kill9()


def hosts(*both: DatabaseServer, **source: Any) -> dict[str, Any]:
    return {
        "host": [f"127.0.0.1:{server.port}" for server in both],
        "user": both[0].user,
        "password": both[0].password,
        "heartbeat": "1s",
        **source,
    }


def chunks_read(progress: dict[str, Any]) -> bool:
    return sum(int(table["chunks"]["read"]) for table in progress["tables"]) > 3


def wait_for_switch(case: Scenario, pipeline: RunningPipeline, server: DatabaseServer) -> None:
    def switched() -> bool:
        report = read_status(pipeline.config.relay_log_path)
        return report.get("state") == "streaming" and report["source"].get("port") == server.port

    wait_for(switched, "the receiver to follow the promoted replica", seconds=180)
    case.server = server


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "sink", "loading"),
    [
        ("mysql80", "iceberg", False),
        ("mysql80", "iceberg", True),
        ("mysql80", "parquet", False),
        ("mariadb1011", "iceberg", False),
        ("mariadb1011", "iceberg", True),
    ],
)
def test_the_primary_dies_under_load_and_nothing_is_lost_or_doubled_after_the_promotion(
    name: str, sink: str, loading: bool, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    """`loading`: it dies while the tables are still being read."""
    with pair(name) as (primary, replica):
        options = {"source": hosts(primary, replica), "snapshot": {"chunk_rows": 20 if loading else 1000}}
        case = Scenario(primary, "shop", tmp_path, spark, lake_root, sink, options)
        with case.running() as pipeline, Writers(primary) as writers:
            if loading:
                pipeline.wait_until(chunks_read, "chunks that are read", seconds=300)
                assert not pipeline.latest["snapshot"]["done"]
            else:
                pipeline.wait_until(
                    lambda s: s["snapshot"]["done"] and s["epoch"] > 3, "the stream", seconds=300
                )
            kill_primary(primary, replica)
            before = writers.committed
            promote(replica)
            writers.server = replica
            wait_for(lambda: writers.committed > before + 50, "the writers to move")
            wait_for_switch(case, pipeline, replica)
            more = writers.committed
            wait_for(lambda: writers.committed > more + 50, "more writes")
            writers.stop()
            case.drain(pipeline)
            assert pipeline.stop() == 0
        log = RelayLog.open(pipeline.config.relay_log_path)
        log.refresh()
        assert log.facts["mode"] == "gtid" and not replica_lacks(replica, str(log.executed_at(log.end)))
        # The change log of a table that is only appended to is the table, if nothing comes twice.
        case.assert_equal(*(("ledger",) if sink == "parquet" else TABLES))


def replica_lacks(replica: DatabaseServer, gtids: str) -> bool:
    if isinstance(replica, MariaDbServer):
        return replica.gtid_executed() != gtids
    return bool(replica.query("SELECT GTID_SUBTRACT(@@gtid_executed, %s)", (gtids,))[0][0])
