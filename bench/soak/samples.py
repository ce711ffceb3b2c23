"""Takes down, every few seconds, what each process of a pipeline has, and how far its targets are behind."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import psutil
from typing_extensions import Self

from bench.soak.judge import YOUNG_SECONDS, Process, Sample
from penstock.artifacts.maven import java
from penstock.testing.running import RunningPipeline

SAMPLE_SECONDS_MAX = 5.0
SAMPLES = 300
"""At least, however short the time is."""
LIVE_SHARES = (0.1, 0.17, 0.24, 0.8, 0.87, 0.94)
"""Of the time after the last kill and a youth: when the JVM is asked for a full collection, to see what is
live. Seldom, because a collection also gives back what nobody has closed."""
JCMD_SECONDS_MAX = 60.0
FILLING = "block-manager-"
"""Spark's pools of these names start a thread with each of the first hundred things they do, whether others
are idle or not: they are filling up for an hour, and no leak."""


class Sampler:
    """From `with` to its end; `samples` grows meanwhile. `quiet_from`: from then on nothing is killed."""

    def __init__(self, pipeline: RunningPipeline, seconds: float, quiet_from: float) -> None:
        self.samples: list[Sample] = []
        self.jvm_threads: dict[int, list[Counter[str]]] = {}
        """Of each JVM: how many threads of which name, when it was no longer young, and last."""
        self._pipeline = pipeline
        self._every = min(SAMPLE_SECONDS_MAX, seconds / SAMPLES)
        begin = quiet_from + 1.5 * YOUNG_SECONDS
        self._live_at = [begin + share * (seconds - begin) for share in LIVE_SHARES]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._began, self._began_s = time.monotonic(), time.time()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._every):
            try:
                self.samples.append(self._sample(time.monotonic() - self._began))
            except Exception:  # the run goes on, and too few samples are told
                traceback.print_exc()

    def _sample(self, at: float) -> Sample:
        taken = {
            kind: [found for one in processes if (found := self._process(kind, one, at)) is not None]
            for kind, processes in self._pipeline.processes().items()
        }
        return Sample(round(at, 1), taken, self._lag())

    def _process(self, kind: str, process: psutil.Process, at: float) -> Process | None:
        with contextlib.suppress(psutil.Error, OSError):
            born = process.create_time() - self._began_s
            measures: dict[str, float] = {}
            with process.oneshot():
                measures["memory"] = round(process.memory_info().rss / 1e6, 1)
                measures["handles"] = process.num_fds()
                measures["threads"] = process.num_threads()
            if kind == "jvm":
                self._look_into(process.pid, measures, at - born > YOUNG_SECONDS, at)
            return Process(process.pid, round(born, 1), measures)
        return None  # it has just ended

    def _look_into(self, pid: int, measures: dict[str, float], is_grown_up: bool, at: float) -> None:
        """A JVM."""
        names = thread_names(pid)
        measures["threads"] = sum(count for name, count in names.items() if not name.startswith(FILLING))
        if not is_grown_up:
            return
        known = self.jvm_threads.setdefault(pid, [names])
        known[1:] = [names]
        if self._live_at and at >= self._live_at[0]:
            self._live_at = [due for due in self._live_at if due > at]
            if (live := live_heap_mb(pid)) is not None:
                measures["live heap"] = live

    def _lag(self) -> float | None:
        """What was said last, and how long ago: a pipeline that has fallen silent falls behind."""
        latest = self._pipeline.latest
        seconds = latest.get("lag", {}).get("seconds")
        return None if seconds is None else round(seconds + max(0.0, time.time() - latest["updated"]), 2)


def thread_names(pid: int) -> Counter[str]:
    """How many threads of each name; names of a pool differ by their numbers alone."""
    names: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            names[re.sub(r"\d+", "#", (task / "comm").read_text().strip())] += 1
    return names


def grown(names: Iterable[Counter[str]]) -> dict[str, int]:
    """Those of which there are more in the end than in the beginning."""
    first, *_, last = [*names] * 2
    return {name: last[name] - first[name] for name in sorted(last) if last[name] > first[name]}


def live_heap_mb(pid: int) -> float | None:
    """What is left after a full collection; None without a JDK."""
    command = [str(Path(java()).resolve().with_name("jcmd")), str(pid), "GC.class_histogram"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=JCMD_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return None
    total = re.search(r"^Total\s+\d+\s+(\d+)", done.stdout, re.MULTILINE)
    return round(int(total[1]) / 1e6, 1) if total else None
