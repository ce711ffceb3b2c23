"""The connection to ZooKeeper, with limits on every wait, and what is known of the session's life.

A session ends when ZooKeeper's leader has not heard of it for the time that was agreed on. What a client
learns is not always what the leader knows:

- A member that is cut off from the others answers reads from its memory, and as a leader also `sync`. Only
  what a majority commits shows that the session has not ended: `renew`.
- The leader hears of a session when it connects. Afterwards the client's member reports who was heard of,
  twice in each of ZooKeeper's ticks, over the same connection as the client's writes. So a commit shows that
  the leader has heard of what was asked `REPORTED` before, and not of what was asked just now.
- The agreed time may be shorter than the one that was asked for (`maxSessionTimeout`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock import clock
from penstock.connections.answers import STRANGE, NoAnswer, reading
from penstock.connections.tcp import BoundedSocket
from penstock.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

ANSWER_S = 5.0
"""How long one answer may take. ZooKeeper needs some milliseconds; choosing a new leader takes a second."""
MARGIN = 0.2
"""Part of the session's time that is not relied on: clocks do not run alike, and packets may be late."""
REPORTED = 0.25
"""Part of the session's time in which a member reports to its leader: half a tick. A session has two ticks or
more."""
RENEWALS = 8
"""How often a session is renewed, at least, in the time after which it would end."""
ANSWERS_BYTES_MAX = 64 * 1024**2
"""Bytes that may come between two things that are sent. A node has at most one MB."""
RECONNECT_MAX_S = 1.0
"""Longest pause before ZooKeeper is tried again. It must be shorter than a session may be silent."""

log = logging.getLogger(__name__)


class ZooKeeper:
    """Any thread may use it. `alive`: the session certainly has not ended, so what it owns is still ours."""

    def __init__(self, hosts: Sequence[str], session_seconds: float) -> None:
        try:
            from kazoo.client import KazooClient
            from kazoo.handlers.threading import SequentialThreadingHandler
            from kazoo.retry import KazooRetry
        except ImportError:
            raise ConfigError(
                "`zookeeper` needs the package kazoo.", hint="pip install 'penstock[zookeeper]'"
            ) from None
        self._hosts = ", ".join(hosts)
        self._seconds = session_seconds
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # it says each failed attempt
        handler = SequentialThreadingHandler()
        setattr(handler, "create_connection", self._bounded(handler.create_connection))  # noqa: B010
        self.client: KazooClient = KazooClient(
            ",".join(hosts),
            timeout=session_seconds,
            handler=handler,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=RECONNECT_MAX_S),
        )
        self._granted_s = session_seconds
        self._lock = threading.Lock()
        self._alive_session: int | None = None
        self._reached: tuple[int | None, float] = (None, 0.0)
        """A session, and a time after which the leader has certainly heard of it."""
        self._answered: list[float] = []
        """When later renewals were asked for. It is not certain that the leader has heard of them."""
        self._watch(self.client._connection)

    def _bounded(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        def connected(*arguments: Any, **more: Any) -> Any:
            seconds = max(self._seconds, ANSWER_S)  # something is sent more often
            return BoundedSocket(connect(*arguments, **more), seconds=seconds, bytes_max=ANSWERS_BYTES_MAX)

        return connected

    def _watch(self, connection: Any) -> None:
        """Kazoo does not tell the time that ZooKeeper has agreed on, except to itself: two thirds of it. And
        it does not check what it reads: an error would end its thread."""
        from kazoo.exceptions import ConnectionDropped

        connect, read = connection._connect, connection._read_socket
        client: Any = self.client

        def connected(*address: Any) -> Any:
            asked, session = clock.seconds(), (client._session_id, client._session_passwd)
            try:
                read_ms, connect_ms = self._understood(connect, *address)
            finally:
                if len(client._session_passwd or b"") != len(session[1]):  # as no server answers
                    client._session_id, client._session_passwd = session
                    raise ConnectionDropped(STRANGE)
            self.connected(asked, read_ms * 1.5 / 1000)
            asked_ms = self._seconds * 1000
            return min(read_ms, asked_ms * 2 / 3), min(connect_ms, asked_ms)

        connection._connect = connected
        connection._read_socket = lambda seconds: self._understood(read, seconds)

    def _understood(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Makes kazoo connect again where it has an error about what it has read."""
        from kazoo.exceptions import ConnectionDropped

        seen = self.client.last_zxid
        try:
            with reading():
                return read(*arguments)
        except (NoAnswer, RuntimeError, AttributeError):  # also a reply that nobody has asked for
            self.client.last_zxid = seen  # servers refuse a client that has seen more than they have
            raise ConnectionDropped(STRANGE) from None

    def connected(self, asked: float, granted_s: float) -> None:
        """The session has begun, or goes on over another connection, for which it was `asked`."""
        if granted_s < min(self._seconds, self._granted_s) - 0.001:
            log.warning("ZooKeeper ends sessions after %g s, and not after %g s", granted_s, self._seconds)
        with self._lock:
            self._granted_s = granted_s
            self._reached, self._answered = (self.session, asked), []

    def start(self, seconds: float) -> None:
        """Raises `TransientError` if nothing answers in time."""
        if not self.client.start_async().wait(seconds):
            raise TransientError(
                f"ZooKeeper does not answer at {self._hosts}.",
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
        session, reached = self._reached
        valid_s = min(self._seconds, self._granted_s) * (1 - MARGIN)
        return session is not None and session == self._alive_session and clock.seconds() < reached + valid_s

    def alive_in(self, session: int | None) -> bool:
        """Whether `session` is the present session, and is certainly alive."""
        return session == self._alive_session and self.alive

    def answer(self, pending: Any, seconds: float = ANSWER_S) -> Any:
        """Waits for the result of one of the client's asynchronous calls. Raises `TransientError` and
        `KazooException`."""
        from kazoo.exceptions import ConnectionLoss, KazooException, SessionExpiredError
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return pending.get(timeout=seconds)
        except KazooTimeoutError:
            why = f"it has not answered for {seconds:g} s"
        except (ConnectionLoss, SessionExpiredError):
            why = "the connection is lost, or the session has ended"
        except KazooException:
            raise
        except Exception:  # kazoo's, about what it cannot read
            why = STRANGE
        raise TransientError(f"ZooKeeper ({self._hosts}): {why}.")

    def renew(self) -> None:
        """Has ZooKeeper commit something, and remembers how long the session lives at least. Raises like
        `answer`."""
        asked, session = clock.seconds(), self.session
        transaction = self.client.transaction()
        transaction.check("/", -1)
        self.answer(transaction.commit_async())
        with self._lock:
            if session != self.session or session != self._reached[0]:
                return
            reported = [one for one in self._answered if one <= asked - self._granted_s * REPORTED]
            self._answered = [one for one in self._answered if one not in reported] + [asked]
            self._reached = session, max([self._reached[1], *reported])
            self._alive_session = session

    @property
    def renew_s(self) -> float:
        """Seconds after which the session has to be renewed again."""
        return self._granted_s / RENEWALS

    def forget(self) -> None:
        """Treats the session as ended: nodes that it owned are not ours any more."""
        self._alive_session = None
