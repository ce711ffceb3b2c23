"""The connection to ZooKeeper, with limits on every wait, and what is known of the session's life."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import clock
from penstock.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

ANSWER_S = 5.0
"""How long one answer may take. ZooKeeper needs some milliseconds; choosing a new leader takes a second."""
MARGIN = 0.2
"""Part of the session's time that is not relied on: clocks do not run alike, and a server of an ensemble
reports to its leader only now and then who is alive."""
RECONNECT_MAX_S = 1.0
"""Longest pause before ZooKeeper is tried again. It must be shorter than a session may be silent."""

Answer = TypeVar("Answer")


class ZooKeeper:
    """Any thread may use it. `alive`: the session certainly has not ended, so what it owns is still ours."""

    def __init__(self, hosts: Sequence[str], session_seconds: float) -> None:
        try:
            from kazoo.client import KazooClient
            from kazoo.retry import KazooRetry
        except ImportError:
            raise ConfigError(
                "`zookeeper` needs the package kazoo.", hint="pip install 'penstock[zookeeper]'"
            ) from None
        self._hosts = hosts
        self._seconds = session_seconds
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # it says each failed attempt
        self.client: KazooClient = KazooClient(
            ",".join(hosts),
            timeout=session_seconds,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=RECONNECT_MAX_S),
        )
        self._alive_until = 0.0
        self._alive_session: int | None = None

    def start(self, seconds: float) -> None:
        """Raises `TransientError` if nothing answers in time."""
        if not self.client.start_async().wait(seconds):
            raise TransientError(
                f"ZooKeeper does not answer at {', '.join(self._hosts)}.",
                hint="Check `zookeeper` in the server's file, and that it runs.",
            )

    def close(self) -> None:
        """Ends the session, and with it what it owns."""
        self.client.stop()
        self.client.close()

    @property
    def session(self) -> int | None:
        """The number of the present session, which changes when that has ended and another one has begun.
        None: there is no session yet."""
        found = self.client.client_id
        return None if found is None else int(found[0])

    @property
    def alive(self) -> bool:
        return self._alive_session is not None and clock.seconds() < self._alive_until

    def alive_in(self, session: int | None) -> bool:
        """Whether `session` is the present session, and is certainly alive."""
        return session == self._alive_session and self.alive

    def answer(self, pending: Any, seconds: float = ANSWER_S) -> Any:
        """Waits for the result of one of the client's asynchronous calls. Raises `TransientError` and
        `KazooException`."""
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return pending.get(timeout=seconds)
        except KazooTimeoutError:
            raise TransientError(f"ZooKeeper has not answered for {seconds:g} s.") from None

    def renew(self) -> None:
        """Asks for an answer, and remembers how long the session lives at least. Raises like `answer`."""
        asked, session = clock.seconds(), self.session
        self.answer(self.client.exists_async("/"))
        if self.session == session:
            self._alive_session, self._alive_until = session, asked + self._seconds * (1 - MARGIN)

    def forget(self) -> None:
        """Treats the session as ended: nodes that it owned are not ours any more."""
        self._alive_session = None
