"""Ends sessions of a database that does not answer any more.

A statement may take hours, so no limit of time may end it. A server that is stopped, or whose network
forwards nothing, may acknowledge TCP's keepalives for ever. So when a session has been in use for some time,
the server is asked for a second connection. A server that answers, also with a refusal, is at work: the wait
goes on. If it does not answer twice, the session's socket is closed, and whoever waits for it gets the
driver's error for a lost connection.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from penstock.connections.tcp import shut_down
from penstock.sinks.sql.dialect import Session

log = logging.getLogger(__name__)

_ATTEMPTS = 2
"""How often in a row a server must not answer: one attempt may meet a moment of load."""


class SilenceWatch:
    """`answers`: whether the server takes a connection. `socket_of`: the number of a session's socket."""

    def __init__(
        self, address: str, seconds: float, answers: Callable[[], bool], socket_of: Callable[[Session], int]
    ) -> None:
        self._address = address
        self._seconds = seconds
        self._answers = answers
        self._socket_of = socket_of
        self._guard = threading.Lock()
        self._asked: dict[int, tuple[Session, float, int]] = {}
        """Sessions in use by their number, since when, and how often the server has not answered."""
        self._serial = 0
        self._watches = False

    @contextlib.contextmanager
    def watched(self, session: Session) -> Iterator[None]:
        """The block uses this session."""
        with self._guard:
            self._serial += 1
            number = self._serial
            self._asked[number] = (session, time.monotonic(), 0)
            if not self._watches:
                self._watches = True
                threading.Thread(target=self._watch, name="silence", daemon=True).start()
        try:
            yield
        finally:
            with self._guard:
                self._asked.pop(number, None)

    def _watch(self) -> None:
        """Ends when no session has been in use for a while."""
        idle_since = time.monotonic()
        while True:
            time.sleep(min(1.0, self._seconds / 4))  # looks at the clock, as long as sessions are in use
            now = time.monotonic()
            with self._guard:
                if self._asked:
                    idle_since = now
                elif now - idle_since > self._seconds:
                    self._watches = False
                    return
                silent = any(now - since > self._seconds for _, since, _ in self._asked.values())
            if silent:
                self._ask(now)

    def _ask(self, now: float) -> None:
        answers = self._answers()
        with self._guard:
            for number, (session, since, failures) in list(self._asked.items()):
                if now - since <= self._seconds:
                    continue
                failures = 0 if answers else failures + 1
                self._asked[number] = (session, time.monotonic() if answers else since, failures)
                if failures >= _ATTEMPTS:
                    self._asked.pop(number)
                    self._end(session)

    def _end(self, session: Session) -> None:
        log.warning(
            "%s has not answered for %d s, and takes no other connection: it is given up",
            self._address,
            self._seconds,
        )
        with contextlib.suppress(OSError, ValueError):
            shut_down(self._socket_of(session))
