"""Binds addresses and accepts connections. They are counted from the moment when they are accepted, so that
also those in the handshake of TLS are bounded, in number and in time. (A server of asyncio knows a connection
only behind its handshake, and keeps some 300 KiB for it before.)"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.errors import ConfigError

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

Served = tuple[asyncio.BaseProtocol, Callable[[asyncio.Transport], Awaitable[None]]]
"""The protocol of a connection, and what ends with it."""


class Door:
    """Accepts connections on a bound socket from `open` to `close`, in the event loop. `serve` is called for
    each, before its handshake. More than `connections_max` at a time are closed at once."""

    def __init__(
        self,
        listener: socket.socket,
        serve: Callable[[], Served],
        *,
        connections_max: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._serve = serve
        self._connections_max = connections_max
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._handshakes = asyncio.Semaphore(HANDSHAKES_MAX)

    def listen(self) -> None:
        """Lets clients connect, who wait until it is open."""
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)

    def open(self) -> None:
        self.listen()
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
        protocol, serve = self._serve()
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
        await serve(transport)


def bind(address: str, option: str) -> socket.socket:
    """A socket that is bound to host:port and does not accept yet. `option` of the file has the address.
    Raises `ConfigError`."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, int(port)))
    except OSError as error:
        made.close()
        taken = error.errno == errno.EADDRINUSE
        reason = "another process listens there" if taken else error.strerror or str(error)
        raise ConfigError(
            f"`{option}` is {address}, which cannot be bound: {reason}.",
            hint="Choose another address of this machine. With port 0, any free port is used.",
        ) from None
    return made


def address_of(listener: socket.socket) -> str:
    """host:port of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    """TLS with a certificate and its key. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The certificate {cert} with the key {key} cannot be used: {error}.",
            hint="`tls` needs PEM files that this process may read, and a key without a passphrase.",
        ) from None
    return context


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
