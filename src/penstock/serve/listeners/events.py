"""Changes for HTTP clients, as server-sent events or as messages of a WebSocket.

Nothing is stored for these readers: each change has an id, its place in the log, and whoever reads it keeps
the last one. So changes come at least once, and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from starlette.types import Receive, Scope, Send

from penstock.errors import PenstockError
from penstock.http.connections import STATE, Connection
from penstock.serve.batches import READ_BYTES, Block
from penstock.serve.log.destination_log import AnyReader
from penstock.serve.subscription import Refused

WRITE_S = 60.0
"""How long a client may take to read some MiB of changes. Then its connection is closed; it can connect
again."""
QUIET_S = 10.0
"""How often something is sent when nothing changes, so that a dead connection is noticed."""
PROTOCOL = "penstock"
"""The protocol of a WebSocket, for clients that must name one."""
GOING, UNWANTED = 1001, 1003
"""Codes of the end of a WebSocket (RFC 6455)."""


class Stream(Protocol):
    """How changes are written to a connection."""

    async def begin(self) -> None: ...
    async def give(self, block: Block) -> None: ...
    async def quiet(self) -> None: ...

    async def end(self, message: str) -> None:
        """The last that is written. `message`: why there are no more changes."""

    async def ended(self) -> None:
        """Returns when the client ends the connection."""


class OpenEvents:
    """The open_events that are being read."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


class Events:
    """An answer (ASGI application) that sends changes until the client ends the connection, or the log fails.
    `served` raises `Refused` when they are not served any more."""

    def __init__(
        self, open_events: OpenEvents, changes: AnyReader, mark: str, served: Callable[[], Awaitable[None]]
    ) -> None:
        self._tasks = open_events.tasks
        self._changes = changes
        self._mark = mark
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["state"][STATE]
        connection.within(None)
        kind = _WebSocket if scope["type"] == "websocket" else _ServerSent
        stream = kind(scope, receive, send, self._mark)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._send(stream)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):  # or this server is ending
            connection.within(0)
            await connection.ended.wait()
        finally:
            self._tasks.discard(task)
            self._changes.close()

    async def _send(self, stream: Stream) -> None:
        await stream.begin()
        changes = self._changes
        ended = asyncio.get_running_loop().create_task(stream.ended())
        try:
            while not ended.done():
                await self._served()
                blocks = changes.ready()
                if blocks is None and not changes.level:
                    block = await changes.read(READ_BYTES)
                    blocks = [] if block is None else [block]
                elif not blocks and not await changes.wait(QUIET_S, ended):
                    await asyncio.wait_for(stream.quiet(), WRITE_S)
                for block in blocks or ():
                    await asyncio.wait_for(stream.give(block), WRITE_S)
        except (PenstockError, Refused) as error:
            await asyncio.wait_for(stream.end(str(error)), WRITE_S)
        finally:
            ended.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await ended


def _places(block: Block, mark: str) -> Iterator[tuple[str, bytes]]:
    """Each change with its id, the place behind it (see `Destinations.mark`)."""
    end = f"@{mark}" if mark else ""
    for piece in block.pieces:
        for number, value in enumerate(piece.entries, 1):
            yield f"{piece.place(number)}{end}", value


@functools.cache
def rendered_as_events(mark: str) -> Callable[[Block], bytes]:
    """The function that renders entries for `mark`. All readers get the same function, because a block keeps
    what a function returned."""

    def render(block: Block) -> bytes:
        found = _places(block, mark)
        return b"".join(b"id: %s\ndata: %s\n\n" % (place.encode(), value) for place, value in found)

    return render


@functools.cache
def _messages(mark: str) -> Callable[[Block], list[str]]:
    def render(block: Block) -> list[str]:
        return [f'{{"id":"{place}","change":{value.decode()}}}' for place, value in _places(block, mark)]

    return render


class _ServerSent:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html"""

    def __init__(self, scope: Scope, receive: Receive, send: Send, mark: str) -> None:
        self._receive = receive
        self._send = send
        self._render = rendered_as_events(mark)

    async def begin(self) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._write(b"")

    async def give(self, block: Block) -> None:
        await self._write(block.rendered(self._render))

    async def quiet(self) -> None:
        await self._write(b":\n\n")

    async def end(self, message: str) -> None:
        said = json.dumps({"message": message}).encode()
        await self._write(b"event: error\ndata: " + said + b"\n\n", more=False)

    async def ended(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


class _WebSocket:
    """Quiet connections are kept alive by the server (`http/server.py`)."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, mark: str) -> None:
        self._receive = receive
        self._send = send
        self._render = _messages(mark)
        self._protocol = PROTOCOL if PROTOCOL in scope["subprotocols"] else None

    async def begin(self) -> None:
        await self._send({"type": "websocket.accept", "subprotocol": self._protocol})

    async def give(self, block: Block) -> None:
        for message in block.rendered(self._render):
            await self._send({"type": "websocket.send", "text": message})

    async def quiet(self) -> None:
        pass

    async def end(self, message: str) -> None:
        await self._send({"type": "websocket.send", "text": json.dumps({"error": message})})
        await self._send({"type": "websocket.close", "code": GOING})

    async def ended(self) -> None:
        while True:
            kind = (await self._receive())["type"]
            if kind == "websocket.receive":
                await self._send(
                    {"type": "websocket.close", "code": UNWANTED, "reason": "messages are not read"}
                )
            elif kind == "websocket.disconnect":
                return
