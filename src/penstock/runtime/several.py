"""Runs a pipeline file with several sinks: one process for each, over one relay log.

Each process is `penstock run FILE#NAME`, a whole pipeline with its own state. They share the relay log, whose
receiver is started by the first one, and taken over by another when that one ends. Retention keeps log that
any of them still needs, because each is registered as a consumer. So nothing that happens to one sink holds
up another: not its speed, not its errors, not the memory of its JVM.

A process that ends with an error is started again, with pauses, as long as another one runs. It also ends
when this process does, in whatever way: the pipe to its standard input closes then.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TextIO

from penstock.backoff import Backoff, Schedule
from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.errors import PenstockError, TablesParked
from penstock.printable import printable

log = logging.getLogger(__name__)

RESTART = Schedule(first_s=2.0, max_s=60.0)
"""Pauses before a sink that has ended with an error is tried again."""
LOOK_SECONDS = 0.1
"""Seconds between two checks whether a process has ended."""
STOP_EXTRA_SECONDS = 10.0
"""Time beyond `stop_timeout` after which a process that was told to stop is killed."""
LASTED_SECONDS = 120.0
"""A process that ran for so long has done some work, so its error begins a new count."""
WORDS_LINES = 8
"""Lines of a process's standard error that are remembered."""
PARKED = 4
"""Exit code of a run whose tables are parked."""

Print = Callable[[str], None]


class _Member:
    """The process of one sink."""

    def __init__(self, file: Path, name: str, *, once: bool, say: Print | None) -> None:
        """`say`: takes the lines of its reports, as JSON. None: it prints summaries to standard error."""
        self.name = name
        self.code: int | None = None
        """The exit code of its last process, after that has ended."""
        self.words: deque[str] = deque(maxlen=WORDS_LINES)
        self._argv = [sys.executable, "-m", "penstock", "run", f"{file}#{name}", "--child"]
        self._argv += ["--once"] * once + ["--json"] * (say is not None)
        self._say = say
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []
        self._backoff = Backoff(RESTART)
        self._started = 0.0

    def start(self) -> None:
        self.code, self._started = None, time.monotonic()
        self.words.clear()
        output = subprocess.PIPE if self._say is not None else subprocess.DEVNULL
        process = self._process = subprocess.Popen(
            self._argv, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE, text=True,
            errors="replace",
        )  # fmt: skip
        self._readers = [self._reader(process.stderr, self._noted)]
        if self._say is not None:
            self._readers.append(self._reader(process.stdout, self._say))

    def _reader(self, stream: IO[str] | None, take: Print) -> threading.Thread:
        def read() -> None:
            assert stream is not None
            with stream:
                for line in stream:
                    take(line.rstrip("\n"))

        thread = threading.Thread(target=read, name=f"sink-{self.name}", daemon=True)
        thread.start()
        return thread

    def _noted(self, line: str) -> None:
        self.words.append(line)
        document = _object(line) if self._say is not None else {}
        said = json.dumps({"sink": self.name} | document) if document else f"[{self.name}] {printable(line)}"
        print(said, file=sys.stderr, flush=True)

    def look(self) -> bool:
        """Whether its process runs."""
        process = self._process
        if process is None or process.poll() is None:
            return process is not None
        for reader in self._readers:
            reader.join(1.0)
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        self._process, self.code = None, process.returncode
        if self.code:
            if time.monotonic() - self._started > LASTED_SECONDS:
                self._backoff = Backoff(RESTART)
            self._backoff.failed()
        return False

    def start_if_due(self) -> None:
        if self._process is None and self.code and self._backoff.ready:
            log.warning("the sink %s is started again", self.name)
            self.start()

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.look()

    @property
    def error(self) -> str:
        """The error that its last process ended with, in its own words."""
        if message := _object(self.words[-1]).get("message") if self.words else "":
            return str(message)
        said = " ".join(self.words)
        _, mark, message = said.rpartition("penstock: ")
        return message if mark else f"it ended with code {self.code}"


def _object(line: str) -> dict[str, Any]:
    """The JSON object that a line is; empty if it is something else."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def run_several(
    file: Path,
    config: PipelineConfig,
    members: Mapping[str, PipelineConfig],
    stopping: threading.Event,
    *,
    once: bool,
    out: TextIO | None = None,
) -> None:
    """Runs until `stopping` is set; with `once`, until each sink has everything that is committed now. `out`:
    where the reports of all sinks are printed, one JSON document a line.

    Raises a `PenstockError` when no sink can run any more; with `once`, when a sink has ended with an error.
    """
    guard = threading.Lock()

    def say(line: str) -> None:
        assert out is not None
        with guard:
            print(line, file=out, flush=True)

    directory.make(config.state, "state")
    with directory.held(config.state):
        directory.make(config.relay_log.path or config.state / "relay", "relay_log.path")
        all_ = [_Member(file, name, once=once, say=None if out is None else say) for name in members]
        try:
            for member in all_:
                member.start()
            while not stopping.wait(LOOK_SECONDS):
                running = [member for member in all_ if member.look()]
                if not running:
                    break
                if not once:
                    for member in all_:
                        member.start_if_due()
        finally:
            _end(all_, config.stop_timeout / 1000)
    failed = {member.name: member for member in all_ if member.code}
    if failed and not stopping.is_set():
        raise _error(failed, len(all_))


def _end(members: list[_Member], seconds: float) -> None:
    until = time.monotonic() + seconds + STOP_EXTRA_SECONDS
    for member in members:
        member.ask_to_stop()
    while any(member.look() for member in members) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)  # polls a condition, with a limit
    for member in members:
        member.kill()


def _error(failed: Mapping[str, _Member], count: int) -> PenstockError:
    kind = TablesParked if all(member.code == PARKED for member in failed.values()) else PenstockError
    said = " ".join(f"{name}: {member.error}" for name, member in failed.items())
    return kind(
        f"{len(failed)} of {count} sinks ended with an error. {said}",
        hint="Each continues where it was at the next start.",
        sinks=sorted(failed),
    )
