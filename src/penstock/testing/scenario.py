"""Runs one pipeline on one real server, for scenario and crash tests: writes the pipeline file, runs
commands, and compares the result.

`testing.oracle` is the judge: the server's own SELECT is compared with what Spark reads from the target.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from penstock import config as configuration
from penstock.relaylog.status import read_status
from penstock.testing import oracle
from penstock.testing.running import RunningPipeline
from penstock.testing.servers import MySqlClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_serial = itertools.count()

DRAIN_SECONDS_MAX = 900.0
"""How long a pipeline may take to apply everything. A busy machine takes minutes for what a quiet one does in
seconds."""

Completed = subprocess.CompletedProcess[str]


def wait_for(condition: Callable[[], Any], what: str, *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.05)  # polls a condition, with a limit


def refusal(done: Completed, *named: str, code: int = 1) -> str:
    """Returns the error paragraph of a command that must have failed. Fails if there is another exit code, a
    stack trace or more than one paragraph, or if a text of `named` is not in the paragraph."""
    assert done.returncode == code, f"exit code {done.returncode}: {done.stderr[-3000:]}"
    for trace in ("Traceback", "\tat ", "Exception in thread", "Py4J"):
        assert trace not in done.stdout + done.stderr, done.stderr[-3000:]
    _, mark, paragraph = done.stderr.partition("penstock: ")
    assert mark, f"no error of ours: {done.stderr[-3000:]}"
    assert "\n\n" not in paragraph.strip() and len(paragraph) < 2000, paragraph
    for name in named:
        assert name in paragraph, f"{name!r} is not in: {paragraph}"
    return paragraph


SHORT_LIVED = {
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=160m"
    )
}
"""A JVM that lives for half a minute spends most of it compiling, so Java's first compiler (C1) alone is
faster. The default code cache for that, 48 MB, would be full after some minutes of Spark, and nothing would
be compiled after that."""


@dataclass
class Scenario:
    """One pipeline and its server. `lake_root`: the session `spark` has its Iceberg catalog `lake` in
    `lake_root/iceberg`."""

    server: MySqlClient
    database: str
    folder: Path
    spark: SparkSession
    lake_root: Path
    sink: str = "iceberg"
    options: dict[str, Any] = field(default_factory=dict)
    """Sections of the pipeline file. They replace the default ones."""
    sink_options: dict[str, Any] = field(default_factory=dict)
    source_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.namespace = f"s{os.getpid()}_{next(_serial)}"
        self.file = self.folder / "pipeline.yaml"
        self.write_file()

    @property
    def sink_path(self) -> Path:
        return self.lake_root / "iceberg" if self.sink == "iceberg" else self.lake_root / self.sink

    def write_file(self, **changes: Any) -> Path:
        """Writes the pipeline file and returns its path. `changes` replace whole sections."""
        document: dict[str, Any] = {
            "name": "scenario",
            "source": {
                "host": self.server.host,
                "port": self.server.port,
                "user": self.server.user,
                "password": self.server.password,
                **self.source_options,
            },
            "tables": [f"{self.database}.*"],
            "sink": {
                "type": self.sink,
                "path": str(self.sink_path),
                "namespace": self.namespace,
                **self.sink_options,
            },
            "state": str(self.folder / "state"),
            "spark": {"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED},
            "epoch": {"interval": "200ms"},
            **self.options,
            **changes,
        }
        self.file.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
        return self.file

    def running(self) -> RunningPipeline:
        return RunningPipeline(self.file)

    def drain(self, pipeline: RunningPipeline, *, restart: bool = False) -> dict[str, Any]:
        """Waits until everything committed before the call is at the targets. Returns the progress
        document."""
        return pipeline.drained(*self.server.position(), seconds=DRAIN_SECONDS_MAX, restart=restart)

    def command(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Runs `penstock COMMAND FILE …` to its end."""
        name, *rest = arguments
        return subprocess.run(
            [sys.executable, "-m", "penstock", name, str(self.file), *rest],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Runs `penstock COMMAND FILE …` while the block runs. Yields the process."""
        name, *rest = arguments
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", name, str(self.file), *rest],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()

    def receiving(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Runs only the receiver while the block runs."""
        return self.started("receive")

    def wait_until_received(self) -> None:
        """Waits until everything committed before the call is in the relay log."""
        folder = configuration.load(self.file).relay_log_path
        file, position = self.server.position()

        def reached() -> bool:
            report = read_status(folder)
            at = report.get("position") or {"file": "", "position": 0}
            return report.get("state") == "streaming" and (at["file"], at["position"]) >= (file, position)

        wait_for(reached, f"the receiver to reach {file}:{position}")

    def status(self) -> dict[str, Any]:
        done = self.command("status", "--json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    # what arrived -------------------------------------------------------------------------------------------

    def target(self, table: str) -> DataFrame:
        if self.sink == "iceberg":
            return self.spark.sql(f"SELECT * FROM lake.{self.namespace}.`{table}`")
        path = self.sink_path / self.namespace / table
        if self.sink == "delta":
            return self.spark.read.format("delta").load(str(path))
        return self.spark.read.parquet(str(path))

    def difference(self, table: str) -> str:
        """Returns an empty string if source and target contain the same rows, otherwise a text about the
        difference."""
        name = f"{self.database}.{table}"
        columns = oracle.columns_of(self.server, name)
        frame = self.target(table).select(*[f"`{column.name}`" for column in columns])
        found = oracle.canonical_rows((tuple(row) for row in frame.toLocalIterator()), columns)
        return oracle.compare(oracle.rows_of(self.server, name), found)

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            difference = self.difference(table)
            assert not difference, f"{table}: {difference}"
