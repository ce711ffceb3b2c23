"""A subscription server under measurement: a command that says where it listens, in JSON."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import psutil

SAMPLE_S = 0.05


class Usage:
    """CPU seconds of the server since it listens, and of its children since they began; peak memory."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._before = _cpu_s(process)
        self._children: dict[int, float] = {}
        self.rss_mb = self.children_rss_mb = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            self.look()

    def look(self) -> None:
        with contextlib.suppress(psutil.Error):
            self.rss_mb = max(self.rss_mb, self._process.memory_info().rss / 1e6)
            children = self._process.children(recursive=True)
            for one in children:
                self._children[one.pid] = _cpu_s(one)
            self.children_rss_mb = max(
                self.children_rss_mb, sum(one.memory_info().rss for one in children) / 1e6
            )

    @property
    def cpu_s(self) -> float:
        self.look()
        return _cpu_s(self._process) - self._before + sum(self._children.values())

    def end(self) -> None:
        self._stopping.set()
        self._thread.join()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[tuple[str, Usage]]:
    """The address of Canal's protocol, and what is used."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{") and "listening" in (said := json.loads(line)):
                    break
            else:
                sys.exit("Error: the server has not begun")
            usage = Usage(psutil.Process(process.pid))
            yield said["listening"]["canal"], usage
            usage.end()
        finally:
            process.terminate()
