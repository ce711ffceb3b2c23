"""One soak: a private MySQL with a shop that is written to, a pipeline into Iceberg, and everything that
happens to it. In the end the writer stops, the pipeline catches up, and `penstock verify` compares every
table.

Every wait has its limit. Whatever goes wrong is written down as the reason why the soak failed, beside what
was measured until then.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench import measure
from bench.measure import RunFailed
from bench.place import scratch
from bench.soak import top
from bench.soak.events import Event, quiet_from, schedule
from bench.soak.operator import Operator
from bench.soak.samples import Sampler
from bench.soak.top import Top
from penstock.testing import workload
from penstock.testing.running import RunningPipeline
from penstock.testing.servers import MySqlServer
from penstock.testing.writer import Counts, Writer

ROWS = 200_000
TRANSACTION_SIZE = 5
"""Times the writer's ordinary transactions: about 40 changes each."""
THREADS = 4
"""That write: enough to keep all cores busy while the top rate is looked for."""
LARGE_SECONDS = 60.0
"""A transaction of 50,000 changes about so often."""
START_SECONDS_MAX = 600.0
DRAIN_SECONDS_MAX = 1200.0
VERIFY_SECONDS_MAX = 1200.0
STOP_SECONDS_MAX = 180.0
DISK_FREE_MIN = 2 * 1024**3
SERVER = {
    # What nobody needs any more goes while the soak goes on: it would be tens of gigabytes.
    "binlog_expire_logs_seconds": 300, "max_binlog_size": 128 * 1024**2, "innodb_buffer_pool_size": "512M",
}  # fmt: skip
HEAP_MB = 2147.5
"""Of the JVM, `spark.driver_memory`: 2 GiB."""


@dataclass(frozen=True)
class Options:
    minutes: float = 30
    rate: float = 0
    """Changes a second; 0: half of the top rate, which is found first."""
    seed: int = 1
    rows: int = ROWS

    @property
    def seconds(self) -> float:
        return self.minutes * 60


@dataclass
class Soak:
    """`run` once; then everything else tells what came of it."""

    options: Options
    say: Callable[[str], None]
    top: Top | None = None
    rate: float = 0
    counts: Counts = field(default_factory=Counts)
    seconds_written: float = 0
    seconds_to_drain: float | None = None
    happened: list[dict[str, Any]] = field(default_factory=list)
    ended_by_itself: list[str] = field(default_factory=list)
    """What a pipeline that ended without having been killed had to say."""
    tables: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Tables that were to be followed, and that `verify` knows nothing of."""
    failed: str = ""
    sampler: Sampler | None = None

    def run(self) -> None:
        try:
            with MySqlServer(SERVER) as server, scratch() as folder:
                self._run(server, folder)
        except Exception as error:
            traceback.print_exc()
            self.failed = f"{type(error).__name__}: {str(error)[-2000:]}"

    @property
    def differ(self) -> list[str]:
        return [one["table"] for one in self.tables if not one["equal"]] + self.missing

    def _run(self, server: MySqlServer, folder: Path) -> None:
        options = self.options
        shop = workload.Shop.of_rows(options.rows)
        workload.load(server, shop)
        self.say(f"a shop of {shop.rows:,} rows, a pipeline that reads it …")
        file = _pipeline_file(folder, server)
        with self._writing(server, shop) as writer, RunningPipeline(file) as pipeline:
            pipeline.wait_until(_is_read, "the tables to be read", seconds=START_SECONDS_MAX)
            self.rate = options.rate
            if not self.rate:
                self.say("looking for the top rate …")
                self.top = top.top_rate(server, pipeline, writer, self.say)
                self.rate = self.top.per_second / 2
            self.say(f"{options.minutes:g} minutes at {self.rate:,.0f} changes/s")
            operator = Operator(server, pipeline, options.seed)
            self._soak(operator, pipeline, writer, folder)
            self.say(f"{self.counts.changes:,} changes written; waiting for the targets")
            began = time.monotonic()
            pipeline.drained(*server.position(), seconds=DRAIN_SECONDS_MAX, restart=True)
            self.seconds_to_drain = time.monotonic() - began
            pipeline.stop(seconds=STOP_SECONDS_MAX)
        self.say("comparing every table …")
        self._verify(file, [*(f"{shop.database}.{name}" for name in workload.TABLES), *operator.added])

    @contextmanager
    def _writing(self, server: MySqlServer, shop: workload.Shop) -> Iterator[Writer]:
        """A writer that writes nothing yet."""
        with Writer(
            server, shop, seed=self.options.seed, rate=0, large_every_s=LARGE_SECONDS,
            threads=THREADS, size=TRANSACTION_SIZE, steady=True,
        ) as writer:  # fmt: skip
            yield writer

    def _soak(self, operator: Operator, pipeline: RunningPipeline, writer: Writer, folder: Path) -> None:
        events = schedule(self.options.seconds, self.options.seed)
        before, began = writer.pause(), time.monotonic()
        writer.rate = self.rate
        self.sampler = Sampler(pipeline, self.options.seconds, quiet_from(events))
        try:
            with self.sampler:
                self._happen(events, operator, pipeline, writer, folder)
        finally:
            after, self.seconds_written = writer.pause(), time.monotonic() - began
            self.counts = Counts(*(getattr(after, name) - getattr(before, name) for name in asdict(after)))

    def _happen(
        self, events: list[Event], operator: Operator, pipeline: RunningPipeline, writer: Writer, folder: Path
    ) -> None:
        """Until the time is over."""
        began, waiting = time.monotonic(), list(events)
        said = 0.0
        while (at := time.monotonic() - began) < self.options.seconds:
            if not writer.running:
                writer.stop()  # raises what went wrong
            if not pipeline.alive:
                self.ended_by_itself.append(pipeline.errors[-2000:])
                self.say(f"{at:7.0f} s: the pipeline ended by itself")
                pipeline.start()
            if shutil.disk_usage(folder).free < DISK_FREE_MIN:
                raise RunFailed("the disk is full")
            if at > said + 60:
                said = at
                self.say(f"{at:7.0f} s: {self._state(pipeline, writer)}")
            if waiting and waiting[0].at <= at:
                what = operator.does(waiting.pop(0).what)
                self.happened.append({"at": round(at, 1), "what": what})
                self.say(f"{at:7.0f} s: {what}")
            else:
                time.sleep(0.2)  # the pace of looking

    def _state(self, pipeline: RunningPipeline, writer: Writer) -> str:
        lag = pipeline.latest.get("lag", {}).get("seconds")
        memory = ", ".join(f"{name} {size} MB" for name, size in pipeline.resident_mb().items())
        return f"{writer.counts.changes:,} changes in all, lag {lag} s, {memory}"

    def _verify(self, file: Path, expected: list[str]) -> None:
        done = subprocess.run(
            measure.program("penstock", "verify", file, "--json"), env=measure.environment(), check=False,
            capture_output=True, text=True, cwd=tempfile.gettempdir(), timeout=VERIFY_SECONDS_MAX,
        )  # fmt: skip
        try:
            found = json.loads(done.stdout.strip().splitlines()[-1])["tables"]
        except (IndexError, ValueError, KeyError) as error:
            raise RunFailed(f"verify said nothing: {done.stderr[-2000:]}") from error
        self.tables = [{name: one.get(name) for name in ("table", "equal", "rows_source")} for one in found]
        self.missing = [name for name in expected if name not in {one["table"] for one in self.tables}]


def _is_read(status: dict[str, Any]) -> bool:
    return bool(status["snapshot"]["done"]) and len(status["tables"]) == len(workload.TABLES)


def _pipeline_file(folder: Path, server: MySqlServer) -> Path:
    document = {
        "name": "soak",
        "source": {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        },
        "tables": ["shop.*"],
        "sink": {"type": "iceberg", "path": str(folder / "warehouse")},
        "state": str(folder / "state"),
        "snapshot": {"chunk_rows": 20_000},
        "relay_log": {"segment_size": "32MiB", "keep_age": "1min"},
        "spark": {"driver_memory": "2g"},
    }  # fmt: skip
    file = folder / "soak.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return file
