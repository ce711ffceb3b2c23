"""Makes sure that a run that is stopped ends within `stop_timeout`, whatever it waits for.

It is better to finish running work than to interrupt it. So there are four steps:

1. At once: nothing new is started. Running work (an epoch, chunks) may finish.
2. After a third of the time: all waits for the source are ended (`Source.interrupt`).
3. After half of the time: Spark's jobs are cancelled.
4. At the end: the process reports what still runs, in its log and for `penstock status`, and exits. Nothing
   is lost. It is the same as `kill -9`, after which every step can be repeated.

A run that ends with an error has the same time for closing. A run that has finished has as much time as it
needs.
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
"""How often a stopping run checks what still runs. It adds to the time that stopping takes."""
FINISHED_SECONDS = 3600.0
"""Limit for closing a run that has finished: more than it ever needs."""
BY_FORCE = 5
"""Exit code of a run that was ended by force."""
LAST_WORDS_SECONDS = 1.0
"""Limit for writing why the run is ended by force. The disk may be what hangs."""
_WORK = {
    "cascades": "the changes by foreign keys",
    "notifications": "the notifications",
    "relaylog": "the relay log",
    "signals": "the signals",
    "sinks": "the target",
    "snapshot": "the snapshot",
    "sources": "the source",
    "spark": "Spark",
    "state": "the state",
    "store": "the object store",
    "verify": "the comparison",
}
"""What a thread works at, by the package in which it is. Elsewhere: the pipeline itself."""


class Ending:
    """Watches a run from its own thread. A context manager around the whole run. `cancel_jobs` is set once
    Spark runs. `exits`: whether step 4 exits the process. Otherwise the caller's process continues,
    possibly with leftover threads."""

    def __init__(
        self,
        stop_requested: threading.Event,
        timeout_s: float,
        *,
        exits: bool = False,
    ) -> None:
        """`stop_requested`: set when the run shall end."""
        self._stop_requested = stop_requested
        self._timeout_s = timeout_s
        self._exits = exits
        self.report: Callable[[list[str]], None] = lambda running: None
        """Called about once a second while the run ends, with what still runs."""
        self.beat: Callable[[], None] = lambda: None
        """Called about once a second before that, because the main thread may be waiting for the source."""
        self.forced: Callable[[str], None] = lambda message: None
        """Called with the reason when the run is ended by force."""
        self.end_screen: Callable[[], None] = lambda: None
        """Called before the reason is printed. Ends a live screen, which hides the terminal's cursor."""
        self.say: Callable[[str], None] = lambda message: print(
            f"penstock: {printable(message)}", file=sys.stderr, flush=True
        )
        """Prints the reason, if the process exits."""
        self.interrupt: Callable[[str], int] = lambda reason: 0
        """Ends all waits for the source. Returns their number."""
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
        """Starts the time limit. `why`: the error that ends the run."""
        if self._begun_at is None:
            self._why, self._begun_at = why, time.monotonic()

    def begin_on_error(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """For use as the innermost exit of an `ExitStack`: an error that passes it ends the run."""
        if error is not None:
            self.begin(str(error))

    def left(self, share: float = 1.0) -> float:
        """Seconds until this share of the time is used up. Much more if the run has not been stopped."""
        if self._stop_requested.is_set():
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
                    with contextlib.suppress(Exception):  # other writers report a full disk
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
        """Cancels Spark's jobs, in a thread, because the JVM may not answer."""
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
        """What the running threads of this run work at, in words for people."""
        packages = {place.partition(".")[0] for place in self._places().values()}
        return sorted({_WORK.get(package, "the pipeline") for package in packages})

    def _places(self) -> dict[str, str]:
        """The running threads of this run, and the function in which each of them is."""
        frames = sys._current_frames()
        own = (threading.get_ident(), self._cancelling.ident if self._cancelling else None)
        found = {}
        for thread in threading.enumerate():
            place = _place(frames.get(thread.ident or 0))
            foreign = thread.ident in self._others and thread is not threading.main_thread()
            if place and not foreign and thread.ident not in own:
                found[thread.name] = place
        return found

    def _force(self) -> None:
        """Reports what still runs, and exits the process if that is allowed."""
        message = (
            f"The run did not end within stop_timeout ({self._timeout_s:g} s) and is ended by force. Nothing "
            f"is lost: the next run continues from here. It was still waiting for {_listed(self.running())}."
        )
        # Writing may hang too, on the disk or on a pipe that nobody reads. The process must exit anyway.
        reason = " ".join(filter(None, (self._why, message)))
        last = [partial(self.forced, reason), partial(self._say, message)]
        threads = [threading.Thread(target=_try, args=(one,), name="last-words", daemon=True) for one in last]
        for thread in threads:
            thread.start()
        until = time.monotonic() + LAST_WORDS_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._exits:
            os._exit(1 if self._why else BY_FORCE)

    def _say(self, message: str) -> None:
        log.info("ended by force in %s", self._places())
        if not self._exits:
            log.error("%s", message)
            return
        _try(self.end_screen)
        self.say(" ".join(filter(None, (self._why, message))))


def leave_by_force(state: Path, message: str) -> None:
    """The last actions of a run that ends by force, for `Ending.forced`: removes the password's file, and
    stores the reason for `penstock status`."""
    take_back(state)
    note_end(state, message)


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "the pipeline"


def _try(action: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        action()


def _place(frame: FrameType | None) -> str:
    """The innermost function of Penstock on a thread's stack; empty: there is none."""
    at: Any = frame
    while at is not None:
        module = str(at.f_globals.get("__name__", ""))
        if module.startswith("penstock.") and module != __name__:
            return f"{module.removeprefix('penstock.')}.{at.f_code.co_name}"
        at = at.f_back
    return ""
