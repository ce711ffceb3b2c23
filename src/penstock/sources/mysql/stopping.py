"""How the receiver is told to stop: by whoever calls, by a signal, or because its parent is gone. And how it
is told to connect anew."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time


class Stopping:
    """A request to stop that also wakes whoever waits in `select`. Safe to set from a signal handler.

    `anew`: a request to connect to the source anew, taken back by whoever does.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._set = False
        self.anew = False

    def connect_anew(self) -> None:
        self.anew = True
        self.wake()

    def set(self) -> None:
        self._set = True
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of wake-ups already
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
        """Sleeps, less when asked to stop."""
        deadline = time.monotonic() + seconds
        while not self._set and (left := deadline - time.monotonic()) > 0:
            select.select([self._reader], [], [], left)
            self.drain()


def obey_parent(stopping: Stopping, *, grace_s: float = 15.0) -> None:
    """Connects anew when something comes by standard input. Stops when that ends, which is when the parent
    has died, however it died. If the clean way takes too long the process ends at once: nothing that was
    committed is lost by that."""

    def watch() -> None:
        while os.read(0, 4096):
            stopping.connect_anew()
        stopping.set()
        time.sleep(grace_s)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
