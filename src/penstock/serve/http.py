"""HTTP of a subscription server: `GET /health`, `GET /destinations`, and changes as server-sent events.

    GET /destinations/NAME/events?start=latest&filter=shop\\..*
    GET /destinations/NAME/events          with the header Last-Event-ID: goes on behind that event

An event is a change of a row in the format `json`, or a statement that defines tables. Nothing is stored for
these readers: an event's id is its place in the log, and whoever reads it keeps the last one. (Browsers do
that by themselves.) So events come at least once, and in order.

Only what these requests need of HTTP/1.1 is here, with limits on everything that is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import re
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.errors import PenstockError
from penstock.model.offset import Offset
from penstock.secret import Secret
from penstock.serve.batches import Piece, Place
from penstock.serve.destination import Destination
from penstock.serve.feed import Feed
from penstock.serve.filters import BadFilter
from penstock.serve.log import ServedLog
from penstock.serve.mysql import StartAt

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 16 * 1024
"""Bytes of a request's line and headers. Clients send much less."""
REQUESTS_MAX = 200
"""Requests at the same time. Each may have some MiB in memory."""
HEAD_S = 10.0
"""Time for a request. Clients need some milliseconds."""
WRITE_S = 60.0
"""How long a reader may take for some MiB of events before its connection is closed; it can come back."""
QUIET_S = 10.0
"""How often a comment is sent when nothing changes, so that a dead connection is noticed."""

_STATUS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}


class _Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Http:
    """`serve` is the callback of a listener. `grown` is set by the server when the log has grown."""

    def __init__(
        self,
        destinations: Mapping[str, Destination],
        served: ServedLog,
        threads: Executor,
        token: Secret | None,
    ) -> None:
        self._destinations = destinations
        self._served = served
        self._threads = threads
        self._token = token
        self._grown = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    def log_has_grown(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= REQUESTS_MAX:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            pass  # the server is stopping
        except Exception:
            log.exception("a bug ended a request")
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
        try:
            if len(head) > HEAD_BYTES_MAX:
                raise _Refusal(400, "The request is too long.")
            target, headers = _parsed(head)
            url = urlsplit(target)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            document = self._document(url.path, headers)
            if document is None:
                name = url.path.split("/")[2]
                feed = self._feed(name, query, headers.get("last-event-id", ""))
                await self._events(feed, reader, writer)
                return
            await _send(writer, 200, document)
        except _Refusal as error:
            await _send(writer, error.status, {"message": str(error)})
        except (BadFilter, PenstockError, ValueError) as error:
            await _send(writer, 400, {"message": str(error)})

    def _document(self, path: str, headers: Mapping[str, str]) -> Any:
        """The answer to a request for a document. None: it is one for events."""
        if path == "/health":
            return {"healthy": True}
        if self._token is not None:
            given = headers.get("authorization", "").removeprefix("Bearer ").encode()
            if not hmac.compare_digest(given, self._token.reveal().encode()):
                raise _Refusal(
                    401, "Send `Authorization: Bearer TOKEN` with `http_token` of the server's file."
                )
        if path == "/destinations":
            return {name: one.report() for name, one in self._destinations.items()}
        match = re.fullmatch(r"/destinations/([^/]+)(/events)?", path)
        if match is None or match[1] not in self._destinations:
            raise _Refusal(404, "There is no such destination.")
        return None if match[2] else self._destinations[match[1]].report()

    def _feed(self, name: str, query: Mapping[str, str], last: str) -> Feed:
        destination = self._destinations[name]
        unknown = query.keys() - {"start", "filter", "format"}
        if unknown or query.get("format", "json") != "json":
            raise _Refusal(400, "Known parameters: start, filter, format=json.")
        tables = destination.options.tables.narrowed(query.get("filter", ""))
        if last:
            match = re.fullmatch(r"([0-9]{1,18})\.([0-9]{1,18})", last)
            if match is None:
                raise _Refusal(400, "Last-Event-ID is not the id of an event.")
            place = Place(Offset(int(match[1])), int(match[2]))
            if not self._served.start <= place.offset <= self._served.end:
                raise _Refusal(400, "The relay log does not have this event (any more).")
        else:
            start = StartAt.model_validate(query.get("start", "latest"))
            place = Place(self._served.offset_of(start))
        return Feed(self._served, tables, destination.options, place, format="json")

    async def _events(self, feed: Feed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
            b"Connection: close\r\n\r\n"
        )
        loop = asyncio.get_running_loop()
        closed = loop.create_task(reader.read(1))
        try:
            while not closed.done():
                grown = self._grown
                try:
                    pieces = await loop.run_in_executor(self._threads, feed.read)
                except PenstockError as error:
                    writer.write(
                        b"event: error\ndata: " + json.dumps({"message": str(error)}).encode() + b"\n\n"
                    )
                    return
                if pieces is None:
                    await self._quiet(grown, closed, writer)
                    continue
                for piece in pieces:
                    writer.writelines(_events_of(piece))
                await asyncio.wait_for(writer.drain(), WRITE_S)
        finally:
            closed.cancel()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(writer.drain(), WRITE_S)

    async def _quiet(
        self, grown: asyncio.Event, closed: asyncio.Task[bytes], writer: asyncio.StreamWriter
    ) -> None:
        """Waits until the log has grown or the reader is gone."""
        wait = asyncio.ensure_future(grown.wait())
        done, _ = await asyncio.wait((wait, closed), timeout=QUIET_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            wait.cancel()
            writer.write(b":\n\n")


def _events_of(piece: Piece) -> list[bytes]:
    """The id of an event is the place behind it."""
    found = []
    for number, value in enumerate(piece.entries, 1):
        place = piece.place(number)
        found.append(b"id: %d.%d\ndata: %s\n\n" % (place.offset, place.entries, value))
    return found


def _parsed(head: bytes) -> tuple[str, dict[str, str]]:
    """The target of a request, and its headers by their names in small letters."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Refusal(400, "This is not HTTP/1.1.")
    if words[0] != "GET":
        raise _Refusal(405, "Only GET is known.")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return words[1], headers


async def _send(writer: asyncio.StreamWriter, status: int, document: Any) -> None:
    body = json.dumps(document, ensure_ascii=True).encode()
    head = (
        f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await asyncio.wait_for(writer.drain(), WRITE_S)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
