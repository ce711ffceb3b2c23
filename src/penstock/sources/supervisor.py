"""The receiver as a child process of a pipeline, which starts, watches and restarts it.

One thread owns the child. A pipe to the child's standard input connects the two. When this process ends, in
whatever way, the pipe closes and the child stops. When the child ends, the thread notices it. A byte through
the pipe makes the child reconnect. Nothing else is shared, so either side may be killed at any moment.

Pipelines may share a relay log. If another process has its lease, this one uses the log as it is, and takes
over once the lease is free. So the log continues when the pipeline that ran the receiver is stopped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import config as configuration
from penstock.backoff import Backoff, Schedule
from penstock.errors import PenstockError, SourceError, TransientError
from penstock.relaylog import lease
from penstock.relaylog.status import TroubleLog, read_status, rebuild_error, silence

log = logging.getLogger(__name__)

RESTART = Schedule(first_s=0.2, max_s=10.0)
"""Pauses before the receiver is started again: soon after one crash, and seldom if it crashes each time."""
SPAWN_RETRY = Schedule.steady(1.0)
"""How often starting the process is retried. A disk that is full or read-only may be repaired."""
CRASHES_MAX = 10
"""Consecutive crashes, each within `CRASH_WITHIN_S` of its start. Then the pipeline gets the error, because
another start would not help."""
CRASH_WITHIN_S = 30.0
"""Seconds. A receiver that ran for longer has done its work, so its crash begins a new count."""
LEASE_CHECK_S = 0.5
"""How often it checks whether the receiver of another pipeline still writes the log."""
REPORT_S = 1.0
"""How often the child's report is read. The child writes it so often."""
TICK_S = 0.02
"""How often a condition is checked that the receiver will fulfil. It adds to the time that a pipeline takes
to start."""
STOP_TIMEOUT_S = 6.0
"""Longer than the receiver itself takes to stop (`stop_signals.END_S`). Then it is killed, and nothing is
lost."""
KILL_TIMEOUT_S = 2.0
"""A killed process ends at once, unless the kernel waits for a disk."""
LOG_FILE = "receiver.log"


class Supervisor:
    """`sources.receiver.Receiver` with a process of its own. `check` raises the error that ended it.

    `folder`: that of the relay log. None: as the pipeline file says. `start_place`: a place in
    the source's log that a new relay log must have. None: as the pipeline file says. `source`: of a server's
    file with several `sources`."""

    def __init__(
        self, file: Path, folder: Path | None = None, *, start_place: str | None = None, source: str = ""
    ) -> None:
        self._file = file
        self._start = [] if start_place is None else ["--start-place", start_place]
        if source:
            self._start += ["--source", source]
        self._folder = folder or configuration.load(file).relay_log_path
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._fatal: PenstockError | None = None
        self._trouble = ""
        """Why no child can be started now."""
        self._log = TroubleLog()
        self.restarts = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="receiver-supervisor", daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Asks the child to stop, if this process started it, and returns at once. The caller still calls
        `stop`."""
        self._stopping.set()
        with self._lock:
            child = self._child
        if child is not None:
            _ask_to_stop(child)

    def stop(self) -> None:
        """Stops the child, if this process started it. May be called twice, and without `start`."""
        self.ask_to_stop()
        with self._lock:
            child = self._child
        if child is not None:
            _end(child)
        if self._thread is not None:
            self._thread.join(KILL_TIMEOUT_S)
            self._thread = None

    def check(self) -> None:
        """Raises the error that ended the receiver for good."""
        if self._fatal is not None:
            raise self._fatal

    def wait_for(
        self, condition: Callable[[], Any], what: str, stopping: threading.Event, *, seconds: float
    ) -> None:
        """Waits until the condition is true. An error that ends the receiver ends the wait at once."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.check()
            if stopping.is_set():
                raise TransientError(f"Stopped while waiting for {what}.")
            if time.monotonic() > deadline:
                raise TransientError(
                    f"Waited {seconds:.0f} s for {what} without success.",
                    hint=f"The receiver says: {self.describe()}",
                )
            time.sleep(TICK_S)  # polls a condition, with a limit

    def renew(self) -> None:
        """Makes the child reconnect. Each connection begins a segment, so the end of the log advances even if
        the source is idle."""
        with self._lock:
            child = self._child
        if child is not None and child.stdin is not None:
            with contextlib.suppress(OSError):  # it has just ended, and connects when it is started again
                os.write(child.stdin.fileno(), b"\n")

    @property
    def pid(self) -> int | None:
        """The child's process id. None while it is starting, or while another receiver has the lease."""
        with self._lock:
            return self._child.pid if self._child is not None and self._child.poll() is None else None

    def describe(self) -> str:
        """What the receiver of this log is doing now, in one line for people."""
        if self._trouble:
            return self._trouble
        report = read_status(self._folder)
        if not report:
            return "starting"
        whose = "" if report.get("pid") == self.pid else f" (process {report.get('pid')}, not ours)"
        message = f": {report['message']}" if report.get("message") else ""
        return f"{report.get('state')}{whose}{silence(report)}{message}"

    # the thread
    # ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        restart, spawn, crashes = Backoff(RESTART), Backoff(SPAWN_RETRY), 0
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                if lease.is_held(self._folder):
                    self._stopping.wait(LEASE_CHECK_S)
                    continue
                child = self._spawn()
            except (OSError, PenstockError) as trouble:
                self._report(f"cannot be started: {trouble}")
                spawn.failed()
                spawn.wait(self._stopping)
                continue
            self._report("")
            if child is None:
                return
            code = self._wait(child)
            if self._stopping.is_set():
                return
            if code == 1 and (error := self._reason(child.pid)) is not None:
                self._fatal = error
                return
            if code == 3:
                continue
            if time.monotonic() - started < CRASH_WITHIN_S:
                crashes += 1
            else:
                crashes = 0
                restart.succeeded()
            if crashes >= CRASHES_MAX:
                self._fatal = SourceError(
                    f"The receiver ended {crashes} times in a row (exit code {code}): {self._log_tail()}",
                    hint=f"Run `penstock receive {self._file}` by itself to see why.",
                )
                return
            self.restarts += 1
            restart.failed()
            restart.wait(self._stopping)

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        """The child's exit code. Meanwhile its trouble is logged."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(REPORT_S)
            if (report := read_status(self._folder)).get("pid") == child.pid:
                self._log.look(report)

    def _report(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.warning("the receiver %s", trouble)
        self._trouble = trouble

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = [sys.executable, "-m", "penstock", "receive", str(self._file), "--child", "--json"]
        with self._lock:
            if self._stopping.is_set():
                return None
            with open(self._folder / LOG_FILE, "wb") as output:
                self._child = subprocess.Popen(
                    [*command, *self._start],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    # A Ctrl-C at the terminal is for the pipeline, which then stops its child.
                    start_new_session=True,
                )
            return self._child

    def _reason(self, pid: int) -> PenstockError | None:
        """The error that the child has reported. None if it has reported nothing (a crash)."""
        report = read_status(self._folder)
        if report.get("pid") == pid and report.get("state") == "failed" and report.get("error"):
            return rebuild_error(report["error"])
        # It failed before it could report: its last line is the error.
        try:
            fields: Any = json.loads(self._log_tail(lines=1))
        except (ValueError, RecursionError):
            return None
        return rebuild_error(fields) if isinstance(fields, dict) and "error" in fields else None

    def _log_tail(self, lines: int = 5) -> str:
        try:
            text = (self._folder / LOG_FILE).read_bytes()[-8192:].decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])


def _ask_to_stop(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Waits for a child that was asked to stop, and kills it if that takes too long."""
    try:
        child.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        log.warning(
            "the receiver (process %d) did not end within %g s and is killed", child.pid, STOP_TIMEOUT_S
        )
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(KILL_TIMEOUT_S)
