"""Workers of a private cluster see no disk but their own, and end with their server."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.testing.scenario import wait_for
from penstock.testing.servers.spark_cluster import FOLDER, SPARK_HOME, SparkCluster, SparkWorker


def seen_by(worker: SparkWorker) -> Path:
    """The root of the worker's JVM."""
    assert worker.pid is not None
    [java] = [one for one in psutil.Process(worker.pid).children(recursive=True) if one.name() == "java"]
    return Path(f"/proc/{java.pid}/root")


@pytest.mark.slow
def test_workers_see_neither_this_disk_nor_each_other(tmp_path: Path) -> None:
    (tmp_path / "of the driver").write_text("")
    checkout = Path(penstock.__file__).parent
    with SparkCluster(workers=2) as cluster:
        for number, worker in enumerate(cluster.workers):
            root = seen_by(worker)
            (worker.work / f"of worker {number}").write_text("")
            here = [path.name for path in (root / FOLDER.lstrip("/")).iterdir()]
            assert f"of worker {number}" in here and f"of worker {1 - number}" not in here
            assert (root / SPARK_HOME.lstrip("/") / "jars").is_dir()
            for hidden in (tmp_path, checkout, worker.folder):
                assert not (root / str(hidden).lstrip("/")).exists(), hidden
        processes = [
            one for worker in cluster.workers for one in psutil.Process(worker.pid).children(recursive=True)
        ]
        cluster.workers[0].kill9()
        assert not cluster.workers[0].executors() and cluster.workers[1].running
    with contextlib.suppress(psutil.Error):
        wait_for(lambda: not any(one.is_running() for one in processes), "all processes to end")
    assert not any(worker.folder.exists() for worker in cluster.workers)
