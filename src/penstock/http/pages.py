"""Pages: what is asked at a path, and who may ask it.

Whoever brings a page says which role it needs, so that none is open by mistake. Before it is answered, these
are checked: the name by which the server is asked, and the page that asks (`access/hosts.py`); who asks, and
whether he asks too often; his role. Only then is a body read. An error is JSON with `message` and `hint`.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette import responses
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.access.credentials import Denied
from penstock.access.hosts import Foreign, Hosts
from penstock.access.rates import TooMany
from penstock.access.tokens import Rights, Role, Tokens
from penstock.errors import PenstockError

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 1024 * 1024
"""Bytes of a request's body."""
_ONCE = (b"origin", b"authorization")
"""Headers of which there may be one. (h11 checks `Host`.)"""
_TOKEN_PREFIX = "token."
"""Browsers cannot set headers of a WebSocket. They give a token as a protocol with this prefix."""


class Refusal(Exception):
    """An answer that says why there is no other one."""

    def __init__(
        self, status: int, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint
        self.headers = headers


class JSONResponse(responses.JSONResponse):
    """JSON in ASCII: names keep every character, and an answer contains no invisible characters."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


Answer = Callable[[Any, Rights], ASGIApp | Awaitable[ASGIApp]]
"""Answers a `Request`, or the `HTTPConnection` of a WebSocket. If it is no coroutine, it runs in a thread."""
Known = Callable[[HTTPConnection], Rights]
"""Finds out who asks. Raises `Denied`."""


@dataclass(frozen=True)
class Page:
    """`role` None: anybody may ask. `by_websocket`: it is answered by WebSocket, too."""

    path: str
    answer: Answer
    role: Role | None
    method: str = "GET"
    by_websocket: bool = False


def application(
    pages: Sequence[Page], hosts: Hosts, known: Known, unusable: Sequence[type[Exception]] = ()
) -> ASGIApp:
    """The application with these pages. `unusable`: errors which say that what a page reads is not available
    right now."""
    routes: list[BaseRoute] = []
    for page in pages:
        answered = _Answered(page, known, tuple(unusable))
        routes.append(Route(page.path, answered, methods=[page.method]))
        if page.by_websocket:
            routes.append(WebSocketRoute(page.path, answered))
    made = Starlette(
        routes=routes,
        middleware=[Middleware(_Entrance, hosts=hosts)],
        exception_handlers={HTTPException: _not_found},
    )
    made.router.redirect_slashes = False
    return made


def credentials(connection: HTTPConnection) -> tuple[str, str]:
    """The scheme of what somebody shows, in small letters, and what he shows. Both are empty if it is
    nothing."""
    if connection.scope["type"] == "websocket":
        shown = [one for one in connection.scope["subprotocols"] if one.startswith(_TOKEN_PREFIX)]
        if shown:
            return "bearer", shown[0].removeprefix(_TOKEN_PREFIX)
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    return scheme.lower(), given.strip()


def address_of(connection: HTTPConnection) -> str:
    """The address of whoever asks."""
    return connection.client.host if connection.client is not None else ""


def token_holder(tokens: Tokens) -> Known:
    """Knows only holders of tokens."""

    def known(connection: HTTPConnection) -> Rights:
        scheme, given = credentials(connection)
        if scheme == "bearer" and given:
            return tokens.rights(given, address=address_of(connection))
        tokens.check(address_of(connection))
        raise Denied("The token is missing. Send `Authorization: Bearer TOKEN`.")

    return known


async def body_of(request: Request) -> bytes:
    """The body. Raises `Refusal` for one that is too long, by its announced length or once that much was
    received."""
    refusal = Refusal(413, f"The body is longer than {BODY_BYTES_MAX} bytes.", "Send less at once.")
    if int(request.headers.get("content-length", "0")) > BODY_BYTES_MAX:
        raise refusal
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise refusal
    return bytes(body)


class _Entrance:
    """Checks the name by which the server is asked, and the page that asks."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        try:
            for name in _ONCE:
                if sum(one == name for one, _ in headers) > 1:
                    raise Refusal(400, f"The header {name.decode()} is there twice.")
            if not scope["path"].startswith("/"):
                raise Refusal(400, "The target of a request is a path.")
            known = {name: value.decode("latin-1") for name, value in headers}
            self._hosts.check(known.get(b"host"), known.get(b"origin"))
        except Refusal as error:
            await _refused(error)(scope, receive, send)
        except Foreign as error:
            await _refused(Refusal(403, str(error)))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _Answered:
    """A page behind its checks, as an application."""

    _ranks: ClassVar[Mapping[Role, int]] = {"reader": 0, "operator": 1}

    def __init__(self, page: Page, known: Known, unusable: tuple[type[Exception], ...]) -> None:
        self._page = page
        self._known = known
        self._unusable = unusable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        asked = Request(scope, receive) if is_http else HTTPConnection(scope)
        try:
            answer = await self._answer(asked)
        except Refusal as error:
            answer = _refused(error)
        except self._unusable as error:
            log.warning("%s: %s", scope["path"][:200], error)
            answer = _refused(Refusal(503, "What this page shows is not available right now.", "Try again."))
        except PenstockError as error:
            answer = _refused(Refusal(400, error.message, error.hint))
        except ClientDisconnect:
            return
        except Exception:
            log.exception("a bug ended a request")
            answer = _refused(Refusal(500, "This is a bug in Penstock. The log has the details."))
        await answer(scope, receive, send)

    async def _answer(self, asked: HTTPConnection) -> ASGIApp:
        rights = self._admitted(asked)
        if inspect.iscoroutinefunction(self._page.answer):
            return await self._page.answer(asked, rights)  # type: ignore[no-any-return]
        return await run_in_threadpool(self._page.answer, asked, rights)  # type: ignore[arg-type]

    def _admitted(self, asked: HTTPConnection) -> Rights:
        """The rights of whoever asks. Raises `Refusal`."""
        role = self._page.role
        if role is None:
            return Rights()
        try:
            rights = self._known(asked)
            rights.take()
        except Denied as error:
            if error.retry_s:
                raise Refusal(429, str(error), "", _retry(error.retry_s)) from None
            raise Refusal(401, str(error), "", {"WWW-Authenticate": "Bearer"}) from None
        except TooMany as error:
            raise Refusal(429, str(error), "", _retry(error.retry_s)) from None
        if self._ranks[rights.role] < self._ranks[role]:
            raise Refusal(403, f"This needs a token with `role: {role}`.", "Tokens are in the server's file.")
        return rights


def _retry(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(math.ceil(seconds))}


def _refused(error: Refusal) -> JSONResponse:
    return JSONResponse({"message": str(error), "hint": error.hint}, error.status, error.headers)


def _not_found(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _refused(Refusal(error.status_code, error.detail, headers=error.headers))
