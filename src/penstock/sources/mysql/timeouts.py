"""Limits of the time that a connection waits for its server, and ways to end waits from outside.

Four limits make every wait end:

- *While connecting*, everything together has `source.connect_timeout`.
- *Afterwards*, each read may be silent for `source.read_timeout`. Then either the server is slow or the
  connection is dead. A socket does not show the difference: a statement may take an hour before its first
  row, and a proxy that forwards nothing still acknowledges packets and TCP keepalives. So a second connection
  asks the server what it does with the first one (`connection.is_at_work`). While the server executes the
  statement, the wait continues.
- *An answer that has begun* also has to end (`answers.py`).
- *At any time*, `interrupt` ends all waits of this process, so that it can stop.

A write waits for `source.read_timeout`, too. A server that reads nothing for so long is not asked.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from penstock.sources.mysql.answers import AnswerLimits

ARRIVES_S = 1.0
"""Rows that the server says it is sending arrive within this time, or not at all."""

_LIVING: weakref.WeakSet[WaitLimits] = weakref.WeakSet()
_LOCK = threading.Lock()


class Interrupted(ConnectionAbortedError):
    """A wait was ended by `interrupt`."""


def interrupt(reason: str) -> int:
    """Ends every wait of this process for a server, and returns how many there were. Later connections are
    not affected."""
    with _LOCK:
        living = list(_LIVING)
    return sum(limits.interrupt(reason) for limits in living)


class WaitLimits:
    """The limits of one connection. `is_at_work` is called when the server is silent. None: silence ends the
    connection."""

    def __init__(self, connect_s: float, silence_s: float) -> None:
        self._deadline: float | None = time.monotonic() + connect_s
        self._connect_s = connect_s
        self._silence_s = silence_s
        self._interrupted = ""
        self._socket: Any = None
        self.is_at_work: Callable[[], bool] | None = None
        self.answers = AnswerLimits()
        self.phase = "accept the connection"
        """The step that the server still has to do while connecting."""
        with _LOCK:
            _LIVING.add(self)

    def use(self, connection: Any) -> None:
        """Sets the socket that waits: first the plain one, then that of TLS."""
        self._socket = connection

    def connected(self) -> None:
        self._deadline = None

    def hurry(self, seconds: float) -> None:
        """Makes the connection end after a short silence from now on."""
        self._deadline, self._silence_s, self.is_at_work = None, min(seconds, self._silence_s), None

    def interrupt(self, reason: str) -> bool:
        waiting = self._socket
        if waiting is None or waiting.fileno() < 0 or self._interrupted:
            return False
        self._interrupted = reason
        with contextlib.suppress(OSError):  # the socket is closed already
            # The socket's own limits: to say goodbye by TLS would be one more wait.
            socket.socket.shutdown(waiting, socket.SHUT_RDWR)
        return True

    def seconds(self) -> float:
        """Seconds that the next wait may last. Raises if the time for connecting is up, or after
        `interrupt`."""
        self.check()
        if self._deadline is None:
            return self._silence_s
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self.late()
        return left

    def check(self) -> None:
        if self._interrupted:
            raise Interrupted(self._interrupted)
        self.answers.check_time()

    def late(self) -> TimeoutError:
        return TimeoutError(f"it did not {self.phase} within {self._connect_s:g} s")

    def silent(self) -> None:
        """Called after a wait without data. Returns if it is right to continue the wait, else raises."""
        self.check()
        if self._deadline is not None:
            raise self.late()
        waits_on = self.is_at_work is not None and (self.is_at_work() or self._arrives())
        self.check()
        if waits_on:
            return
        raise TimeoutError(f"it has sent nothing for {self._silence_s:g} s and is not at work for us")

    def _arrives(self) -> bool:
        looks = select.poll()
        looks.register(self._socket, select.POLLIN)
        # With POLLERR there is nothing to read: the kernel has given the peer up (`watch_peer`).
        return any(not events & select.POLLERR for _, events in looks.poll(ARRIVES_S * 1000))


class TimedSocket(io.RawIOBase):
    """Reads and writes a socket within the limits of a `WaitLimits`."""

    def __init__(self, connection: Any, limits: WaitLimits) -> None:
        self._socket = connection
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            limit(self._socket, self._limits)
            try:
                size = int(self._socket.recv_into(buffer))
            except TimeoutError as error:
                if error.errno == errno.ETIMEDOUT:  # from the kernel (`watch_peer`), and not our limit
                    self._limits.check()
                    raise TimeoutError("it acknowledges nothing, so the network to it is dead") from error
                self._limits.silent()
                continue
            if not size:
                self._limits.check()
            return size


def limit(connection: Any, limits: WaitLimits) -> None:
    """Sets the limit of the socket's next operation."""
    seconds = limits.seconds()
    if connection.gettimeout() != seconds:
        connection.settimeout(seconds)


def send_all(connection: Any, limits: WaitLimits, data: bytes) -> None:
    """Sends all bytes. Each part has its own limit, because a slow network is not a dead one."""
    view = memoryview(data)
    while view:
        limit(connection, limits)
        try:
            view = view[connection.send(view) :]
        except TimeoutError:
            limits.check()
            raise


_KEEP_MAX = 32767
"""Seconds: the kernel accepts no more (tcp(7))."""


def watch_peer(connection: socket.socket, silence_s: float) -> None:
    """Lets the kernel detect that a peer is gone: it probes an idle peer, and gives up one that acknowledges
    nothing. That also wakes a thread in `select`."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    linux = {
        "TCP_KEEPIDLE": min(_KEEP_MAX, max(1, math.ceil(silence_s / 2))),
        "TCP_KEEPINTVL": min(_KEEP_MAX, max(1, math.ceil(silence_s / 6))),
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": max(1000, int(silence_s * 1000)),
    }
    for name, value in linux.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def resolve(host: str, port: int, limits: WaitLimits) -> list[Any]:
    """The addresses of a host, within the time limit. A resolver cannot be interrupted, so another thread
    calls it."""
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    found: list[list[Any] | BaseException] = []

    def ask() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.append(error)

    limits.phase = "have its name resolved"
    thread = threading.Thread(target=ask, name="resolver", daemon=True)
    thread.start()
    while not found and thread.is_alive():
        thread.join(min(0.2, limits.seconds()))
    limits.phase = "accept the connection"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]
