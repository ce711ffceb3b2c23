"""Signals over HTTP.

A signal that was answered with 200 or 202 is durable in the state store. A client that got no answer (the
pipeline was killed, the connection broke) sends the signal again with the same id.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request

from penstock.access.tokens import Rights
from penstock.errors import ConfigError
from penstock.http.pages import JSONResponse, Page, Refusal, body_of
from penstock.signals import commands
from penstock.signals.acceptance import check
from penstock.state import StateStore
from penstock.state.signals import SignalsWait

PAGE_SIGNALS, PAGE_SIGNALS_MAX = 100, 1000
"""Signals per page of `GET /signals`: the default, and the maximum of `limit`. An answer stays small enough
to be read at once."""
CHANNEL = "http"


def pages(state: StateStore) -> list[Page]:
    """`state` must stay open."""

    def listed(request: Request, rights: Rights) -> JSONResponse:
        after, limit = _page(request.query_params)
        found = state.signals_page(after, limit)
        more = bool(found) and bool(state.signals_page(found[-1].number, 1))
        following = f"/signals?after={found[-1].number}&limit={limit}" if more else ""
        headers = {"Link": f'<{following}>; rel="next"'} if more else None
        return JSONResponse([one.to_json() for one in found], headers=headers)

    def signal(request: Request, rights: Rights) -> JSONResponse:
        signal_id = request.path_params["signal_id"]
        found = state.signal(signal_id)
        if found is None:
            raise Refusal(404, f"There is no signal with the id {signal_id!r}.", "GET /signals lists all.")
        return JSONResponse(found.to_json())

    async def send(request: Request, rights: Rights) -> JSONResponse:
        return await run_in_threadpool(_accept, state, await body_of(request))

    return [
        Page("/signals", listed, "reader"),
        Page("/signals/{signal_id:path}", signal, "reader"),
        Page("/signals", send, "operator", method="POST"),
    ]


def _accept(state: StateStore, body: bytes) -> JSONResponse:
    signal_id, kind, data = _parse(body)
    try:
        new = state.send(signal_id, kind, data, CHANNEL)
    except SignalsWait as error:
        raise Refusal(503, error.message, error.hint, {"Retry-After": "10"}) from None
    found = state.signal(signal_id)
    assert found is not None
    return JSONResponse(found.to_json(), 202 if new else 200)


def _page(parameters: QueryParams) -> tuple[int, int]:
    """`after` and `limit` of a list. Raises `Refusal`."""
    known = {"after": (0, 0, 2**63 - 1), "limit": (PAGE_SIGNALS, 1, PAGE_SIGNALS_MAX)}
    found: dict[str, int] = {}
    for name in parameters:
        if name not in known:
            raise Refusal(400, f"Unknown parameter {name[:50]!r}.", f"Known parameters: {', '.join(known)}.")
    for name, (usual, low, high) in known.items():
        text = parameters.get(name, str(usual))
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise Refusal(400, f"`{name}` must be a number from {low} to {high}.")
        found[name] = int(text)
    return found["after"], found["limit"]


def _parse(body: bytes) -> tuple[str, str, dict[str, Any]]:
    """id, type and data. Refuses with 400 if the body is not a JSON object, with 422 if it is not a
    signal."""
    try:
        fields = commands.parse_data(body.decode("utf-8"))
    except ConfigError as error:
        raise Refusal(400, error.message, error.hint) from None
    except UnicodeDecodeError:
        raise Refusal(400, "The body must be JSON in UTF-8.") from None
    signal_id = fields.pop("id", None)
    kind, data = fields.pop("type", None), fields.pop("data", {})
    signal_id = str(uuid.uuid4()) if signal_id is None else signal_id
    try:
        if fields:
            raise ConfigError("A signal has only id, type and data.")
        check(signal_id, kind, data)
        commands.parse(kind, data)
    except ConfigError as error:
        raise Refusal(422, error.message, error.hint) from None
    return signal_id, kind, data
