"""A pipeline whose relay log has an archive: the disk is a cache, and may be lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.relaylog.free_lease import free_lease

from penstock.relaylog.archive import Archive
from penstock.relaylog.segment import list_segments
from penstock.state import StateStore
from penstock.store.base import Store
from penstock.store.opening import open_store
from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import Database, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def is_archived(case: Scenario, store: Store) -> bool:
    found = Archive(store).manifest()
    return found is not None and found.end == list_segments(case.folder / "state" / "relay")[-1].base


def write(database: Database, first: int, count: int) -> None:
    for number in range(first, first + count):
        database.execute(
            f"INSERT INTO orders VALUES ({number}, REPEAT('x', 800))",
            f"UPDATE orders SET v = CONCAT('y', v) WHERE id = {number // 2}",
        )


def test_a_pipeline_goes_on_when_its_cache_is_small_and_when_its_disk_is_lost(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    database = Database(mysql_factory(), "shop")
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY, v TEXT)", "INSERT INTO orders VALUES (0, '')")
    store, relay = open_store((tmp_path / "archive").as_uri()), tmp_path / "state" / "relay"
    log = {"archive": "archive", "segment_size": "64KiB", "span_size": "8KiB", "cache_size": "64KiB"}
    case = Scenario(database, "shop", tmp_path, spark, lake_root, options={"relay_log": log})
    with case.running() as pipeline:
        case.drain(pipeline)
        write(database, 1, 20)
        case.drain(pipeline)
        assert pipeline.stop() == 0

    # The disk of the relay log is lost after a clean end: the archive has everything.
    shutil.rmtree(relay)
    write(database, 21, 20)
    with case.running() as pipeline:
        case.drain(pipeline)
        case.assert_equal("orders")
        assert pipeline.stop() == 0

    # A backlog that the cache has dropped before the pipeline comes.
    with case.receiving():
        write(database, 41, 300)
        case.wait_until_received()
        wait_for(lambda: is_archived(case, store), "the archive to have the backlog")
    with case.receiving():
        wait_for(lambda: len(list_segments(relay)) <= 4, "the cache to become small")
    manifest = Archive(store).manifest()
    assert manifest is not None
    assert len(manifest.segments) > 6
    with case.running() as pipeline:
        case.drain(pipeline)
        case.assert_equal("orders")
        write(database, 341, 5)  # not archived before the end
        case.drain(pipeline)
        assert pipeline.stop() == 0


def lose_disk(case: Scenario, database: Database, store: Store, first: int) -> None:
    """Kills the pipeline and its receiver, when the pipeline has applied log that is not archived."""
    relay = case.folder / "state" / "relay"
    with case.running() as pipeline:
        case.drain(pipeline)
        write(database, first, 5)
        case.drain(pipeline)
        for process in pipeline.processes()["receiver"]:
            process.suspend()  # otherwise it ends in order once the driver is gone
        pipeline.close()
    wait_for(lambda: not (relay / "lease").exists() or not is_running(relay), "the receiver to end")
    shutil.rmtree(relay)
    free_lease(store)


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_a_pipeline_that_has_applied_what_was_lost_with_a_disk_reads_its_tables_again(
    sink: str,
    mysql_factory: Callable[..., MySqlServer],
    spark: SparkSession,
    lake_root: Path,
    tmp_path: Path,
) -> None:
    database = Database(mysql_factory(), "shop")
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY, v TEXT)", "INSERT INTO orders VALUES (0, '')")
    store, relay = open_store((tmp_path / "archive").as_uri()), tmp_path / "state" / "relay"
    log = {"archive": "archive", "segment_size": "64KiB", "span_size": "8KiB"}
    case = Scenario(database, "shop", tmp_path, spark, lake_root, sink, options={"relay_log": log})
    lose_disk(case, database, store, 1)
    database.execute("DELETE FROM orders WHERE id = 2", "UPDATE orders SET v = 'z' WHERE id = 3")
    done = case.command("run", "--once")
    assert done.returncode == 0, done.stderr
    assert "lost with a disk" in done.stderr
    case.assert_equal("orders")
    assert "lost with a disk" in case.command("status", "--history", "--json").stdout

    # Again, and the new log is longer than the old one when the pipeline comes.
    lose_disk(case, database, store, 100)
    with case.receiving():
        write(database, 200, 200)
        case.wait_until_received()
    state = StateStore(tmp_path / "state", read_only=True)
    assert state.position is not None
    assert list_segments(relay)[-1].base > state.position
    state.close()
    with case.running() as pipeline:
        case.drain(pipeline)
        write(database, 500, 5)
        case.drain(pipeline)
        case.assert_equal("orders")
        assert pipeline.stop() == 0


def is_running(relay: Path) -> bool:
    from penstock.relaylog import lease

    return lease.is_held(relay)
