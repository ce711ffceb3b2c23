"""Signals over HTTP: a small server in a thread of the running pipeline.

Whoever has the token may tell the pipeline what to do; `GET /health` alone asks for none. A signal that was
answered with 202 or 200 stands in the state store, so a client that hears nothing (the pipeline was killed,
the connection broke) sends it again with the same id.

Nothing that comes in is trusted: what a request may be long, how many connections there are and how long one
may take for a request is bounded, and no more than that is held in memory. Reports are those that the
pipeline's loop writes each second, so a loop that has come to a stand is seen, and no request reads what the
loop is changing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import json
import logging
import os
import re
import socket
import sqlite3
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, responses
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.config import RestConfig
from penstock.errors import ConfigError, PenstockError
from penstock.relaylog.status import age_seconds
from penstock.signals import commands
from penstock.signals.channels import check
from penstock.state import StateStore
from penstock.state.report import read_status
from penstock.state.requests import SignalsWait

log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.setLevel(logging.ERROR)  # strangers cannot fill the log with requests that are none

BODY_BYTES_MAX = 1024 * 1024
HEAD_BYTES_MAX = 16 * 1024
"""Of a request's line and headers."""
CONNECTIONS_MAX = 64
"""What comes above is closed at once: the pipeline needs its file descriptors."""
PAGE_SIGNALS, PAGE_SIGNALS_MAX = 100, 1000
"""Signals that `GET /signals` answers with, unless `limit` says otherwise, and at most."""
REQUEST_SECONDS_MAX = 30.0
"""From the connection, or from the answer before, to the answer."""
STOP_SECONDS_MAX = 5
WORKS_SECONDS_MAX = 60.0
"""A loop that has not reported for so long does not work. It reports each second, but may wait for a source
that is slow to answer."""

NAME = "rest"


@contextlib.contextmanager
def serving(config: RestConfig, state: StateStore) -> Iterator[str]:
    """Listens while the block lasts; the address. `state` must stay open. Raises `ConfigError` if the address
    cannot be had."""
    listener = _listen(*config.address)
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    options = uvicorn.Config(
        build(state, config.token),
        http=_Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,  # logging is the business of whoever runs the pipeline
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    server = uvicorn.Server(options)  # takes signals of the process only in the main thread
    thread = threading.Thread(target=server.run, args=([listener],), name="rest", daemon=True)
    thread.start()
    log.info("signals are taken over HTTP at %s", address)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(2 * STOP_SECONDS_MAX)
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS_MAX)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "another process listens there" if taken else (error.strerror or str(error)).split(" (")[0]
        raise ConfigError(
            f"`signals.rest.listen` is {host}:{port}, which cannot be had: {reason}.",
            hint="Give another address of this machine; with port 0 any free port is taken, and "
            "`penstock status FILE` shows it.",
        ) from None


class _Connection(H11Protocol):
    """A connection that cannot be kept open by saying nothing, or by saying it slowly."""

    _overdue: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = _http_log
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_again()
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()

    def on_response_complete(self) -> None:
        self._wait_again()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        super().connection_lost(exc)

    def _wait_again(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self.loop.call_later(REQUEST_SECONDS_MAX, self.transport.abort)


class JSONResponse(responses.JSONResponse):
    """In ASCII: names keep every character, and whoever shows the answer shows nothing invisible."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def build(state: StateStore, token: str) -> FastAPI:
    """The application. Every answer is JSON; one that refuses holds `message` and `hint`."""
    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(ClientDisconnect, _unusable)
    app.add_exception_handler(PenstockError, _unusable)
    app.add_exception_handler(sqlite3.Error, _unusable)
    app.add_exception_handler(Exception, _broken)
    folder = state.path.parent

    @app.get("/health")
    def health() -> JSONResponse:
        report = _report(folder)
        works = report is not None and age_seconds(report) < WORKS_SECONDS_MAX
        return JSONResponse({"works": works}, 200 if works else 503)

    guarded = APIRouter(dependencies=[Depends(_guard(token))])

    @guarded.get("/status")
    def status() -> JSONResponse:
        report = _report(folder)
        if report is None:
            raise _Refusal(503, "The pipeline is starting or stopping.", "Ask again.")
        return JSONResponse(report)

    @guarded.get("/signals")
    def signals(request: Request) -> JSONResponse:
        after, limit = _page(request.query_params)
        found = state.signals_page(after, limit)
        more = bool(found) and bool(state.signals_page(found[-1].number, 1))
        following = f"/signals?after={found[-1].number}&limit={limit}" if more else ""
        headers = {"Link": f'<{following}>; rel="next"'} if more else None
        return JSONResponse([one.to_json() for one in found], headers=headers)

    @guarded.get("/signals/{signal_id:path}")
    def signal(signal_id: str) -> JSONResponse:
        found = state.signal(signal_id)
        if found is None:
            raise _Refusal(404, f"There is no signal {signal_id!r}.", "GET /signals lists them.")
        return JSONResponse(found.to_json())

    @guarded.post("/signals")
    def send(body: Annotated[bytes, Depends(_body)]) -> JSONResponse:
        signal_id, kind, data = _parse(body)
        try:
            new = state.send(signal_id, kind, data, NAME)
        except SignalsWait as error:
            raise _Refusal(503, error.message, error.hint, {"Retry-After": "10"}) from None
        found = state.signal(signal_id)
        assert found is not None
        return JSONResponse(found.to_json(), 202 if new else 200)

    app.include_router(guarded)
    return app


def _page(parameters: QueryParams) -> tuple[int, int]:
    """`after` and `limit` of a list. Raises `_Refusal`."""
    known = {"after": (0, 0, 2**63 - 1), "limit": (PAGE_SIGNALS, 1, PAGE_SIGNALS_MAX)}
    found: dict[str, int] = {}
    for name in parameters:
        if name not in known:
            raise _Refusal(400, f"There is no parameter {name[:50]!r}.", f"There are: {', '.join(known)}.")
    for name, (usual, low, high) in known.items():
        text = parameters.get(name, str(usual))
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise _Refusal(400, f"`{name}` is a number from {low} to {high}.")
        found[name] = int(text)
    return found["after"], found["limit"]


class _Refusal(HTTPException):
    def __init__(
        self, status: int, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.hint = hint


def _guard(token: str) -> Callable[[Request], Awaitable[None]]:
    """Lets through what shows the token, before anything else of a request is looked at."""

    async def authorize(request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        known = hmac.compare_digest(given.strip().encode(), token.encode())
        if scheme.lower() != "bearer" or not known:
            raise _Refusal(
                401,
                "The token is missing, or it is another one.",
                "Send `Authorization: Bearer TOKEN`: signals.rest.token of the pipeline file.",
                {"WWW-Authenticate": "Bearer"},
            )

    return authorize


async def _body(request: Request) -> bytes:
    """What is too long is refused when it is announced, or as soon as that much has come."""
    refusal = _Refusal(413, f"The signal is longer than {BODY_BYTES_MAX} bytes.", "Send several.")
    if int(request.headers.get("content-length", "0")) > BODY_BYTES_MAX:
        raise refusal
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise refusal
    return bytes(body)


def _parse(body: bytes) -> tuple[str, str, dict[str, Any]]:
    """id, type and data: 400 for what is no JSON object, 422 for one that is no signal."""
    try:
        fields = commands.parse_data(body.decode("utf-8"))
    except ConfigError as error:
        raise _Refusal(400, error.message, error.hint) from None
    except UnicodeDecodeError:
        raise _Refusal(400, "A signal is JSON in UTF-8.") from None
    signal_id = fields.pop("id", None)
    kind, data = fields.pop("type", None), fields.pop("data", {})
    signal_id = str(uuid.uuid4()) if signal_id is None else signal_id
    try:
        if fields:
            raise ConfigError("A signal has id, type and data, and nothing else.")
        check(signal_id, kind, data)
        commands.parse(kind, data)
    except ConfigError as error:
        raise _Refusal(422, error.message, error.hint) from None
    return signal_id, kind, data


def _report(folder: Path) -> dict[str, Any] | None:
    """What this process has reported last; None: nothing yet, or not any more."""
    report = read_status(folder)
    return report if report is not None and report.get("pid") == os.getpid() else None


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    content = {"message": error.detail, "hint": getattr(error, "hint", "")}
    return JSONResponse(content, error.status_code, error.headers)


def _unusable(request: Request, error: Exception) -> JSONResponse:
    log.warning("%s %s: %s", request.method, request.url.path[:200], error)
    said = {"message": "The state store cannot be used just now.", "hint": "Ask again."}
    return JSONResponse(said, 503)


def _broken(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"message": "This is a bug in Penstock; its log has the details.", "hint": ""}, 500)
