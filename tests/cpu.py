"""`pytest --cpu`: the CPU seconds that each test used, and for how many seconds it only waited.

Run times say as much about what else the machine does as about a test; these two hardly do. What a test costs
is what the processes used while it ran: the worker of pytest, and all processes begun by it or by one of
those, such as JVMs and servers. It only waits while no thread of them is running or could run. A session's
fixture (Spark, a server) counts for the test that asked for it first.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

MARK = "PENSTOCK_TEST_RUN"
"""A variable in the environment of each process that belongs to this worker."""
SHOWN_SECONDS = 0.5
"""Of a test, file or folder: what takes less is not shown."""
SAMPLE_SECONDS = 0.1
_TICK = os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    ours: bool
    parent: str
    seconds: float
    """Its own, and those of the children that it has waited for."""


class Meter:
    """Measures this process and everything begun by it."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        os.environ[MARK] = self._mark
        self._known: dict[str, _Process] = {}
        """By process id and time of its start."""
        self._lost = 0.0
        """CPU seconds of processes that ended without a parent that waited for them."""
        self._waited = 0.0
        self._lock = threading.Lock()
        self.read()
        threading.Thread(target=self._watch, daemon=True).start()

    def read(self) -> tuple[float, float]:
        """CPU seconds and seconds of waiting, since the start."""
        with self._lock:
            found: dict[str, _Process] = {}
            for pid in filter(str.isdigit, (path.name for path in Path("/proc").iterdir())):
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                key = f"{pid} {fields[19]}"
                ours = (key in self._known and self._known[key].ours) or self._is_ours(pid)
                found[key] = _Process(ours, fields[1], sum(map(int, fields[11:15])) / _TICK)
            living = {key.partition(" ")[0] for key, one in found.items() if one.ours}
            # Servers have an environment of their own.
            while children := {
                key: one._replace(ours=True)
                for key, one in found.items()
                if not one.ours and one.parent in living
            }:
                found |= children
                living |= {key.partition(" ")[0] for key in children}
            for key, one in self._known.items():
                if one.ours and key not in found and one.parent not in living:
                    self._lost += one.seconds
            self._known = found
            return self._lost + sum(one.seconds for one in found.values() if one.ours), self._waited

    def _is_ours(self, pid: str) -> bool:
        if pid == str(os.getpid()):
            return True
        try:
            return f"{MARK}={self._mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def _watch(self) -> None:
        last = listed = time.monotonic()
        while True:
            time.sleep(SAMPLE_SECONDS)  # between two samples
            now = time.monotonic()
            if now - listed > 1:
                listed = now
                self.read()
            if not self._busy():
                self._waited += min(now - last, 2 * SAMPLE_SECONDS)
            last = now

    def _busy(self) -> bool:
        own = str(threading.get_native_id())
        for pid in [key.partition(" ")[0] for key, one in list(self._known.items()) if one.ours]:
            for thread in _names(Path(f"/proc/{pid}/task")):
                try:
                    state = Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                if state in "RD" and thread != own:
                    return True
        return False


def _names(folder: Path) -> list[str]:
    """Plain names: paths would cost more than all the rest of a sample."""
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


class Cpu:
    """The plugin: measures in each worker, adds up where the results arrive."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._last = self._meter.read()
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        """CPU seconds, seconds of waiting, and all seconds, by test, file and folder."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        before, self._last = self._last, self._meter.read()
        item.user_properties[:] = [one for one in item.user_properties if one[0] != "cpu"]
        item.user_properties.append(
            ("cpu", [now - last for now, last in zip(self._last, before, strict=True)])
        )
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        used: Any = dict(report.user_properties).get("cpu", (0.0, 0.0))
        file = report.nodeid.partition("::")[0]
        for name in (report.nodeid, file, str(Path(file).parent), "together"):
            self._sums[name] = [
                a + b for a, b in zip(self._sums[name], (*used, report.duration), strict=True)
            ]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("CPU seconds, seconds of waiting, all seconds")
        for name, (used, waited, took) in sorted(self._sums.items(), key=lambda one: -one[1][0]):
            if max(used, waited) >= SHOWN_SECONDS:
                terminalreporter.write_line(f"{used:8.1f} {waited:8.1f} {took:8.1f}  {name}")
