"""An application that is served over HTTP: in the running event loop, or in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from penstock.access.door import Door, Served
from penstock.http.connections import (
    HEAD_BYTES_MAX,
    STATE,
    Connection,
    HttpProtocol,
    WebSocketProtocol,
)

STOP_S = 5
"""How long requests may take to end when the server ends: less than the `stop_timeout` that a run has by
default."""
MESSAGE_BYTES_MAX = 1024
"""Bytes of a message that a client sends by WebSocket. No client of ours has to send any."""
PING_S = 10.0
"""How often a quiet WebSocket is asked whether its client is there, and how long the answer may take."""


class HttpServer:
    """Serves an application on a bound socket: from `begin` to `end`, or in a thread."""

    def __init__(
        self,
        listener: socket.socket,
        application: ASGIApp,
        *,
        connections_max: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = uvicorn.Config(
            application,
            http=HttpProtocol,
            ws=WebSocketProtocol,
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,  # the program that serves configures logging
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            ws_max_size=MESSAGE_BYTES_MAX,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,  # a few bytes could become much
        )
        self._server = _Uvicorn(config, listener, connections_max, tls)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._server.door.listen()
        self._task = asyncio.create_task(self._server.serve())

    async def end(self) -> None:
        """Ends all connections, after a while also those whose requests go on."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    @contextlib.contextmanager
    def in_thread(self, name: str) -> Iterator[None]:
        """Serves in a thread of its own while the block lasts."""
        self._server.door.listen()
        thread = threading.Thread(target=self._server.run, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.should_exit = True
            thread.join(2 * STOP_S)


class _Uvicorn(uvicorn.Server):
    """uvicorn behind a `Door`, which bounds connections from their first moment on."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        connections_max: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(config)
        self.door = Door(listener, self._connected, connections_max=connections_max, tls=tls)

    def _connected(self) -> Served:
        connection = Connection()
        protocol = HttpProtocol(self.config, self.server_state, {STATE: connection})

        async def serve(_: asyncio.Transport) -> None:
            await connection.ended.wait()

        return protocol, serve

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.on_tick(0)  # prepares the headers of answers
        self.servers = []
        self.door.open()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.door.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the program has handlers of its own
