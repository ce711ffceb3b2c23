"""The demo: copies a shop on a private server under load into lake tables, kills parts of the pipeline, and
verifies the result. `demo_sources.py` has what differs between sources.

It uses the same commands and pipeline file as the README, in separate processes, so that kill -9 really kills
them. `penstock verify` judges the result, and the server computes its own side of the comparison.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from penstock.errors import PenstockError
from penstock.testing import oracle, workload
from penstock.testing.demo_sources import SOURCES, DemoSource, DemoWriter
from penstock.testing.lake import Lake, LakeKind, lake
from penstock.testing.running import RunningPipeline
from penstock.testing.servers.spark_cluster import SparkCluster

DRAIN_SECONDS_MAX = 600.0
"""How long the pipeline may take to apply all changes at the end: minutes for the largest demo on two
cores."""

CLUSTER_START = "10min"
"""How long all parts of a cluster on one machine may take to start, while the machine does other work."""

Say = Callable[[str], None]

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m"
"""For the first minutes, Java is faster with only its first compiler (C1). The default code cache for that,
48 MB, would be full before then."""


@dataclass(frozen=True)
class DemoOptions:
    rows: int = 1_000_000
    """Minimum number of rows loaded before the pipeline starts."""
    seconds: float = 45
    """Minimum number of seconds that the writer runs. It runs longer if the snapshot takes longer."""
    source: Literal["mysql", "postgresql"] = "mysql"
    sink: Literal["iceberg", "delta", "kafka"] = "iceberg"
    lake: LakeKind = "local"
    """Where the tables are. `s3`: Iceberg tables on a private S3 server, in a REST catalog."""
    cluster: bool = False
    """Whether tasks run on a private standalone cluster, whose workers see no disk but their own. Needs the
    lake `s3`."""
    keep: bool = False
    """Whether the folder with the pipeline's file, state and warehouse is kept."""
    rate: float = 800
    """Row changes per second of the writer."""
    seed: int = 1


@dataclass
class DemoResult:
    equal: bool = False
    tables: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    changes: int = 0
    chunks: int = 0
    kills: list[str] = field(default_factory=list)
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    folder: str = ""
    warehouse: str = ""
    messages: int = 0
    """Messages in topics, and those of them that came more than once (sink kafka)."""
    repeated: int = 0

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Demo:
    """`run()` does everything. `say` is called with a line about each step, `show` with each new progress
    document."""

    def __init__(self, options: DemoOptions, *, say: Say, show: Callable[[dict[str, Any]], None]) -> None:
        self.options = options
        self.result = DemoResult()
        self._say = say
        self._show = show
        self._started = time.monotonic()

    def run(self) -> DemoResult:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
            if not self.options.keep:
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self.result.folder = str(folder)
            source = stack.enter_context(SOURCES[self.options.source]())
            shop = workload.Shop.of_rows(self.options.rows)
            with self._phase("load"):
                where = f"127.0.0.1:{source.server.port}"
                self._say(f"{source.version()} on {where}: loading the shop …")
                source.load(shop)
            tables = stack.enter_context(lake(self.options.lake, self.options.sink, folder))
            if tables.said:
                self._say(tables.said)
            cluster = stack.enter_context(SparkCluster()) if self.options.cluster else None
            if cluster is not None:
                self._say(f"Spark on {cluster.url}: three workers, each with a file system of its own")
            file = self._pipeline_file(folder, source, tables, cluster)
            self._say(f"loaded {shop.rows:,} rows; starting a writer and the pipeline ({file})")
            writer = stack.enter_context(source.writer(shop, seed=self.options.seed, rate=self.options.rate))
            pipeline = stack.enter_context(RunningPipeline(file))
            with self._phase("snapshot and stream"):
                self._under_load(pipeline, source, cluster)
                writer.stop()
            with self._phase("drain"):
                self._say(f"writer stopped after {_changes(writer):,} changes; draining")
                final = source.drained(pipeline, seconds=DRAIN_SECONDS_MAX)
                self._show(final)
                self._summary(final, writer, pipeline)
                if not source.verified_while_running:
                    pipeline.stop()
            with self._phase("verify"):
                if self.options.sink == "kafka":
                    self._say("rebuilding every table from its topic, and comparing row by row …")
                    self._rebuild(source.server, tables.warehouse)
                else:
                    self._say("verifying every table, row by row, inside the server and inside Spark …")
                    self._verify(file)
        self.result.seconds = round(time.monotonic() - self._started, 1)
        return self.result

    def _pipeline_file(
        self, folder: Path, source: DemoSource, tables: Lake, cluster: SparkCluster | None
    ) -> Path:
        self.result.warehouse = tables.warehouse
        file = folder / "shop.yaml"
        document = {
            "name": "shop",
            "source": source.section(),
            "tables": [source.tables],
            "sink": tables.sink,
            "state": str(folder / "state"),
            "spark": _spark(cluster),
            **(tables.shared if cluster is not None else {}),
        }
        file.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
        file.chmod(0o600)
        return file

    def _under_load(
        self, pipeline: RunningPipeline, source: DemoSource, cluster: SparkCluster | None
    ) -> None:
        """Runs the snapshot while the writer writes. Kills the receiver once and the driver once in the
        middle of it, then what the source has to kill; and on a cluster, an executor."""
        began = time.monotonic()
        self._until(pipeline, 0.25)
        pipeline.kill("receiver")
        self._say("killed the receiver (kill -9) in the middle of the snapshot; it is started again")
        self._until(pipeline, 0.5)
        pipeline.kill("driver")
        self._say("killed the Spark job (kill -9 of the driver); starting it again")
        pipeline.wait(seconds=60)
        pipeline.start()
        source.strike(pipeline, self._say)
        if cluster is not None:
            self._until(pipeline, 0.75)
            if cluster.kill_executor():
                pipeline.kills.append("executor")
                self._say("killed an executor (kill -9); Spark gives its tasks to others")
        self._until(pipeline, 1.0)
        self._say("snapshot complete; streaming")
        source.disturb(pipeline, self._say)
        while time.monotonic() - began < self.options.seconds:
            pipeline.wait_until(lambda _: True, "progress", seconds=60)
            self._show(pipeline.latest)
            time.sleep(1)  # the pace of the display
        self.result.kills = list(pipeline.kills)

    def _until(self, pipeline: RunningPipeline, share: float) -> None:
        """Waits until this share of all chunks is placed, and shows the progress."""

        def far_enough(status: dict[str, Any]) -> bool:
            self._show(status)
            snapshot = status["snapshot"]
            if share >= 1:
                return bool(snapshot["done"]) and snapshot["chunks"] > 0
            return bool(snapshot["chunks"]) and snapshot["chunks_placed"] >= share * snapshot["chunks"]

        pipeline.wait_until(far_enough, f"{share:.0%} of the snapshot", seconds=DRAIN_SECONDS_MAX)

    def _summary(self, final: dict[str, Any], writer: DemoWriter, pipeline: RunningPipeline) -> None:
        self.result.changes = _changes(writer)
        self.result.chunks = final["snapshot"]["chunks"]
        self.result.kills = list(pipeline.kills)

    def _verify(self, file: Path) -> None:
        command = [sys.executable, "-m", "penstock", "verify", str(file), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        try:
            document = json.loads(done.stdout.strip().splitlines()[-1])
            tables = document["tables"]
        except (IndexError, ValueError, KeyError, TypeError):
            raise PenstockError(f"verify gave no result: {done.stderr[-2000:]}") from None
        self.result.tables = tables
        self.result.rows = sum(table["rows_source"] for table in tables)
        self.result.equal = (
            done.returncode == 0 and len(tables) == len(workload.TABLES) and all(t["equal"] for t in tables)
        )

    def _rebuild(self, server: Any, bootstrap: str) -> None:
        """Compares the server's rows with tables that a consumer has made from the topics alone."""
        from penstock.testing import topics  # needs the extra `kafka`

        names = [f"shop.{table}" for table in workload.TABLES]
        columns = {name: oracle.columns_of(server, name) for name in names}
        found = topics.rebuild(topics.records(bootstrap, names), columns)
        for name in names:
            expected = oracle.rows_of(server, name)
            difference = oracle.compare(expected, found.rows[name])
            rows = {"rows_source": len(expected), "rows_target": len(found.rows[name])}
            self.result.tables.append({"table": name, "equal": not difference, **rows})
            if difference:
                self._say(f"{name}: {difference}")
        self.result.rows = sum(table["rows_source"] for table in self.result.tables)
        self.result.messages, self.result.repeated = found.messages, found.repeated
        self.result.equal = not found.repeated and all(table["equal"] for table in self.result.tables)

    def _phase(self, name: str) -> _Phase:
        return _Phase(self.result.phases, name)


def _spark(cluster: SparkCluster | None) -> dict[str, Any]:
    """The section `spark`. Its JVMs live for a minute: the code of Java's second compiler would come too
    late."""
    conf = {"spark.driver.extraJavaOptions": SHORT_LIVED_JVM}
    if cluster is None:
        return {"conf": conf}
    conf |= cluster.conf | {"spark.executor.extraJavaOptions": SHORT_LIVED_JVM}
    return {"master": cluster.url, "start_timeout": CLUSTER_START, "conf": conf}


class _Phase:
    def __init__(self, phases: dict[str, float], name: str) -> None:
        self._phases = phases
        self._name = name

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._phases[self._name] = round(time.monotonic() - self._began, 1)


def _changes(writer: DemoWriter) -> int:
    return writer.counts.changes
