"""What else the machine was doing while a program was measured: without it a figure says little.

CPU seconds of all cores are split into those of the benchmark itself (its measured program, its servers) and
those of others. What a hypervisor gave to other guests (`steal`) is told apart.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from dataclasses import dataclass

import psutil

TOUCHED_BYTES = 1536 * 1024**2


def touch_memory() -> None:
    """Takes memory and gives it back. A virtual machine whose host takes back what lies idle pays for the
    first use of each page (measured: receiving 296 MB took 0.25 or 0.75 CPU-s, whether its pages had been
    used a moment ago or not); nobody is measured by that."""
    with mmap.mmap(-1, min(TOUCHED_BYTES, psutil.virtual_memory().available // 4)) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


@dataclass(frozen=True)
class Beside:
    """In the time from start to exit of a measured program."""

    servers_cpu_s: float
    """Of the private servers and whatever else the benchmark had running, the measured program left out."""
    others_cpu_s: float
    """Of everybody else on this machine."""
    stolen_cpu_s: float
    """Of other machines on the same processors."""
    load_before: float
    """Load average of the minute before."""

    def share(self, wall_s: float, cores: int) -> float:
        """Of the cores that others had, in percent."""
        return 100 * (self.others_cpu_s + self.stolen_cpu_s) / (wall_s * cores) if wall_s else 0.0


class Watch:
    """Begins when it is made. The measured program is a child that has been waited for when it ends."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._busy, self._stolen = _machine()
        self._running = _running()
        self._self = _self()

    def end(self) -> Beside:
        busy, stolen = _machine()
        running, ours = _running(), _self() - self._self
        servers = sum(running[pid] - cpu_s for pid, cpu_s in self._running.items() if pid in running)
        others = busy - self._busy - ours - servers
        return Beside(max(0.0, servers), max(0.0, others), max(0.0, stolen - self._stolen), self._load)


def _machine() -> tuple[float, float]:
    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + times.irq + times.softirq
    return busy, times.steal


def _self() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _running() -> dict[int, float]:
    """Of the processes under this one, by pid."""
    found: dict[int, float] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found
