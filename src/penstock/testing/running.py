"""Runs a pipeline in a separate process, as a user does, so that a test can watch and kill it.

`RunningPipeline` starts `penstock run FILE --json`, reads its progress, and finds the processes that belong
to it: the driver, its JVM, the Python workers, the receiver. The demo and the crash tests use it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import psutil

from penstock import config as configuration

Victim = Literal["driver", "receiver", "worker", "jvm"]


class RunningPipeline:
    """Context manager. `latest` is the newest progress document; `errors` is what the process wrote to
    stderr. `environment`: variables in addition to those of this process."""

    def __init__(self, file: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self.file = file
        self.environment = dict(environment or {})
        self.config = configuration.load(file)
        self.latest: dict[str, Any] = {}
        self.errors = ""
        self.kills: list[str] = []
        self.starts = 0
        self._process: subprocess.Popen[str] | None = None
        self._killed: subprocess.Popen[str] | None = None
        self._arrived = threading.Condition()

    def __enter__(self) -> RunningPipeline:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.latest = {}
        self.starts += 1
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "run", str(self.file), "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )

        def progress(line: str) -> None:
            if (
                self._process is process and self._killed is not process
            ):  # ignores the last lines of a killed process
                self._progress(line)

        for stream, take in ((process.stdout, progress), (process.stderr, self._error)):
            threading.Thread(target=_pump, args=(stream, take), daemon=True).start()

    def stop(self, *, seconds: float = 120) -> int:
        """Sends SIGTERM. Returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(seconds)

    def wait(self, *, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def close(self) -> None:
        """Kills every process of the pipeline that still runs."""
        if self._process is None:
            return
        family = [*self._family(), *self._receivers()]
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ensure_alive(self) -> None:
        """Starts the pipeline again if it has ended, as a service manager would."""
        if not self.alive:
            self.start()

    # waiting ------------------------------------------------------------------------------------------------

    def wait_until(
        self, condition: Callable[[dict[str, Any]], Any], what: str, *, seconds: float, restart: bool = False
    ) -> dict[str, Any]:
        """Waits for a progress document that meets the condition, and returns it. `what` names the condition
        in messages. `restart`: start the pipeline again if it ends. Raises `AssertionError` after `seconds`,
        or if the pipeline ends and `restart` is False."""
        deadline = time.monotonic() + seconds
        with self._arrived:
            while not (self.latest and condition(self.latest)):
                if not self.alive and not restart:
                    raise AssertionError(
                        f"the pipeline ended while waiting for {what}: {self.errors[-3000:]}"
                    )
                if not self.alive:
                    self.start()
                if time.monotonic() > deadline:
                    raise AssertionError(
                        f"{what} did not happen within {seconds} s; alive: {self.alive}, started "
                        f"{self.starts} times, last: {json.dumps(self.latest)}, errors: {self.errors[-3000:]}"
                    )
                self._arrived.wait(0.5)
            return self.latest

    def next_epoch(
        self, *, after: float | None = None, seconds: float, restart: bool = False
    ) -> dict[str, Any]:
        """Waits for an epoch after `after` (default: after the newest known one). Returns its first progress
        document."""
        before = self.latest.get("epoch", 0) if after is None else after
        return self.wait_until(
            lambda status: status["epoch"] > before, "an epoch", seconds=seconds, restart=restart
        )

    def drained(self, file: str, position: int, *, seconds: float, restart: bool = False) -> dict[str, Any]:
        """As `drained_to`, for a place in a binlog."""
        goal = (int(file.rsplit(".", 1)[1]), position)

        def reached(place: str) -> bool:
            name, _, at = place.rpartition(":")
            return (int(name.rsplit(".", 1)[1]), int(at)) >= goal

        return self.drained_to(reached, f"{file}:{position}", seconds=seconds, restart=restart)

    def drained_to(
        self, reached: Callable[[str], bool], place: str, *, seconds: float, restart: bool = False
    ) -> dict[str, Any]:
        """Waits until everything up to a place in the source's log is at the targets and the snapshot is
        done. Progress documents from before the call do not count: they may not include a signal that was
        sent since. `reached` is asked about the source's position, if there is one."""
        asked = time.monotonic()

        def done(status: dict[str, Any]) -> bool:
            if status["clock"][1] < asked:  # a monotonic clock, because a test may step the wall clock
                return False
            if not status["source_position"] or not status["snapshot"]["done"] or status["lag"]["bytes"]:
                return False
            if any(table["catching_up"] for table in status["tables"]):
                return False
            return reached(status["source_position"]) and status["offset"] >= status["log_end"]

        return self.wait_until(done, f"the pipeline to reach {place}", seconds=seconds, restart=restart)

    # killing ------------------------------------------------------------------------------------------------

    def kill(self, victim: Victim) -> bool:
        """Kills one such process with SIGKILL. Returns False if there is none at the moment."""
        if victim == "receiver":
            targets = self._receivers()
        elif victim == "driver":
            targets = [psutil.Process(self._process.pid)] if self._process and self.alive else []
        elif victim == "jvm":
            targets = [
                p for p in self._family() if _command(p).startswith("java") or "/java" in _command(p)[:200]
            ]
        else:
            targets = self._workers()
        for process in targets[-1:]:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
                self.kills.append(victim)
                if victim == "driver" and self._process is not None:
                    self._process.wait(60)
                    with self._arrived:
                        self._killed, self.latest = (
                            self._process,
                            {},
                        )  # its progress says nothing about the next process
                return True
        return False

    def resident_mb(self) -> dict[str, int]:
        """Returns the resident memory of the receiver, of the driver (without its JVM) and of the largest
        Python worker, in MB."""
        found = {"receiver": 0, "driver": 0, "worker": 0}
        with contextlib.suppress(psutil.Error):
            if self._process is not None and self.alive:
                found["driver"] = psutil.Process(self._process.pid).memory_info().rss // 1_000_000
        for name, processes in (("receiver", self._receivers()), ("worker", self._workers())):
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    found[name] = max(found[name], process.memory_info().rss // 1_000_000)
        return found

    @property
    def pid(self) -> int:
        """Process id of the driver."""
        assert self._process is not None
        return self._process.pid

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Returns the running processes by their roles."""
        found: dict[str, list[psutil.Process]] = {"driver": [], "jvm": [], "receiver": [], "workers": []}
        if self.alive:
            found["driver"] = [psutil.Process(self.pid)]
        found["receiver"] = self._receivers()
        known = {process.pid for process in found["receiver"]}
        for process in self._family():
            command = _command(process)
            if process.pid in known or not command:
                continue
            found["jvm" if "java" in command.partition(" ")[0] else "workers"].append(process)
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the CPU time in seconds that the running processes have used, by their roles."""
        used: dict[str, float] = {}
        for name, processes in self.processes().items():
            used[name] = 0.0
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    used[name] += times.user + times.system
        return used

    def _family(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        try:
            return list(psutil.Process(self._process.pid).children(recursive=True))
        except psutil.Error:
            return []

    def _workers(self) -> list[psutil.Process]:
        return [p for p in self._family() if " -m penstock.spark.daemon" in _command(p)]

    def _receivers(self) -> list[psutil.Process]:
        try:
            document = json.loads((self.config.relay_log_path / "receiver.json").read_text("utf-8"))
            process = psutil.Process(int(document["pid"]))
            return [process] if "penstock" in _command(process) else []
        except (OSError, ValueError, KeyError, psutil.Error):
            return []

    def _progress(self, line: str) -> None:
        with contextlib.suppress(ValueError), self._arrived:
            self.latest = json.loads(line)
            self._arrived.notify_all()

    def _error(self, line: str) -> None:
        self.errors = (self.errors + line)[-100_000:]


def _pump(stream: Any, take: Callable[[str], None]) -> None:
    with contextlib.suppress(ValueError):
        for line in stream:
            take(line)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
