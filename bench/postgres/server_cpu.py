"""The CPU time of a PostgreSQL server's processes, apart from those of its clients."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

from bench import measure
from penstock.testing.servers.postgresql import PostgreSqlServer

_SAMPLE_S = 0.025
_TICKS = os.sysconf("SC_CLK_TCK")
_WALSENDER = b"walsender"


class ServerCpu(AbstractContextManager["ServerCpu"]):
    """Samples it in a thread while the block lasts."""

    def __init__(self, server: PostgreSqlServer) -> None:
        assert server.pid is not None
        self._pid = server.pid
        self._all: list[tuple[float, float]] = []
        self._walsenders: list[tuple[float, float]] = []
        self._of_walsender: dict[int, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def all_s(self, began: float, ended: float) -> float:
        """CPU seconds of all processes of the server between two monotonic times."""
        return measure.at(self._all, ended) - measure.at(self._all, began)

    def walsenders_busy_s(self, began: float, ended: float) -> float:
        """Seconds in which those that send the log had a processor, or waited for one. In the others they
        waited for their clients, or for the disk."""
        return measure.at(self._walsenders, ended) - measure.at(self._walsenders, began)

    def _run(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            now = time.monotonic()
            total = _used_s(self._pid, with_ended=True)
            for pid in _children(self._pid):
                with contextlib.suppress(OSError):
                    total += _used_s(pid)
                    if _WALSENDER in Path(f"/proc/{pid}/cmdline").read_bytes():
                        had, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
                        self._of_walsender[pid] = (int(had) + int(waited)) / 1e9
            self._all.append((now, total))
            self._walsenders.append((now, sum(self._of_walsender.values())))


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _used_s(pid: int, *, with_ended: bool = False) -> float:
    """`with_ended`: its children that have ended, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / _TICKS
