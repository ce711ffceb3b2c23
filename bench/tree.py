"""Runs a command and measures its whole process tree: `python -I -S tree.py OUT INTERVAL_MS COMMAND…`.

The process makes itself the reaper of all descendants, so CPU time is the kernel's exact account also for
those whose parent died first (Python workers of Spark, for example). It samples the tree meanwhile; at the
end it writes `{exit_code, wall_s, cpu_s, rss_mb, series: [[monotonic_s, cpu_s, rss_mb], …]}` to OUT.
`rss_mb` is the largest sum of resident memory over the tree's processes at one sample, or the peak of the
largest process if that is more. Whatever is left of the tree is killed when the command ends or this
process is told to stop. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LEFTOVERS_GRACE_S = 10


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = children(pid)
    while waiting:
        found += waiting
        waiting = [grandchild for child in waiting for grandchild in children(child)]
    return found


def reaped_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def sample() -> list[float]:
    """Monotonic time, CPU seconds used so far by the tree, its resident MB now."""
    ticks = pages = 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))
            pages += int(fields[21])
    return [time.monotonic(), ticks / _TICKS + reaped_s(), pages * _PAGE / 1e6]


def kill_descendants() -> None:
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def main() -> int:
    out, interval_s, command = sys.argv[1], float(sys.argv[2]) / 1000, sys.argv[3:]
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    def stop(*_: object) -> None:
        kill_descendants()
        os._exit(143)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    began = time.monotonic()
    process = subprocess.Popen(command)
    series = []
    while process.poll() is None:
        series.append(sample())
        time.sleep(interval_s)
    wall_s = time.monotonic() - began
    deadline = time.monotonic() + _LEFTOVERS_GRACE_S
    while True:  # orphans, ours to reap
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            if time.monotonic() > deadline:
                kill_descendants()
            time.sleep(0.02)
    largest_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    summed_mb = max((row[2] for row in series), default=0.0)
    result = {
        "exit_code": process.returncode,
        "wall_s": wall_s,
        "cpu_s": reaped_s(),
        "rss_mb": max(largest_mb, summed_mb),
        "series": series,
    }
    Path(out).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
