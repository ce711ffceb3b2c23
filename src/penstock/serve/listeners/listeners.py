"""Where clients connect: Canal's protocol, HTTP and Arrow Flight, each with or without TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.access.door import Door, Served, address_of, bind, tls_context
from penstock.access.hosts import Hosts
from penstock.config.http_section import HttpSection
from penstock.errors import ConfigError
from penstock.http.packages import check_packages
from penstock.serve.destination import Destinations
from penstock.serve.listeners.access import Access
from penstock.serve.listeners.admin import Admin
from penstock.serve.listeners.session import Session
from penstock.serve.settings import Listener, ServerConfig

if TYPE_CHECKING:
    from penstock.http.server import HttpServer
    from penstock.serve.listeners.events import OpenEvents
    from penstock.serve.listeners.flight import FlightService

REQUESTS_MAX = 200
"""Connections of HTTP at the same time. Each may have some MiB in memory."""
UNREAD_BYTES_MAX = 16 * 1024
"""Bytes of a client of Canal that wait to be read."""
STOP_S = 5.0
"""How long sessions may take to end."""


class Listeners:
    """Binds all addresses when it is made, which raises `ConfigError`. `serve` and `end` run in the event
    loop."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._access = Access(config)
        self._tls: dict[Listener, ssl.SSLContext] = {}
        if config.tls is not None:
            context = tls_context(config.tls.cert, config.tls.key)
            self._tls = dict.fromkeys(config.tls.listeners, context)
        self._sockets: dict[str, socket.socket] = {}
        try:
            if config.listen.grpc is not None and find_spec("grpc") is None:
                raise ConfigError(
                    "`listen.grpc` needs the package grpcio.", hint="pip install 'penstock[flight]'"
                )
            if config.http is not None:
                check_packages("http")
            for name, address in config.addresses.items():
                option = "http.listen" if name == "http" else f"listen.{name}"
                self._sockets[name] = bind(address, option)
        except BaseException:
            self.close()
            raise
        self._destinations = Destinations()
        self._door: Door | None = None
        self._http: HttpServer | None = None
        self._open_events: OpenEvents | None = None
        self._admin: Admin | None = None
        self._flight: FlightService | None = None
        self._sessions: dict[Session, asyncio.Task[None]] = {}

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()

    @property
    def canal_address(self) -> str:
        return address_of(self._sockets["canal"])

    async def serve(self, destinations: Destinations) -> dict[str, str]:
        """Accepts clients from now on. Returns the addresses."""
        self._destinations = destinations
        folders = {name: self._config.pipeline_of(name).relay_log_path for name in self._config.logs}
        self._admin = Admin(destinations, folders)
        addresses = {name: address_of(listener) for name, listener in self._sockets.items()}
        most = self._config.connections_max
        self._door = Door(
            self._sockets["canal"], self._connected, connections_max=most, tls=self._tls.get("canal")
        )
        self._door.open()
        if self._config.http is not None:
            self._serve_http(self._config.http, self._admin)
        if "grpc" in self._sockets:
            addresses["grpc"] = await self._serve_flight(addresses["grpc"])
        return addresses

    def _serve_http(self, config: HttpSection, admin: Admin) -> None:
        from penstock.http.pages import application  # a web server is slow to import
        from penstock.http.server import HttpServer
        from penstock.serve.listeners.events import OpenEvents
        from penstock.serve.listeners.pages import Pages, known_to

        listener = self._sockets["http"]
        self._open_events = OpenEvents()
        app = application(
            Pages(self._destinations, admin, self._open_events).all(),
            Hosts.at((config.listen, address_of(listener)), config.hosts),
            known_to(self._access),
            unusable=(),
        )
        self._http = HttpServer(listener, app, connections_max=REQUESTS_MAX, tls=self._tls.get("http"))
        self._http.begin()

    async def _serve_flight(self, address: str) -> str:
        # What strangers send wrong would fill the log. gRPC reads this when it is imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from penstock.serve.listeners.flight import FlightService  # Arrow and gRPC are large

        self._sockets.pop("grpc").close()  # gRPC binds it itself
        tls = self._config.tls
        certificate = (tls.cert, tls.key) if tls is not None and "grpc" in self._tls else None
        self._flight = FlightService(self._destinations, self._access, self._config.connections_max)
        port = await self._flight.begin(address, certificate)
        return f"{address.rpartition(':')[0]}:{port}"

    async def end(self) -> None:
        """Ends all connections."""
        if self._door is not None:
            self._door.close()
        if self._open_events is not None:
            self._open_events.end()
        if self._http is not None:
            await self._http.end()
        if self._admin is not None:
            self._admin.close()
        for session in list(self._sessions):
            session.end()
        if self._flight is not None:
            await self._flight.end()
        if self._sessions:
            await asyncio.wait(list(self._sessions.values()), timeout=STOP_S)

    def _connected(self) -> Served:
        reader = asyncio.StreamReader(UNREAD_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)

        async def serve(transport: asyncio.Transport) -> None:
            writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
            session = Session(reader, writer, self._destinations, self._access)
            task = asyncio.current_task()
            assert task is not None
            self._sessions[session] = task
            try:
                await session.run()
            finally:
                del self._sessions[session]

        return protocol, serve
