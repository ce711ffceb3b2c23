"""HTTP of a subscription server: `GET /health`, `GET /destinations`, and changes (`events`).

    GET /destinations/NAME/events?start=latest&filter=shop\\..*     as server-sent events, or by WebSocket
    GET /destinations/NAME/events?after=ID                         goes on behind a change; or Last-Event-ID
    POST /destinations/NAME/stop, /destinations/NAME/start         of an operator; and GET /states, GET /logs

Only what these requests need of HTTP/1.1 is here, with limits on everything that is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.access.credentials import Denied
from penstock.access.hosts import Foreign, Hosts
from penstock.errors import PenstockError
from penstock.serve.destination import Destinations
from penstock.serve.filters import BadFilter
from penstock.serve.listeners import events, websocket
from penstock.serve.listeners.access import EVERYTHING, Access, Rights
from penstock.serve.listeners.admin import Admin
from penstock.serve.listeners.rates import TooMany
from penstock.serve.log.mysql import start_of
from penstock.serve.log.origin import AnyReader
from penstock.serve.subscription import Refused

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 16 * 1024
"""Bytes of a request's line and headers. Clients send much less."""
REQUESTS_MAX = 200
"""Requests at the same time. Each may have some MiB in memory."""
HEAD_S = 10.0
"""Time for a request. Clients need some milliseconds."""
WRITE_S = 60.0
"""Time to read an answer."""

_STATUS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 429: "Too Many Requests",
}  # fmt: skip


_ONCE = ("host", "origin", "authorization")
_ADMIN = re.compile(r"/destinations/([^/]+)/(stop|start)")


class _Refusal(Exception):
    def __init__(self, status: int, message: str, headers: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers

    @classmethod
    def denied(cls, error: Denied, status: int) -> _Refusal:
        """`status`: that of a wrong secret."""
        return cls(429, str(error), _retry(error.retry_s)) if error.retry_s else cls(status, str(error))


class Http:
    """Answers HTTP requests. `serve` is the callback of a listener."""

    def __init__(self, destinations: Destinations, access: Access, admin: Admin, hosts: Hosts) -> None:
        self._destinations = destinations
        self._access = access
        self._admin = admin
        self._hosts = hosts
        self._tasks: set[asyncio.Task[Any]] = set()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
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
            method, target, headers = _parsed(head)
            self._hosts.check(headers.get("host"), headers.get("origin"))
            url = urlsplit(target)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            address = (writer.get_extra_info("peername") or ("",))[0]
            asked = _ADMIN.fullmatch(url.path) if method == "POST" else None
            if asked is not None or (method == "GET" and url.path in ("/states", "/logs")):
                self._operator(headers, address)
                await _send(writer, 200, self._administer(asked, url.path, query))
                return
            if method == "POST":
                raise _Refusal(405, "Only GET is known here.")
            rights = EVERYTHING if url.path == "/health" else self._rights(headers, address)
            rights.take()
            document = self._document(url.path, rights)
            if document is not None:
                await _send(writer, 200, document)
                return
            stream: events.Stream
            mark = self._destinations.mark
            stream = events.WebSocket(headers, mark) if websocket.wanted(headers) else events.ServerSent(mark)
            name = url.path.split("/")[2]
            check = self._destinations[name].check
            changes = self._changes(name, query, headers.get("last-event-id", ""))
            await events.send(changes, stream, reader, writer, check)
        except TooMany as error:
            await _send(writer, 429, {"message": str(error)}, _retry(error.retry_s))
        except Foreign as error:
            await _send(writer, 403, {"message": str(error)})
        except _Refusal as error:
            await _send(writer, error.status, {"message": str(error)}, error.headers)
        except (BadFilter, Refused, PenstockError, ValueError) as error:
            await _send(writer, 400, {"message": str(error)})

    def _administer(self, asked: re.Match[str] | None, path: str, query: Mapping[str, str]) -> Any:
        if asked is None:
            lines = int(query.get("lines", 100))
            return self._admin.states() if path == "/states" else self._admin.logs(lines)
        try:
            return self._admin.stop(asked[1]) if asked[2] == "stop" else self._admin.start(asked[1])
        except KeyError:
            raise _Refusal(404, "There is no such destination.") from None

    def _rights(self, headers: Mapping[str, str], address: str) -> Rights:
        if not self._access.needs_token:
            return self._access.anybody(address)
        try:
            token = websocket.token(headers) if websocket.wanted(headers) else None
            if token is not None:
                return self._access.bearer(token, address=address)
            return self._access.header(headers.get("authorization", ""), address=address)
        except Denied as error:
            raise _Refusal.denied(error, 401) from None

    def _operator(self, headers: Mapping[str, str], address: str) -> None:
        try:
            self._access.operator(headers.get("authorization", ""), address=address)
        except Denied as error:
            raise _Refusal.denied(error, 403) from None

    def _document(self, path: str, rights: Rights) -> Any:
        """The answer to a request for a document. None: it is one for changes."""
        if path == "/health":
            return {"healthy": True}
        if path == "/destinations":
            return {name: self._destinations[name].report() for name in rights.of(self._destinations)}
        match = re.fullmatch(r"/destinations/([^/]+)(/events)?", path)
        if match is None or match[1] not in rights.of(self._destinations):
            raise _Refusal(404, "There is no such destination.")
        return None if match[2] else self._destinations[match[1]].report()

    def _changes(self, name: str, query: Mapping[str, str], last: str) -> AnyReader:
        unknown = query.keys() - {"start", "after", "filter", "format"}
        if unknown or query.get("format", "json") != "json":
            raise _Refusal(400, "Known parameters: start, after, filter, format=json.")
        last = last or query.get("after", "")
        start = self._destinations.place_of(last) if last else start_of(query.get("start", "latest"))
        return self._destinations[name].reader(query.get("filter", ""), start, "json")


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """The method and the target of a request, and its headers by their names in small letters."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Refusal(400, "This is not HTTP/1.1.")
    if words[0] not in ("GET", "POST"):
        raise _Refusal(405, "Only GET and POST are known.")
    if not words[1].startswith("/"):
        raise _Refusal(400, "The target of a request is a path.")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        name = name.strip().lower()
        if name in _ONCE and name in headers:
            raise _Refusal(400, f"The header {name} is there twice.")
        headers[name] = value.strip()
    if "host" not in headers and words[2] != "HTTP/1.0":
        raise _Refusal(400, "The header host is missing.")
    return words[0], words[1], headers


def _retry(seconds: float) -> str:
    return f"Retry-After: {math.ceil(seconds)}\r\n"


async def _send(writer: asyncio.StreamWriter, status: int, document: Any, headers: str = "") -> None:
    body = json.dumps(document, ensure_ascii=True).encode()
    head = (
        f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: application/json\r\n{headers}"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await asyncio.wait_for(writer.drain(), WRITE_S)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
