"""Accepts connections. They are counted from the moment when they are accepted, so that also those in the
handshake of TLS are bounded, in number and in time. (A server of asyncio knows a connection only behind its
handshake, and keeps some 300 KiB for it before.)"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

BACKLOG = 128
"""Connections that the kernel keeps until they are accepted."""
HANDSHAKE_S = 10.0
"""Time for the handshake of TLS. Clients need some milliseconds."""
HANDSHAKES_MAX = 50
"""Handshakes at the same time. Others wait for so long, too."""
RETRY_S = 1.0
"""Pause when the process has no file descriptors left."""
KEEPALIVE_S, KEEPALIVE_PROBES = (15, 5), 3
"""Seconds of silence before a dead client is looked for, and between two probes. It is found after 30 s."""
WRITE_BYTES = 64 * 1024
"""Bytes of answers that wait in this process for a client, before its session waits for it."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Door:
    """Accepts connections on a bound socket from `open` to `close`, in the event loop. `bytes_max`: of a
    connection, how much waits to be read. More than `connections_max` at a time are closed at once."""

    def __init__(
        self,
        listener: socket.socket,
        serve: Serve,
        *,
        connections_max: int,
        bytes_max: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._serve = serve
        self._connections_max = connections_max
        self._bytes_max = bytes_max
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._handshakes = asyncio.Semaphore(HANDSHAKES_MAX)

    def open(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Accepts no more. Connections that are served go on."""
        for task in (self._accepting, *self._beginning):
            task.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except ConnectionError:
                continue
            except OSError as error:
                log.error("connections cannot be accepted: %s", error.strerror)
                await asyncio.sleep(RETRY_S)
                continue
            if len(self._tasks) >= self._connections_max:
                connection.close()
                continue
            task = loop.create_task(self._connected(connection))
            for tasks in (self._tasks, self._beginning):
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def _connected(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(self._bytes_max)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            _keep_alive(connection)
            await asyncio.wait_for(self._handshakes.acquire(), HANDSHAKE_S)
            try:
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol, connection, ssl=self._tls,
                    ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
                )  # fmt: skip
            finally:
                self._handshakes.release()
        except (OSError, asyncio.TimeoutError):  # no TLS, or the connection has ended
            connection.close()
            return
        transport.set_write_buffer_limits(high=WRITE_BYTES)
        task = asyncio.current_task()
        assert task is not None
        self._beginning.discard(task)
        await self._serve(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def _keep_alive(connection: socket.socket) -> None:
    idle, interval = KEEPALIVE_S
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ):
        connection.setsockopt(level, option, value)
