"""HTTP of a subscription server: `GET /health`, `GET /destinations`, and changes (`events`).

    GET /destinations/NAME/events?start=latest&filter=shop\\..*     as server-sent events, or by WebSocket
    GET /destinations/NAME/events?after=ID                         goes on behind a change; or Last-Event-ID
    POST /destinations/NAME/stop, /destinations/NAME/start         of an operator; and GET /states, GET /logs

All of it runs in the event loop, like the destinations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from starlette.requests import HTTPConnection

from penstock.access.tokens import Rights
from penstock.http.pages import JSONResponse, Known, Page, Refusal, address_of, credentials
from penstock.serve.destination import Destinations
from penstock.serve.filters import BadFilter
from penstock.serve.listeners.access import Access
from penstock.serve.listeners.admin import Admin
from penstock.serve.listeners.events import Events, OpenEvents
from penstock.serve.log.destination_log import AnyReader
from penstock.serve.start import start_of
from penstock.serve.subscription import Refused

_PARAMETERS = {"start", "after", "filter", "format"}


def known_to(access: Access) -> Known:
    """Finds out who asks a subscription server. Without tokens, it may be anybody."""

    def known(asked: HTTPConnection) -> Rights:
        if not access.needs_token:
            return access.anybody(address_of(asked))
        return access.shown(*credentials(asked), address=address_of(asked))

    return known


class Pages:
    """The pages of a server."""

    def __init__(self, destinations: Destinations, admin: Admin, open_events: OpenEvents) -> None:
        self._destinations = destinations
        self._admin = admin
        self._open_events = open_events

    def all(self) -> list[Page]:
        one = "/destinations/{name}"
        return [
            Page("/health", self._health, None),
            Page("/destinations", self._reports, "reader"),
            Page(one, self._report, "reader"),
            Page(f"{one}/events", self._events, "reader", by_websocket=True),
            Page(f"{one}/stop", self._stop, "operator", method="POST"),
            Page(f"{one}/start", self._start, "operator", method="POST"),
            Page("/states", self._states, "operator"),
            Page("/logs", self._logs, "operator"),
        ]

    async def _health(self, asked: HTTPConnection, rights: Rights) -> JSONResponse:
        return JSONResponse({"healthy": True})

    async def _reports(self, asked: HTTPConnection, rights: Rights) -> JSONResponse:
        found = {name: self._destinations[name].report() for name in rights.of(self._destinations)}
        return JSONResponse(found)

    async def _report(self, asked: HTTPConnection, rights: Rights) -> JSONResponse:
        return JSONResponse(self._destinations[self._name(asked, rights)].report())

    async def _events(self, asked: HTTPConnection, rights: Rights) -> Events:
        name = self._name(asked, rights)
        with _refused():
            served = self._destinations[name].served
            await served()
            changes = self._changes(name, asked)
        return Events(self._open_events, changes, self._destinations.mark, served)

    def _changes(self, name: str, asked: HTTPConnection) -> AnyReader:
        query = asked.query_params
        if query.keys() - _PARAMETERS or query.get("format", "json") != "json":
            raise Refusal(400, "Known parameters: start, after, filter, format=json.")
        last = asked.headers.get("last-event-id", "") or query.get("after", "")
        start = self._destinations.place_of(last) if last else start_of(query.get("start", "latest"))
        return self._destinations[name].reader(query.get("filter", ""), start, "json")

    def _name(self, asked: HTTPConnection, rights: Rights) -> str:
        """The name in the path, if it is one of a destination that may be read. Raises `Refusal`."""
        name = str(asked.path_params["name"])
        if name not in rights.of(self._destinations):
            raise _no_destination()
        return name

    async def _stop(self, asked: HTTPConnection, rights: Rights) -> JSONResponse:
        return self._administered(self._admin.stop, asked, rights)

    async def _start(self, asked: HTTPConnection, rights: Rights) -> JSONResponse:
        return self._administered(self._admin.start, asked, rights)

    def _administered(
        self, act: Callable[[str], dict[str, Any]], asked: HTTPConnection, rights: Rights
    ) -> JSONResponse:
        name = str(asked.path_params["name"])
        if name not in rights:
            raise _no_destination()
        with _refused():
            return JSONResponse(act(name))

    async def _states(self, asked: HTTPConnection, rights: Rights) -> JSONResponse:
        return JSONResponse(self._admin.states())

    async def _logs(self, asked: HTTPConnection, rights: Rights) -> JSONResponse:
        with _refused():
            return JSONResponse(self._admin.logs(int(asked.query_params.get("lines", "100"))))


def _no_destination() -> Refusal:
    return Refusal(404, "There is no such destination.")


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Raises `Refusal` for errors of who asks."""
    try:
        yield
    except KeyError:
        raise _no_destination() from None
    except (BadFilter, Refused, ValueError) as error:
        raise Refusal(400, str(error)) from None
