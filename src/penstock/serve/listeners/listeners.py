"""Where clients connect: Canal's protocol, HTTP and Arrow Flight, each with or without TLS."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import ssl
from typing import TYPE_CHECKING

from penstock.access.hosts import Hosts
from penstock.errors import ConfigError
from penstock.serve.destination import Destinations
from penstock.serve.listeners.access import Access
from penstock.serve.listeners.admin import Admin
from penstock.serve.listeners.door import Door
from penstock.serve.listeners.http import HEAD_BYTES_MAX, REQUESTS_MAX, Http
from penstock.serve.listeners.session import Session
from penstock.serve.settings import Listener, ServerConfig, TlsSection

if TYPE_CHECKING:
    from penstock.serve.listeners.flight import FlightService

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
            context = tls_context(config.tls)
            self._tls = dict.fromkeys(config.tls.listeners, context)
        self._sockets: dict[str, socket.socket] = {}
        try:
            if config.listen.grpc is not None and importlib.util.find_spec("grpc") is None:
                raise ConfigError(
                    "`listen.grpc` needs the package grpcio.", hint="pip install 'penstock[flight]'"
                )
            for name, address in config.listen.addresses.items():
                self._sockets[name] = listening(address, f"listen.{name}")
        except BaseException:
            self.close()
            raise
        self._destinations = Destinations()
        self._doors: list[Door] = []
        self._http: Http | None = None
        self._admin: Admin | None = None
        self._flight: FlightService | None = None
        self._sessions: dict[Session, asyncio.Task[None]] = {}

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()

    @property
    def canal_address(self) -> str:
        return _address(self._sockets["canal"])

    async def serve(self, destinations: Destinations) -> dict[str, str]:
        """Accepts clients from now on. Returns the addresses."""
        self._destinations = destinations
        folders = {name: self._config.pipeline_of(name).relay_log_path for name in self._config.logs}
        self._admin = Admin(destinations, folders)
        self._http = Http(destinations, self._access, self._admin, self._hosts())
        addresses = {name: _address(listener) for name, listener in self._sockets.items()}
        for name, serve, most in (
            ("canal", self._connected, self._config.connections_max), ("http", self._asked, REQUESTS_MAX)
        ):  # fmt: skip
            if name in self._sockets:
                tls = self._tls.get("canal" if name == "canal" else "http")
                door = Door(
                    self._sockets[name], serve, connections_max=most, bytes_max=HEAD_BYTES_MAX, tls=tls
                )
                self._doors.append(door)
                door.open()
        if "grpc" in self._sockets:
            addresses["grpc"] = await self._serve_flight(addresses["grpc"])
        return addresses

    def _hosts(self) -> Hosts:
        """The names by which HTTP may be asked."""
        listen = self._config.listen
        addresses = [listen.http, _address(self._sockets["http"])] if listen.http is not None else []
        own = [one.rpartition(":")[0] for one in addresses if one]
        return Hosts(own, listen.http_hosts, option="listen.http_hosts")

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
        for door in self._doors:
            door.close()
        if self._http is not None:
            self._http.end()
        if self._admin is not None:
            self._admin.close()
        for session in list(self._sessions):
            session.end()
        if self._flight is not None:
            await self._flight.end()
        if self._sessions:
            await asyncio.wait(list(self._sessions.values()), timeout=STOP_S)

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._http is not None
        await self._http.serve(reader, writer)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(reader, writer, self._destinations, self._access)
        task = asyncio.current_task()
        assert task is not None
        self._sessions[session] = task
        try:
            await session.run()
        finally:
            del self._sessions[session]


def tls_context(tls: TlsSection) -> ssl.SSLContext:
    """The TLS settings of a listener. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert, tls.key, password=lambda: b"")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The certificate {tls.cert} with the key {tls.key} cannot be used: {error}.",
            hint="`tls` needs PEM files that this process may read, and a key without a passphrase.",
        ) from None
    return context


def listening(address: str, option: str) -> socket.socket:
    """A socket that is bound and does not accept yet. Raises `ConfigError`."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, int(port)))
    except OSError as error:
        made.close()
        raise ConfigError(
            f"`{option}` is {address}, which cannot be bound: {error.strerror or error}.",
            hint="Choose another address of this machine.",
        ) from None
    return made


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
