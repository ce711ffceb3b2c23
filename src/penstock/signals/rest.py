"""Signals over HTTP: a small server in a thread of the running pipeline.

Every request needs the token, except `GET /health`. A signal that was answered with 200 or 202 is durable in
the state store. A client that got no answer (the pipeline was killed, the connection broke) sends the signal
again with the same id.

Requests are not trusted. The length of a request, its duration and the number of connections are bounded, and
so is the memory they take. `/status` and `/health` use the report that the pipeline's loop writes each
second. So a loop that is stuck is noticed, and no request reads state while the loop changes it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import math
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

from penstock.access.credentials import Attempts, Denied, same
from penstock.access.hosts import Foreign, Hosts
from penstock.config import RestConfig
from penstock.errors import ConfigError, PenstockError
from penstock.relaylog.status import age_seconds
from penstock.signals import commands
from penstock.signals.acceptance import check
from penstock.state import StateStore
from penstock.state.report import read_status
from penstock.state.requests import SignalsWait

log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.setLevel(logging.ERROR)  # malformed requests must not fill the log

BODY_BYTES_MAX = 1024 * 1024
"""Bytes of a request's body: a signal of the maximum size."""
HEAD_BYTES_MAX = 16 * 1024
"""Bytes of a request's line and headers. Clients send much less."""
CONNECTIONS_MAX = 64
"""Open connections. More are closed at once, because the pipeline needs its file descriptors."""
PAGE_SIGNALS, PAGE_SIGNALS_MAX = 100, 1000
"""Signals per page of `GET /signals`: the default, and the maximum of `limit`. An answer stays small enough
to be read at once."""
REQUEST_SECONDS_MAX = 30.0
"""Time for one request, counted from the connection or from the previous answer, so that idle clients free
their connection."""
STOP_SECONDS_MAX = 5
"""How long requests may take to end when the pipeline stops: less than the `stop_timeout` that a run has by
default."""
WORKS_SECONDS_MAX = 60.0
"""The loop counts as stuck once its last report is older. It reports every second, but may wait for a slow
source."""

NAME = "rest"


@contextlib.contextmanager
def serving(config: RestConfig, state: StateStore) -> Iterator[str]:
    """Listens while the block lasts and yields the address. `state` must stay open. Raises `ConfigError` if
    the address cannot be bound."""
    listener = _listen(*config.address)
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    options = uvicorn.Config(
        build(config, state, host),
        http=_Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,  # the program that runs the pipeline configures logging
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    server = uvicorn.Server(options)  # handles signals of the process only in the main thread
    thread = threading.Thread(target=server.run, args=([listener],), name="rest", daemon=True)
    thread.start()
    log.info("accepting signals over HTTP at %s", address)
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
            f"`signals.rest.listen` is {host}:{port}, which cannot be bound: {reason}.",
            hint="Choose another address of this machine. With port 0 any free port is used, and "
            "`penstock status FILE` shows it.",
        ) from None


class _Connection(H11Protocol):
    """A connection that is closed if a request takes too long, also if the client sends nothing."""

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
    """JSON in ASCII: names keep every character, and an answer contains no invisible characters."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def build(config: RestConfig, state: StateStore, host: str) -> FastAPI:
    """The application. Every answer is JSON; an error has `message` and `hint`. `host`: the address that is
    listened on."""
    app = FastAPI(
        dependencies=[Depends(_known_by(config, host))],
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
        healthy = report is not None and age_seconds(report) < WORKS_SECONDS_MAX
        return JSONResponse({"healthy": healthy}, 200 if healthy else 503)

    guarded = APIRouter(dependencies=[Depends(_guard(config))])

    @guarded.get("/status")
    def status() -> JSONResponse:
        report = _report(folder)
        if report is None:
            raise _Refusal(503, "The pipeline is starting or stopping.", "Try again.")
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
            raise _Refusal(404, f"There is no signal with the id {signal_id!r}.", "GET /signals lists all.")
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
            raise _Refusal(400, f"Unknown parameter {name[:50]!r}.", f"Known parameters: {', '.join(known)}.")
    for name, (usual, low, high) in known.items():
        text = parameters.get(name, str(usual))
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise _Refusal(400, f"`{name}` must be a number from {low} to {high}.")
        found[name] = int(text)
    return found["after"], found["limit"]


class _Refusal(HTTPException):
    def __init__(
        self, status: int, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.hint = hint


def _known_by(config: RestConfig, host: str) -> Callable[[Request], Awaitable[None]]:
    """Checks the name by which the server is asked, and the page that asks."""
    hosts = Hosts([config.address[0], host], config.hosts, option="signals.rest.hosts")

    async def check(request: Request) -> None:
        try:
            hosts.check(request.headers.get("host"), request.headers.get("origin"))
        except Foreign as error:
            raise _Refusal(403, str(error)) from None

    return check


def _guard(config: RestConfig) -> Callable[[Request], Awaitable[None]]:
    """Checks the token before anything else of a request is read."""
    attempts = Attempts(config.failed_logins_per_minute_max)

    async def authorize(request: Request) -> None:
        address = request.client.host if request.client is not None else ""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            attempts.check(address)
        except Denied as error:
            retry = {"Retry-After": str(math.ceil(error.retry_s))}
            raise _Refusal(429, str(error), "", retry) from None
        if scheme.lower() != "bearer" or not same(config.token, given.strip()):
            if given:
                attempts.failed(address)
            raise _Refusal(
                401,
                "The token is missing or wrong.",
                "Send `Authorization: Bearer TOKEN` with `signals.rest.token` of the pipeline file.",
                {"WWW-Authenticate": "Bearer"},
            )

    return authorize


async def _body(request: Request) -> bytes:
    """The body. Refuses one that is too long, by its announced length or once that much was received."""
    refusal = _Refusal(
        413, f"The signal is longer than {BODY_BYTES_MAX} bytes.", "Split it into several signals."
    )
    if int(request.headers.get("content-length", "0")) > BODY_BYTES_MAX:
        raise refusal
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise refusal
    return bytes(body)


def _parse(body: bytes) -> tuple[str, str, dict[str, Any]]:
    """id, type and data. Refuses with 400 if the body is not a JSON object, with 422 if it is not a
    signal."""
    try:
        fields = commands.parse_data(body.decode("utf-8"))
    except ConfigError as error:
        raise _Refusal(400, error.message, error.hint) from None
    except UnicodeDecodeError:
        raise _Refusal(400, "The body must be JSON in UTF-8.") from None
    signal_id = fields.pop("id", None)
    kind, data = fields.pop("type", None), fields.pop("data", {})
    signal_id = str(uuid.uuid4()) if signal_id is None else signal_id
    try:
        if fields:
            raise ConfigError("A signal has only id, type and data.")
        check(signal_id, kind, data)
        commands.parse(kind, data)
    except ConfigError as error:
        raise _Refusal(422, error.message, error.hint) from None
    return signal_id, kind, data


def _report(folder: Path) -> dict[str, Any] | None:
    """The last report of this process; None while the pipeline starts or stops."""
    report = read_status(folder)
    return report if report is not None and report.get("pid") == os.getpid() else None


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    content = {"message": error.detail, "hint": getattr(error, "hint", "")}
    return JSONResponse(content, error.status_code, error.headers)


def _unusable(request: Request, error: Exception) -> JSONResponse:
    log.warning("%s %s: %s", request.method, request.url.path[:200], error)
    said = {"message": "The state store is not available right now.", "hint": "Try again."}
    return JSONResponse(said, 503)


def _broken(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(
        {"message": "This is a bug in Penstock. The pipeline's log has the details.", "hint": ""}, 500
    )
