"""A run that is told to end ends within `stop_timeout`, whatever it waits for.

To wait for what is under way is the better end, so there are steps:

1. At once nothing new is begun; what is under way (an epoch, chunks) may finish.
2. After a third of the time every wait for the source is ended (`Source.interrupt`).
3. After half of it Spark's jobs are cancelled.
4. At the end the process says what still runs, in its log and for `penstock status`, and exits. Nothing is
   lost by that: it is what `kill -9` does, and every step is made for it.

A run that ends with an error has the same time for closing down. One that ends because it has finished has
all the time it needs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from penstock.config import take_back
from penstock.printable import printable
from penstock.state.report import note_end

log = logging.getLogger(__name__)

TICK_SECONDS = 0.2
"""How often a run that stops looks what is still running."""
FINISHED_SECONDS = 3600.0
"""For closing down a run that has finished."""
BY_FORCE = 5
"""The exit code of a run that had to be ended in the midst of something."""
LAST_WORDS_SECONDS = 1.0
"""For writing why the run is ended by force: the disk may be what it waits for."""
_SHOWN_MAX = 10
"""Names of what still runs, in one message."""


class Ending:
    """Watches a run from a thread of its own, as a context manager around all of it. `cancel_jobs` is known
    once Spark runs. `exits`: step 4 is taken; else the caller's process goes on, and threads may be left
    behind."""

    def __init__(
        self,
        told: threading.Event,
        timeout_s: float,
        *,
        exits: bool = False,
    ) -> None:
        """`told`: that the run is to end."""
        self._told = told
        self._timeout_s = timeout_s
        self._exits = exits
        self.report: Callable[[list[str]], None] = lambda running: None
        """Is told what still runs, about once a second while the run ends."""
        self.beat: Callable[[], None] = lambda: None
        """Is called about once a second until then: the run's main thread may be waiting for the source."""
        self.forced: Callable[[str], None] = lambda message: None
        """Is told why the run ends by force."""
        self.interrupt: Callable[[str], int] = lambda reason: 0
        """Ends the waits for the source; how many there were."""
        self.cancel_jobs: Callable[[], None] | None = None
        self._begun_at: float | None = None
        self._why = ""
        self._over = threading.Event()
        self._cancelling: threading.Thread | None = None
        self._others = {thread.ident for thread in threading.enumerate()}
        self._thread = threading.Thread(target=self._watch, name="ending", daemon=True)

    def __enter__(self) -> Ending:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(2 * TICK_SECONDS)

    def begin(self, why: str = "") -> None:
        """From now on the time runs. `why`: the error that ends the run."""
        if self._begun_at is None:
            self._why, self._begun_at = why, time.monotonic()

    def note(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As the innermost exit of an `ExitStack`: an error that leaves it ends the run."""
        if error is not None:
            self.begin(str(error))

    def left(self, share: float = 1.0) -> float:
        """Seconds until this share of the time is used up; plenty while nothing has told the run to end."""
        if self._told.is_set():
            self.begin()
        if self._begun_at is None:
            return FINISHED_SECONDS
        return max(0.0, self._begun_at + share * self._timeout_s - time.monotonic())

    def _watch(self) -> None:
        reported = 0.0
        while not self._over.wait(TICK_SECONDS):
            self.left()
            if self._begun_at is None:
                if time.monotonic() > reported + 1:
                    reported = time.monotonic()
                    with contextlib.suppress(Exception):  # a full disk is told elsewhere
                        self.beat()
                continue
            elapsed = time.monotonic() - self._begun_at
            if elapsed > self._timeout_s / 3 and (count := self.interrupt("penstock is stopping")):
                log.warning("stopping: %d wait(s) for the source were ended", count)
            if elapsed > self._timeout_s / 2:
                self._cancel()
            if elapsed > 1 and time.monotonic() > reported + 1:
                reported = time.monotonic()
                with contextlib.suppress(Exception):  # the state may be closed already
                    self.report(self.running())
            if elapsed > self._timeout_s:
                self._force()
                return

    def _cancel(self) -> None:
        """In a thread, since the JVM may be what hangs."""
        if self.cancel_jobs is None or (self._cancelling is not None and self._cancelling.is_alive()):
            return
        if self._cancelling is None:
            log.warning("stopping: Spark's jobs are cancelled")
        self._cancelling = threading.Thread(target=self._try_to_cancel, name="cancel", daemon=True)
        self._cancelling.start()

    def _try_to_cancel(self) -> None:
        with contextlib.suppress(Exception):  # Spark has just ended
            if self.cancel_jobs is not None:
                self.cancel_jobs()

    def running(self) -> list[str]:
        """The threads of this run that live, and where each is."""
        frames = sys._current_frames()
        own = (threading.get_ident(), self._cancelling.ident if self._cancelling else None)
        found = []
        for thread in threading.enumerate():
            place = _place(frames.get(thread.ident or 0))
            foreign = thread.ident in self._others and thread is not threading.main_thread()
            if place and not foreign and thread.ident not in own:
                found.append(f"{thread.name} (in {place})")
        return found

    def _force(self) -> None:
        running = self.running()
        names = "; ".join(running[:_SHOWN_MAX])
        message = (
            f"The run did not end within stop_timeout ({self._timeout_s:g} s) and is ended by force. Nothing "
            f"is lost: the next run continues from here. Still running: {names}."
        )
        # The disk may be what hangs, and nobody may read what is said: neither keeps the process.
        last = [partial(self.forced, message), partial(self._say, message)]
        threads = [threading.Thread(target=_try, args=(one,), name="last-words", daemon=True) for one in last]
        for thread in threads:
            thread.start()
        until = time.monotonic() + LAST_WORDS_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._exits:
            os._exit(1 if self._why else BY_FORCE)

    def _say(self, message: str) -> None:
        if self._exits:
            text = "\n".join(filter(None, (self._why, message)))
            print(f"penstock: {printable(text, lines=True)}", file=sys.stderr, flush=True)
        log.error("%s", message)


def leave_by_force(state: Path, message: str) -> None:
    """What still has to be done for a run that ends by force: `Ending.forced`. The password leaves the disk,
    and the reason stays for `penstock status`."""
    take_back(state)
    note_end(state, message)


def _try(action: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        action()


def _place(frame: FrameType | None) -> str:
    """The innermost function of ours; empty: it has none."""
    at: Any = frame
    while at is not None:
        module = str(at.f_globals.get("__name__", ""))
        if module.startswith("penstock.") and module != __name__:
            return f"{module.removeprefix('penstock.')}.{at.f_code.co_name}"
        at = at.f_back
    return ""
