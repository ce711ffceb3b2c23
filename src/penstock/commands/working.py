"""Shows what a command is doing while it prints nothing else: the newest step (`steps.py`) and how long it
has taken."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from types import TracebackType
from typing import Any

from rich.live import Live
from rich.spinner import Spinner

from penstock.commands.terminal import cell, console, logged_above, say
from penstock.steps import STEPS

SILENT_SECONDS = 5.0
"""Without a terminal: the time after which a step that still runs is printed."""
AGAIN_SECONDS = 30.0
"""Without a terminal: the time after which it is printed again."""
TICK_SECONDS = 0.5
"""Time between two looks: people wait for no smaller part of a second."""

PROGRESS = logging.getLogger("penstock.progress")
"""The logger of progress. Its lines are printed whatever the level of other messages is."""
PROGRESS.setLevel(logging.INFO)


class Working(logging.Handler):
    """While the block lasts, shows steps on standard error: at a terminal as one line that changes, otherwise
    as log lines, and only those of steps that take long. `first`: the step that the block begins with."""

    def __init__(self, first: str) -> None:
        super().__init__()
        errors = console(stderr=True)
        self._live = _live(errors) if errors.is_terminal else None
        self._over = threading.Event()
        self._stack = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._tick, name="working", daemon=True)
        self._begin(first)

    def __enter__(self) -> Working:
        self._before = STEPS.level, STEPS.propagate
        STEPS.setLevel(logging.INFO)
        STEPS.propagate = False
        STEPS.addHandler(self)
        if self._live is not None:
            self._live.start()
            self._stack.enter_context(logged_above(self._live))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        STEPS.removeHandler(self)
        STEPS.level, STEPS.propagate = self._before
        self._over.set()
        self._thread.join()
        self._stack.close()
        if self._live is not None:
            self._live.stop()

    def say(self, text: Any) -> None:
        """Prints a line of the command's output on standard output."""
        if self._live is None:
            say(text)
            return
        with self.lock or threading.RLock():
            self._live.stop()
            say(text)
            self._live.start()

    def emit(self, record: logging.LogRecord) -> None:
        self._begin(record.getMessage())

    def _begin(self, what: str) -> None:
        self._what, self._since = what, time.monotonic()
        self._next = SILENT_SECONDS

    def _tick(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            with self.lock or threading.RLock():
                seconds = time.monotonic() - self._since
                if self._live is not None:
                    self._live.update(Spinner("dots", cell(f"{self._what} … {seconds:.0f} s")))
                elif seconds >= self._next:
                    self._next = seconds + AGAIN_SECONDS
                    PROGRESS.info("%s … %.0f s", self._what, seconds)


def _live(errors: Any) -> Live:
    """Only standard error is redirected: what the command prints is not for the terminal alone."""
    return Live("", console=errors, transient=True, redirect_stdout=False, refresh_per_second=4)
