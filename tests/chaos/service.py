"""A pipeline as a service manager runs it: started again whenever it ends, each end kept for the judge."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.testing.running import RunningPipeline

RESTART_SECONDS = 0.5


@dataclass(frozen=True)
class End:
    """How a run ended, and what it said on stderr."""

    code: int | None
    errors: str


class Service(RunningPipeline):
    """`kept` is true while it is to be started again. Thread-safe where the keeper and a test meet."""

    def __init__(self, file: Path, *, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(file, environment=environment)
        self.ends: list[End] = []
        self.kept = True
        self._guard = threading.RLock()
        self._ending = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._noted: object = None
        self._last_start = 0.0

    def __enter__(self) -> Service:
        self.start()
        self._keeper.start()
        return self

    def start(self) -> None:
        with self._guard:
            if self.alive:
                return
            self.note_end()
            self._ending.wait(max(0.0, self._last_start + RESTART_SECONDS - time.monotonic()))
            self._last_start = time.monotonic()
            super().start()

    def note_end(self) -> None:
        """Keeps how the last run ended, once."""
        with self._guard:
            process = self._process
            if process is None or process is self._noted or process.poll() is None:
                return
            self._noted = process
            time.sleep(0.05)  # for the last of what it said, which a thread still reads
            self.ends.append(End(process.returncode, self.errors))
            self.errors = ""

    def ensure_alive(self) -> None:
        if self.kept and not self._ending.is_set():
            self.start()

    def hold(self, *, stop: bool) -> int | None:
        """It is not started again until `release`. `stop`: it ends by SIGTERM; the exit code."""
        self.kept = False
        with self._guard:
            code = self.stop(seconds=150) if stop and self.alive else None
            self.note_end()
            return code

    def close_run(self) -> None:
        """Ends whatever still runs of it, at once; it may be started again."""
        with self._guard:
            super().close()
            self.note_end()

    def release(self) -> None:
        self.kept = True

    def close(self) -> None:
        self._ending.set()
        self.kept = False
        with self._guard:
            super().close()

    def victims(self, name: str) -> list[psutil.Process]:
        if name == "worker":
            return self._workers()
        return self.processes()[name]

    def _keep(self) -> None:
        while not self._ending.wait(0.1):
            with contextlib.suppress(OSError):
                self.ensure_alive()
