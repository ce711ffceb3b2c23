"""Memory, threads and open handles of processes that live on: at the end as at the start."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.soak.samples import FILLING, thread_names
from tests.chaos.service import Service

LIMITS: dict[str, dict[str, int]] = {
    "driver": {"threads": 12, "handles": 20, "memory_mb": 120},
    "receiver": {"threads": 2, "handles": 6, "memory_mb": 60},
    "jvm": {"threads": 60, "handles": 80, "memory_mb": 450},
}
"""How much more of it there may be. A run of half a minute is young: pools still fill, code is compiled."""


@dataclass(frozen=True)
class Footprint:
    """Of each kind of process: its number and what it has."""

    of: dict[str, tuple[int, dict[str, int]]] = field(default_factory=dict)
    opened: dict[str, Counter[str]] = field(default_factory=dict)
    """What the handles of each kind of process are, without numbers and hexadecimal names: `*`."""


def footprint(service: Service) -> Footprint:
    found, opened = {}, {}
    for kind, processes in service.processes().items():
        if kind not in LIMITS or len(processes) != 1:
            continue
        with contextlib.suppress(Exception):
            process = processes[0]
            with process.oneshot():
                measures = {
                    "threads": threads(process.pid),
                    "handles": process.num_fds(),
                    "memory_mb": process.memory_info().rss // 1_000_000,
                }
            found[kind] = (process.pid, measures)
            opened[kind] = handles(process.pid)
    return Footprint(found, opened)


def threads(pid: int) -> int:
    """But for pools that start a thread with each of the first hundred things they do."""
    names = thread_names(pid)
    return sum(count for name, count in names.items() if not name.startswith(FILLING))


def handles(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found[re.sub(r"[0-9a-f-]{8,}|\d+", "*", str(path.readlink()))] += 1
    return found


def grown(before: Footprint, after: Footprint) -> list[str]:
    """What has grown beyond its limit, of processes that are the same ones."""
    found = []
    for kind, (pid, measures) in before.of.items():
        again, now = after.of.get(kind, (0, {}))
        if again != pid:
            continue
        for name, value in measures.items():
            if now[name] - value > LIMITS[kind][name]:
                found.append(f"{kind}: {name} {value} -> {now[name]}")
                if name == "handles":
                    more = after.opened.get(kind, Counter()) - before.opened.get(kind, Counter())
                    found += [f"{kind}: {count} more of {what}" for what, count in more.most_common(3)]
    return found
