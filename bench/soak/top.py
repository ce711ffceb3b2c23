"""How many changes a second a pipeline takes, from the writer's transactions to the targets.

The writer writes as much as it can for a minute while the pipeline runs, then everything is waited for: the
time to catch up counts. Writer, source and pipeline share the machine. Whether the pipeline was what limited
the rate is seen from how far it was behind when the writer stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from penstock.testing.running import RunningPipeline
from penstock.testing.servers import MySqlServer
from penstock.testing.writer import Writer

WARM_SECONDS = 15.0
SECONDS = 60.0
DRAIN_SECONDS_MAX = 900.0
BEHIND_SECONDS = 5.0
"""A pipeline that keeps up is less than this behind: an epoch under way, and one that waits."""
AS_MUCH_AS_CAN_BE = float("inf")
CORES_BUSY = 0.9
"""More than this share of them, and nothing could have been quicker on this machine."""


@dataclass(frozen=True)
class Top:
    changes: int
    seconds_written: float
    seconds_to_drain: float
    lag_seconds: float | None
    """When the writer stopped."""
    cpu_s: dict[str, float]
    """While it wrote: of the writer, the source and the pipeline; of everybody; and what the cores had to
    give."""

    @property
    def per_second(self) -> float:
        return self.changes / (self.seconds_written + self.seconds_to_drain)

    @property
    def limit(self) -> str:
        if self.lag_seconds is None or self.lag_seconds > BEHIND_SECONDS:
            return "the pipeline"
        busy = self.cpu_s["all"] > CORES_BUSY * self.cpu_s["cores"]
        return "the cores that all three share" if busy else "the writer and the source"

    def to_json(self) -> dict[str, Any]:
        rounded = {
            name: round(value, 1) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }
        return {**rounded, "changes_per_second": round(self.per_second), "limit": self.limit}

    def text(self) -> str:
        behind = "unknown" if self.lag_seconds is None else f"{self.lag_seconds:.1f} s"
        cpu = ", ".join(f"{name} {self.cpu_s[name]:.0f}" for name in ("writer", "source", "pipeline", "all"))
        return (
            f"Top rate: {self.per_second:,.0f} changes/s ({self.changes:,} changes, written in "
            f"{self.seconds_written:.0f} s and drained in {self.seconds_to_drain:.0f} s). When the writer "
            f"stopped the lag was {behind}: the limit was {self.limit}. CPU seconds while it wrote: {cpu}, "
            f"of {self.cpu_s['cores']:.0f} that the cores had."
        )


def top_rate(
    server: MySqlServer, pipeline: RunningPipeline, writer: Writer, say: Callable[[str], None]
) -> Top:
    """The writer is paused before and afterwards. A first, shorter time is for the JVM to compile."""
    for seconds in (WARM_SECONDS, SECONDS):
        top = _measured(server, pipeline, writer, seconds)
        say(f"  {top.text()}")
    return top


def _measured(server: MySqlServer, pipeline: RunningPipeline, writer: Writer, seconds: float) -> Top:
    before, began = writer.pause(), time.monotonic()
    cpu_before = _cpu_s(server, pipeline)
    writer.rate = AS_MUCH_AS_CAN_BE
    while time.monotonic() - began < seconds and writer.running and pipeline.alive:
        time.sleep(0.1)  # the pace of looking
    after, written = writer.pause(), time.monotonic()
    cpu_after, lag = _cpu_s(server, pipeline), pipeline.latest.get("lag", {}).get("seconds")
    pipeline.drained(*server.position(), seconds=DRAIN_SECONDS_MAX)
    cpu = {name: cpu_after[name] - cpu_before[name] for name in cpu_after}
    cpu["cores"] = (written - began) * (os.cpu_count() or 1)
    return Top(after.changes - before.changes, written - began, time.monotonic() - written, lag, cpu)


def _cpu_s(server: MySqlServer, pipeline: RunningPipeline) -> dict[str, float]:
    assert server.pid is not None
    source, busy = psutil.Process(server.pid).cpu_times(), psutil.cpu_times()
    return {
        "writer": time.process_time(),
        "source": source.user + source.system,
        "pipeline": sum(pipeline.cpu_seconds().values()),
        "all": sum(getattr(busy, name) for name in ("user", "nice", "system", "irq", "softirq", "steal")),
    }
