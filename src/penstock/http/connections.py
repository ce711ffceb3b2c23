"""Connections of HTTP and WebSocket: those of uvicorn, with limits of time and memory for each.

A connection has `HEAD_S` for the head of a request, and from then on `REQUEST_S` until it is answered. An
answer that goes on, a stream of events, asks for no such limit (`Connection.within`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

_log = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)  # malformed requests must not fill the log

HEAD_BYTES_MAX = 16 * 1024
"""Bytes of a request's line and headers. Clients send much less."""
HEAD_S = 10.0
"""Time for them, counted from the connection or from the previous answer, so that idle clients free their
connection. Clients need some milliseconds."""
REQUEST_S = 30.0
"""Time for the rest of a request and its answer."""
UNREAD_BYTES_MAX = 64 * 1024
"""If so many bytes wait to be read by a client, it gets no answers to its pings."""

STATE = "connection"
"""Where an application finds its `Connection`: in `scope["state"]`."""


class Connection:
    """One connection, which begins with HTTP and may become a WebSocket. `ended` is set behind its end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._overdue: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.within(HEAD_S)

    def within(self, seconds: float | None) -> None:
        """It is closed after this time. None: it has time."""
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if seconds is not None and self._transport is not None:
            loop = asyncio.get_running_loop()
            self._overdue = loop.call_later(seconds, self._transport.abort)

    def end(self) -> None:
        self.within(None)
        self.ended.set()


class HttpProtocol(H11Protocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = _log
        self.access_log = False
        self._connection: Connection = app_state[STATE]
        self._timed: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection.begin(transport)

    def handle_events(self) -> None:
        super().handle_events()
        cycle = self.cycle
        if cycle is not None and cycle is not self._timed and not cycle.response_complete:
            self._timed = cycle
            self._connection.within(REQUEST_S)

    def on_response_complete(self) -> None:
        self._connection.within(HEAD_S)
        super().on_response_complete()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._connection.within(REQUEST_S)
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.end()
        super().connection_lost(exc)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = _log

    def handle_ping(self) -> None:
        if self.transport.get_write_buffer_size() < UNREAD_BYTES_MAX:
            super().handle_ping()
        else:
            self.conn.data_to_send()  # the pong, which is left out

    def connection_lost(self, exc: Exception | None) -> None:
        self.app_state[STATE].end()
        super().connection_lost(exc)
