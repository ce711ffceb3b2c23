"""Changes for HTTP clients, as server-sent events or as messages of a WebSocket.

Nothing is stored for these readers: each change has an id, its place in the log, and whoever reads it keeps
the last one. So changes come at least once, and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from penstock.errors import PenstockError
from penstock.serve.batches import Block
from penstock.serve.listeners import websocket
from penstock.serve.log.origin import AnyReader
from penstock.serve.subscription import Refused

READ_BYTES = 128 * 1024
"""Bytes of changes that are read at once."""
WRITE_S = 60.0
"""How long a client may take to read some MiB of changes. Then its connection is closed; it can connect
again."""
QUIET_S = 10.0
"""How often something is sent when nothing changes, so that a dead connection is noticed."""
UNREAD_BYTES_MAX = 64 * 1024
"""If so many bytes wait to be read by a client, it gets no answers to its pings."""


Render = Callable[[Block], bytes]


class Stream(Protocol):
    """How changes are written to a connection."""

    def begin(self) -> bytes: ...
    @property
    def block(self) -> Render: ...
    def quiet(self) -> bytes: ...
    def failed(self, message: str) -> bytes: ...

    async def ended(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Returns when the client ends the connection. Answers what it sends until then."""


async def send(
    changes: AnyReader,
    stream: Stream,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    check: Callable[[], None],
) -> None:
    """Sends changes until the client ends the connection or the log fails. `check` raises `Refused` when they
    are not served any more."""
    writer.write(stream.begin())
    ended = asyncio.get_running_loop().create_task(stream.ended(reader, writer))
    try:
        while not ended.done():
            check()
            blocks = changes.ready()
            if blocks is None and not changes.level:
                block = await changes.read(READ_BYTES)
                blocks = [] if block is None else [block]
            elif not blocks and not await changes.wait(QUIET_S, ended):
                writer.write(stream.quiet())
            for block in blocks or ():
                writer.write(block.rendered(stream.block))
                await asyncio.wait_for(writer.drain(), WRITE_S)
            await asyncio.wait_for(writer.drain(), WRITE_S)
    except (PenstockError, Refused) as error:
        writer.write(stream.failed(str(error)))
    finally:
        ended.cancel()
        changes.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(writer.drain(), WRITE_S)


def _places(block: Block, mark: str) -> Iterator[tuple[str, bytes]]:
    """Each change with its id, the place behind it (see `Destinations.mark`)."""
    end = f"@{mark}" if mark else ""
    for piece in block.pieces:
        for number, value in enumerate(piece.entries, 1):
            yield f"{piece.place(number)}{end}", value


@functools.cache
def _server_sent(mark: str) -> Render:
    """The function that renders entries for `mark`. All readers get the same function, because a block keeps
    what a function returned."""

    def render(block: Block) -> bytes:
        found = _places(block, mark)
        return b"".join(b"id: %s\ndata: %s\n\n" % (place.encode(), value) for place, value in found)

    return render


@functools.cache
def _messages(mark: str) -> Render:
    def render(block: Block) -> bytes:
        return b"".join(
            websocket.frame(websocket.TEXT, b'{"id":"%s","change":%s}' % (place.encode(), value))
            for place, value in _places(block, mark)
        )

    return render


class ServerSent:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html"""

    def __init__(self, mark: str) -> None:
        self.block = _server_sent(mark)

    def begin(self) -> bytes:
        return (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
            b"Connection: close\r\n\r\n"
        )

    def quiet(self) -> bytes:
        return b":\n\n"

    def failed(self, message: str) -> bytes:
        return b"event: error\ndata: " + json.dumps({"message": message}).encode() + b"\n\n"

    async def ended(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)


class WebSocket:
    def __init__(self, headers: Mapping[str, str], mark: str) -> None:
        """Raises `ValueError`."""
        self.block = _messages(mark)
        self._answer = websocket.handshake(headers)

    def begin(self) -> bytes:
        return self._answer

    def quiet(self) -> bytes:
        return websocket.frame(websocket.PING, b"")

    def failed(self, message: str) -> bytes:
        text = json.dumps({"error": message}).encode()
        return websocket.frame(websocket.TEXT, text) + websocket.end(websocket.GOING)

    async def ended(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                try:
                    kind, length = websocket.head(await reader.readexactly(2))
                except websocket.BadFrame as error:
                    writer.write(websocket.end(websocket.WRONG, str(error)))
                    return
                mask, payload = await reader.readexactly(4), await reader.readexactly(length)
                if kind == websocket.CLOSE:
                    writer.write(websocket.end(websocket.NORMAL))
                    return
                if kind == websocket.PING and writer.transport.get_write_buffer_size() < UNREAD_BYTES_MAX:
                    writer.write(websocket.frame(websocket.PONG, websocket.unmasked(mask, payload)))
