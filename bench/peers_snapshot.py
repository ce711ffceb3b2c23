"""The peers that read the whole table: ConnectorX into Arrow, Spark's JDBC source into nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import pyspark

from bench import java, measure, workload
from bench.log import BenchLog
from bench.measure import Figure, NotRun, Outcome, RunFailed
from penstock.artifacts.maven import cache_directory
from penstock.errors import PenstockError
from penstock.testing.servers import MySqlServer

SNAPSHOT = "snapshot to Arrow, {connections} connection{s}"
JDBC_TASK = "snapshot to Spark rows, 2 connections"

_FOLDER = Path(__file__).with_name("peers")
CONNECTORX_VERSION = "0.4.6"


def task(connections: int) -> str:
    return SNAPSHOT.format(connections=connections, s="" if connections == 1 else "s")


def figures(log: BenchLog, repeat: int) -> Iterator[Outcome]:
    for connections in (1, 2):
        yield _tried(
            "ConnectorX",
            CONNECTORX_VERSION,
            task(connections),
            partial(_connectorx, log, connections, repeat),
        )
    yield _tried("Spark JDBC", pyspark.__version__, JDBC_TASK, partial(_spark_jdbc, log))


def _tried(system: str, version: str, task_name: str, run: Callable[[], Figure]) -> Outcome:
    try:
        return run()
    except (RunFailed, PenstockError) as error:
        return NotRun(system, version, task_name, str(error))


def _connectorx_folder() -> Path:
    """ConnectorX in a folder of its own: it is no dependency of ours."""
    target = cache_directory() / "bench" / f"connectorx-{CONNECTORX_VERSION}-py{sys.version_info.minor}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=target.parent))
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        done = subprocess.run(
            [*command, "--target", str(staging), f"connectorx=={CONNECTORX_VERSION}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            shutil.rmtree(staging)
            raise RunFailed(f"pip install connectorx failed: {done.stderr.strip()[-300:]}")
        staging.rename(target)
    return target


def connectorx_command(server: MySqlServer, connections: int, then: Literal["keep", "drop"]) -> list[str]:
    account = f"{workload.PEER_USER}:{workload.PEER_PASSWORD}"
    url = f"mysql://{account}@{server.host}:{server.port}/{workload.DATABASE}"
    script = str(_FOLDER / "connectorx_snapshot.py")
    query = f"SELECT * FROM {workload.TABLE}"
    return [sys.executable, script, str(_connectorx_folder()), url, query, "id", str(connections), then]


def _connectorx(log: BenchLog, connections: int, repeat: int) -> Figure:
    command = connectorx_command(log.server, connections, "keep")

    def once() -> Figure:
        measured = measure.run(command)
        check_rows("ConnectorX", measured.report["changes"], log)
        return measure.figure(
            measured,
            system="ConnectorX",
            version=CONNECTORX_VERSION,
            task=task(connections),
            connections=connections,
        )

    return measure.median_of(repeat, once)


ROWS_AT_ONCE = 10_000
"""With `useCursorFetch=false` the driver ignores it and holds a partition's whole result in memory."""
ROW_BY_ROW = -(2**31)
"""The driver's word for handing rows on as they arrive: what a table larger than the heap needs."""


def spark_jdbc_command(server: MySqlServer, ids: int, partitions: int, fetch_size: int) -> list[str]:
    url = (
        f"jdbc:mysql://{server.host}:{server.port}/{workload.DATABASE}?useCursorFetch=false&sslMode=DISABLED"
    )
    return [
        sys.executable, str(_FOLDER / "spark_jdbc.py"), str(java.fetch(java.JDBC_DRIVER)[0]),
        "com.mysql.cj.jdbc.Driver", url, workload.PEER_USER, workload.PEER_PASSWORD, workload.TABLE,
        "id", str(ids), str(partitions), str(fetch_size),
    ]  # fmt: skip


def _spark_jdbc(log: BenchLog) -> Figure:
    measured = measure.run(spark_jdbc_command(log.server, log.counts.inserts, 2, ROWS_AT_ONCE))
    check_rows("Spark JDBC", measured.report["changes"], log)
    return measure.figure(
        measured, system="Spark JDBC", version=pyspark.__version__, task=JDBC_TASK, connections=2, warm=True
    )


def check_rows(system: str, rows: int, log: BenchLog) -> None:
    if rows != log.counts.rows_left:
        raise RunFailed(f"{system} read {rows} rows, the table has {log.counts.rows_left}")
