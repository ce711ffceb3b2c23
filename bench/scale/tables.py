"""Many tables in one pipeline: how long a start takes, and what they cost while nothing happens.

A first start reads every table (ten rows each) and makes its target; a second one finds all of that. Both
count as started when the pipeline reports for the first time with its receiver streaming and all tables
known: from then on changes of all of them are planned. Idle CPU is that of every process of the pipeline,
from the kernel's account, over half a minute in which nothing is written to the source.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml

from bench.lines import Line
from bench.place import scratch
from penstock.testing.running import RunningPipeline
from penstock.testing.servers import MySqlServer

PART = "tables"
IDLE_SECONDS = 30.0
SETTLE_SECONDS = 15.0
"""After the last epoch: the JVM collects and compiles for a while."""
START_SECONDS_GOAL = 30.0
IDLE_PERCENT_GOAL = 2.0
DATABASE = "many"

_COLUMNS = """id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, customer_id BIGINT UNSIGNED NOT NULL,
status ENUM('new', 'paid', 'sent') NOT NULL, amount DECIMAL(12, 2) NOT NULL, quantity SMALLINT NOT NULL,
name VARCHAR(80) NOT NULL, note TEXT, token BINARY(16), created DATETIME(3) NOT NULL,
changed TIMESTAMP(6) NOT NULL, KEY by_customer (customer_id)"""
_ROW = "(NULL, 17, 'paid', 12.5, 3, 'somebody', NULL, NULL, '2024-01-02 03:04:05', '2024-01-02 03:04:05')"


def run(tables: int) -> Iterator[Line]:
    with MySqlServer({"table_open_cache": 4000}) as server, scratch() as folder:
        _create(server, tables)
        file = _pipeline_file(folder, server)
        with RunningPipeline(file) as pipeline:
            yield Line(PART, f"{tables:,} tables: first start until all are followed",
                       _started(pipeline, tables), "s", START_SECONDS_GOAL)  # fmt: skip
            began = time.monotonic()
            pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=3600)
            yield Line(PART, f"{tables:,} tables: all read and at their targets, after that",
                       time.monotonic() - began, "s")  # fmt: skip
            pipeline.stop()
            again = time.monotonic()
            pipeline.start()
            _started(pipeline, tables)
            yield Line(PART, f"{tables:,} tables: start again, with all targets looked at",
                       time.monotonic() - again, "s", START_SECONDS_GOAL)  # fmt: skip
            time.sleep(SETTLE_SECONDS)
            yield from _idle(pipeline, tables)
            yield Line(
                PART, f"{tables:,} tables, idle: a first change arrives", _arrival(server, pipeline), "s"
            )
            pipeline.stop()


def _create(server: MySqlServer, tables: int) -> None:
    rows = ", ".join([_ROW] * 10)
    server.execute(f"CREATE DATABASE {DATABASE}")
    with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        for number in range(tables):
            cursor.execute(f"CREATE TABLE table_{number:05d} ({_COLUMNS})")
            cursor.execute(f"INSERT INTO table_{number:05d} VALUES {rows}")


def _pipeline_file(folder: Path, server: MySqlServer) -> Path:
    document = {
        "name": "many",
        "source": {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        },
        "tables": [f"{DATABASE}.*"],
        "sink": {"type": "iceberg", "path": str(folder / "warehouse")},
        "state": str(folder / "state"),
    }  # fmt: skip
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return file


def _started(pipeline: RunningPipeline, tables: int) -> float:
    began = psutil.Process(pipeline.pid).create_time()
    pipeline.wait_until(
        lambda status: len(status["tables"]) == tables and status["receiver"].startswith("streaming"),
        f"{tables} tables to be followed",
        seconds=600,
    )
    return time.time() - began


def _idle(pipeline: RunningPipeline, tables: int) -> Iterator[Line]:
    """Of one core."""
    before, began = pipeline.cpu_seconds(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    after, seconds = pipeline.cpu_seconds(), time.monotonic() - began
    percent = {name: (after[name] - before.get(name, 0.0)) / seconds * 100 for name in after}
    yield Line(PART, f"{tables:,} tables, idle: CPU of the whole process tree", sum(percent.values()),
               "% of a core", IDLE_PERCENT_GOAL)  # fmt: skip
    for name, value in percent.items():
        yield Line(PART, f"... of which {name}", value, "% of a core")


def _arrival(server: MySqlServer, pipeline: RunningPipeline) -> float:
    epoch = pipeline.latest["epoch"]
    began = time.monotonic()
    server.execute(f"INSERT INTO {DATABASE}.table_00007 VALUES {_ROW}")
    pipeline.wait_until(
        lambda status: status["epoch"] > epoch and not status["lag"]["bytes"], "the change", seconds=60
    )
    return time.monotonic() - began
