"""The parts `lake` and `cluster`: a backlog merged into Iceberg on a disk and in an object store, by tasks in
the driver and by executors that do not see its disk.

Each request to the store takes 20 ms longer than it must. With executors, the relay log is in an archive in
the store, none of it stays on the driver's disk, and tasks read it by ranges.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from bench import measure, report, warm
from bench.measure import Figure, Outcome
from bench.object_store import BUCKET, dollars, far_away
from bench.ours import Workplace, tried
from penstock.testing.servers.spark_cluster import SparkCluster

EPOCHS = ("512MiB", "48MiB")
LAKE_RESULTS = report.RESULTS.with_name("lake.json")
CLUSTER_RESULTS = report.RESULTS.with_name("cluster.json")
BACKLOG_SHARE = 0.8
"""What is promised: of the speed on a disk, in an object store."""
BUSY_PERCENT = 10
"""What others may take of the cores without a word about it."""
_CLUSTER_EPOCHS = "48MiB"
_SEGMENT_SIZE = "64MiB"
"""The log has some segments of this size, so that nearly all of it is in the archive."""
_ARCHIVE = "relay-log"
_SAMPLE_S = 0.2
_HEADINGS = (
    "", "changes per second", "CPU-s per million", "MB", "requests per epoch", "dollars per billion changes",
    "bytes read per byte of log", "CPU-s of the store",
)  # fmt: skip


def on_disk(epoch: str) -> str:
    return f"merge into Iceberg on a disk, epochs of {_shown(epoch)}"


def in_store(epoch: str) -> str:
    return f"merge into Iceberg in an object store, epochs of {_shown(epoch)}"


def by_executors(count: int) -> str:
    executors = f"{count} executor{'' if count == 1 else 's'}"
    return f"merge into Iceberg in an object store by {executors}, epochs of {_shown(_CLUSTER_EPOCHS)}"


def _shown(epoch: str) -> str:
    return epoch.replace("MiB", " MiB")


def measured_lake(place: Workplace) -> Iterator[Outcome]:
    for epoch in EPOCHS:
        yield tried(on_disk(epoch), partial(place.merge, on_disk(epoch), epoch_bytes=epoch))
        yield tried(in_store(epoch), partial(_in_store, place, epoch))


def measured_cluster(place: Workplace) -> Iterator[Outcome]:
    for count in (1, 2):
        yield tried(by_executors(count), partial(_by_executors, place, count))


def _new_folder(place: Workplace) -> Path:
    """For a catalog of its own: each store is new."""
    return Path(tempfile.mkdtemp(dir=place.folder))


def _in_store(place: Workplace, epoch: str) -> Figure:
    with far_away(_new_folder(place)) as store:
        sections = {"sink": store.sink}
        file = place.pipeline_file(relay=place.relay_log(), epoch_bytes=epoch, sections=sections)
        warm.prepare_spark(file)
        store.forget()
        seen: dict[str, Any] = {}

        def remember(*window: float) -> float:
            seen.update(store_cpu_s=round(used.between(*window), 1), requests=store.requests())
            return 0.0  # the store's time is not Penstock's

        with ProcessTime(store.processes) as used:
            figure = place.merged(in_store(epoch), file, beside=remember)
        details = {**figure.details, "store_cpu_s": seen["store_cpu_s"]}
        return _with_requests(replace(figure, details=details), seen["requests"])


def _by_executors(place: Workplace, count: int) -> Figure:
    with far_away(_new_folder(place)) as store, SparkCluster(count, cores=1, memory="3g") as cluster:
        relay_log = {
            "archive": f"s3://{BUCKET}/{_ARCHIVE}",
            "cache_size": 0,
            "segment_size": _SEGMENT_SIZE,
        }
        conf = {**cluster.conf, "spark.executor.memory": "2g"}
        spark = {"master": cluster.url, "start_timeout": "10min", "conf": conf}
        # The driver's own way for small epochs would leave nothing for the executors.
        epoch = {"bytes_max": _CLUSTER_EPOCHS, "driver_bytes_max": 0}
        sections = {
            "sink": store.sink,
            **store.shared,
            "relay_log": relay_log,
            "spark": spark,
            "epoch": epoch,
        }
        file = place.pipeline_file(sections=sections)
        place.receive(file)
        store.forget()
        seen: list[Counter[str]] = []

        def elsewhere(*window: float) -> float:
            seen.append(store.requests())
            return executors.between(*window)

        with ProcessTime(lambda: _trees(cluster.executors())) as executors:
            figure = place.merged(by_executors(count), file, beside=elsewhere)
        read = store.bytes_read(_ARCHIVE) / place.log.log_bytes
        details = {
            **figure.details,
            "executor_cpu_s": round(executors.total, 1),
            "read_per_byte": round(read, 2),
        }
        return _with_requests(replace(figure, details=details), seen[0])


def _with_requests(figure: Figure, requests: Counter[str]) -> Figure:
    """Start and end of the pipeline are in it, too."""
    details = {
        **figure.details,
        "requests": dict(requests),
        "requests_per_epoch": round(sum(requests.values()) / figure.details["epochs"], 1),
        "dollars_per_billion": round(dollars(requests) / figure.changes * 1e9, 2),
    }
    return replace(figure, details=details)


class ProcessTime:
    """CPU seconds of some processes, by time. A context manager. `processes`: those that there are now."""

    def __init__(self, processes: Callable[[], list[psutil.Process]]) -> None:
        self._processes = processes
        self._used: dict[tuple[int, float], float] = {}
        self._series: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProcessTime:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def total(self) -> float:
        return self._series[-1][1] if self._series else 0.0

    def between(self, began: float, ended: float) -> float:
        """Between two monotonic times."""
        return measure.at(self._series, ended) - measure.at(self._series, began)

    def _run(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            for process in self._processes():
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    self._used[process.pid, process.create_time()] = times.user + times.system
            self._series.append((time.monotonic(), sum(self._used.values())))


def _trees(processes: list[psutil.Process]) -> list[psutil.Process]:
    """With their children, and those of these."""
    found = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found += process.children(recursive=True)
    return found


def goals(results: report.Results) -> list[str]:
    """What was found, held against what is aimed at, one line each."""
    lines = []
    for epoch in EPOCHS:
        disk, store = results.figure(on_disk(epoch)), results.figure(in_store(epoch))
        if disk is not None and store is not None:
            share = store.per_second / disk.per_second
            cpu = store.cpu_s / disk.cpu_s
            lines.append(
                f"object store, epochs of {_shown(epoch)}: {share:.2f} of the speed on a disk (goal "
                f"{BACKLOG_SHARE}), {cpu:.2f} × its CPU time"
            )
    one, two = results.figure(by_executors(1)), results.figure(by_executors(2))
    if one is not None and two is not None:
        lines.append(f"two executors: {two.per_second / one.per_second:.2f} × the speed of one")
    return lines


def write_docs(results: report.Results, head: str, part: str) -> None:
    begin = f"<!-- generated by `make bench PARTS={part}` -->"
    end = f"<!-- end of what PARTS={part} generated -->"
    report.write_part(markdown(results, head), begin, end)


def markdown(results: report.Results, head: str) -> str:
    figures = [one for one in results.outcomes if isinstance(one, Figure)]
    others = [float(one.details.get("others_percent", 0)) for one in figures]
    if others and max(others) >= BUSY_PERCENT:
        head += f" Other work took {min(others):.0f} to {max(others):.0f} % of the cores meanwhile."
    parts = [head, report.markdown_table(_HEADINGS, [_cells(one) for one in figures])]
    return "\n\n".join([*parts, *(f"- {line}" for line in goals(results))]) + "\n"


def _cells(figure: Figure) -> tuple[str, ...]:
    known: Mapping[str, Any] = figure.details
    return (
        figure.task,
        f"{figure.per_second:,.0f}",
        f"{figure.cpu_s_per_million:.2f}",
        f"{figure.rss_mb:,.0f}",
        *(
            str(known.get(name, ""))
            for name in ("requests_per_epoch", "dollars_per_billion", "read_per_byte", "store_cpu_s")
        ),
    )
