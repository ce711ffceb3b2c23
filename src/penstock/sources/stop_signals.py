"""How the receiver is asked to stop: by a call, by a signal, or because its parent has ended. And how it is
asked to reconnect."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

END_S = 5.0
"""Less than the pipeline gives its receiver (`supervisor.STOP_TIMEOUT_S`)."""
_GRACE_S = 1.0
"""Seconds for running work. Then waits for the source are ended."""
_LOOK_S = 0.2
"""How often the thread looks whether the parent process and the main thread still live."""


class Stopping:
    """A request to stop. It also wakes a thread that waits in `select`, and a signal handler may set it.

    `reconnect`: a request to reconnect. The code that reconnects clears it.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._set = False
        self.reconnect = False

    def connect_anew(self) -> None:
        self.reconnect = True
        self.wake()

    def set(self) -> None:
        self._set = True
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._writer, b".")

    def __bool__(self) -> bool:
        return self._set

    def fileno(self) -> int:
        return self._reader

    def drain(self) -> None:
        try:
            while os.read(self._reader, 4096):
                pass
        except BlockingIOError:
            pass

    def sleep(self, seconds: float) -> None:
        """Sleeps, and wakes up early if it is asked to stop."""
        deadline = time.monotonic() + seconds
        while not self._set and (left := deadline - time.monotonic()) > 0:
            select.select([self._reader], [], [], left)
            self.drain()


def obey_parent(stopping: Stopping) -> None:
    """Watches standard input. A byte asks for a reconnect. Its end asks to stop: the parent has ended, in
    whatever way."""

    def watch() -> None:
        while os.read(0, 4096):
            stopping.connect_anew()
        stopping.set()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def ensure_end(stopping: Stopping, interrupt: Callable[[str], Any] = lambda reason: None) -> None:
    """Makes this process end within `END_S` after it is asked to stop. `interrupt` is called until then, to
    end waits for the source. If the regular way takes too long (a disk that hangs), the process exits.
    Nothing that was committed is lost."""

    def watch() -> None:
        while not stopping:
            time.sleep(_LOOK_S)  # checks as long as the process runs
        end = time.monotonic() + END_S
        time.sleep(_GRACE_S)  # time to finish running work
        while time.monotonic() < end:
            interrupt("the receiver is stopping")
            time.sleep(_LOOK_S)  # until the main thread has ended, with a limit
        with contextlib.suppress(OSError):  # its disk may be full
            print(
                "penstock: the receiver did not end in time and is ended by force",
                file=sys.stderr,
                flush=True,
            )
        os._exit(1)

    threading.Thread(target=watch, name="end-watch", daemon=True).start()
