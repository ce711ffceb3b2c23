"""The part `kafka`: how fast a relay log becomes messages that a broker has acknowledged, how long a commit
takes to reach a consumer, and the same with other tools (`kafka_peers.py`).

The broker runs on the same machine, and takes CPU time that is not counted. So a figure with few cores says
more about CPU seconds than about changes per second.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import kafka_peers, measure, report
from bench.goals import Goal
from bench.latency import run as latency_run
from bench.latency.changes import CHANGES_PER_S
from bench.measure import Figure, Outcome, RunFailed
from bench.ours import DECODE_SAMPLE_MS, RECEIVE, SYSTEM, Workplace, tried
from penstock import __version__
from penstock.testing import servers, topics
from penstock.testing.servers import MySqlServer

RESULTS = report.RESULTS.with_name("kafka.json")
FORMATS = ("debezium", "maxwell", "canal", "json")
LATENCY = f"commit → message for a consumer, {CHANGES_PER_S:,} changes/s"
INTERVAL_MS = 2
JVM = ("-Xms512m", "-Xmx512m")
"""As Kafka's own script starts it, but for the size of its heap."""


def write_task(format: str) -> str:
    return f"relay log to Kafka, acknowledged, {format}"


def measured(place: Workplace, seconds: int, chosen: Sequence[str] = ()) -> Iterator[Outcome]:
    """`chosen`: words in the names of peers; none: all."""
    receive = tried(RECEIVE, place.receive_figure)
    yield receive
    compared = {peer.format for peer in kafka_peers.PEERS}
    for format in FORMATS:
        run = partial(measure.median_of, place.repeat, partial(_write, place, format))
        write = tried(write_task(format), run)
        yield write
        if format in compared and isinstance(write, Figure) and isinstance(receive, Figure):
            yield kafka_peers.ours(receive, write, format)
    yield tried(LATENCY, partial(_latency, place.folder, seconds))
    yield from kafka_peers.measured(place.log, JVM, chosen)


def _write(place: Workplace, format: str) -> Figure:
    with servers.kafka(jvm=JVM) as brokers:
        run = measure.run(
            measure.program(
                "bench.programs.kafka_write", place.relay_log(), place.schemas_file, format, brokers.bootstrap
            ),
            sample_ms=DECODE_SAMPLE_MS,
        )
        rows = kafka_peers.rows_of_canal if format == "canal" else lambda value: 1
        found = topics.records(brokers.bootstrap, run.report["topics"])
        written = sum(rows(record.value or b"") for record in found)
    changes = place.log.counts.changes
    if written != changes:
        raise RunFailed(f"{written} of {changes} changes are in the topics")
    run = measure.replaced(run, {**run.report, "changes": changes})
    return measure.figure(
        run, system=SYSTEM, version=__version__, task=write_task(format), epochs=run.report["epochs"]
    )


def _latency(folder: Path, seconds: int) -> Figure:
    home = Path(tempfile.mkdtemp(dir=folder))
    with servers.kafka(jvm=JVM) as brokers, MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        latency_run.prepare(server)
        sink = {"type": "kafka", "bootstrap": brokers.bootstrap, "format": "json"}
        file = latency_run.pipeline_file(server, home, sink, interval_ms=INTERVAL_MS)
        run = measure.run(
            measure.program(
                "bench.programs.kafka_latency", file, brokers.bootstrap, latency_run.WARM_S, seconds
            ),
            timeout_s=seconds + 600, sample_ms=200,
        )  # fmt: skip
    kept = ("p50_s", "p90_s", "p99_s", "max_s", "writer_cpu_s", "writer_late_s_max", "buckets")
    details = {name: run.report[name] for name in kept}
    figure = measure.figure(
        run, system=SYSTEM, version=__version__, task=LATENCY, interval_ms=INTERVAL_MS, **details
    )
    return replace(figure, cpu_s=figure.cpu_s - run.report["writer_cpu_s"])


LIMITS_S = {"p50": 0.015, "p99": 0.05}
"""What is promised of the latency."""


def check(results: report.Results) -> Iterator[Goal]:
    latency = results.figure(LATENCY)
    if latency is not None:
        for name, limit in LIMITS_S.items():
            found = latency.details[f"{name}_s"]
            yield Goal(f"{LATENCY}: {name} ≤ {1000 * limit:g} ms", f"{1000 * found:.1f} ms", found <= limit)
    yield from kafka_peers.check(results.outcomes)


def line(figure: Figure) -> str:
    """CPU seconds per million changes, or percentiles."""
    if "p50_s" in figure.details:
        found = ", ".join(f"{name} {1000 * figure.details[f'{name}_s']:.1f} ms" for name in ("p50", "p99"))
        return f"{figure.task}: {found}"
    per_million = figure.cpu_s / figure.changes * 1e6
    return f"{figure.task}: {figure.system} {figure.per_second:,.0f}/s, {per_million:.2f} CPU-s per million"
