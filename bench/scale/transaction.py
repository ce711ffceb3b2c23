"""One transaction that is larger than memory ought to be, through a whole pipeline into a change log.

The peak of each process is compared with that of a transaction of a sixteenth of the size: memory is flat if
it does not grow with the transaction.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml

from bench.lines import Line
from bench.place import scratch
from penstock.testing.running import RunningPipeline
from penstock.testing.servers import MySqlServer

PART = "transaction"
ROW_BYTES = 10_000
STATEMENT_ROWS = 5000
SHARE = 16
NAMES = {"receiver": "the receiver", "workers": "the largest Python worker", "driver": "the driver",
         "jvm": "the JVM"}  # fmt: skip
SAMPLE_SECONDS = 0.1
GROWTH_GOAL = 1.5
"""Of receiver and workers, from the small transaction to the large one."""
_INSERT = """INSERT INTO huge.rows_ WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n
WHERE i < {last}) SELECT i, REPEAT(CHAR(97 + i % 26), {width}) FROM n"""


def run(gib: float) -> Iterator[Line]:
    size = int(gib * 1024**3)
    small, large = [_passed(one) for one in (size // SHARE, size)]
    mib = size / 1024**2
    yield Line(PART, f"transaction of {mib:,.0f} MiB, from its commit to the change log", large[0], "s")
    for name in NAMES:
        yield Line(PART, f"... peak memory of {NAMES[name]}", large[1][name], "MB")
        yield Line(PART, f"... the same of a transaction of {mib / SHARE:,.0f} MiB", small[1][name], "MB")
    for name in ("receiver", "workers"):
        growth = large[1][name] / max(1.0, small[1][name])
        yield Line(PART, f"... peak of {NAMES[name]}, growth", growth, "times", GROWTH_GOAL)


def _passed(size: int) -> tuple[float, dict[str, float]]:
    with MySqlServer({"max_binlog_size": 1024**3}) as server, scratch() as folder:
        server.execute(
            "CREATE DATABASE huge", "CREATE TABLE huge.rows_ (id INT PRIMARY KEY, v VARCHAR(10000))"
        )
        with RunningPipeline(_pipeline_file(folder, server)) as pipeline:
            pipeline.wait_until(lambda status: status["snapshot"]["done"], "the snapshot", seconds=120)
            with _peaks(pipeline) as peaks:
                _write(server, size)
                committed = time.monotonic()
                pipeline.drained(*server.position(), seconds=3600)
                seconds = time.monotonic() - committed
            pipeline.stop()
        return seconds, peaks


def _write(server: MySqlServer, size: int) -> None:
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET cte_max_recursion_depth = {STATEMENT_ROWS + 1}")
        for first in range(1, size // ROW_BYTES + 1, STATEMENT_ROWS):
            last = min(first + STATEMENT_ROWS - 1, size // ROW_BYTES)
            cursor.execute(_INSERT.format(first=first, last=last, width=ROW_BYTES))
        cursor.execute("COMMIT")


def _pipeline_file(folder: Path, server: MySqlServer) -> Path:
    document = {
        "name": "huge",
        "source": {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        },
        "tables": ["huge.*"],
        "sink": {"type": "parquet", "path": str(folder / "log")},
        "state": str(folder / "state"),
    }  # fmt: skip
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return file


@contextlib.contextmanager
def _peaks(pipeline: RunningPipeline) -> Iterator[dict[str, float]]:
    """The largest resident memory of one process of each kind while the block lasts, in MB."""
    peaks = dict.fromkeys(("driver", "jvm", "receiver", "workers"), 0.0)
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            for name, processes in pipeline.processes().items():
                for process in processes:
                    with contextlib.suppress(psutil.Error):
                        peaks[name] = max(peaks[name], process.memory_info().rss / 1e6)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()
