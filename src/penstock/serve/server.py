"""Runs a subscription server: the receiver, the log, the destinations and the listener. It only connects
them.

Everything but reading the log and storing positions durably runs in one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.errors import ConfigError, TransientError
from penstock.model.offset import Offset
from penstock.relaylog.consumers import Consumer
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.serve.destination import Destination
from penstock.serve.http import HEAD_BYTES_MAX, Http
from penstock.serve.log import ServedLog, wait_until
from penstock.serve.positions import InFiles, InMemory, Positions, Subscribed, make_folder
from penstock.serve.session import Session
from penstock.serve.settings import ServerConfig
from penstock.sources.supervisor import Supervisor

log = logging.getLogger(__name__)

STORE_S = 1.0
"""How often positions are stored where they survive a power loss."""
BACKLOG = 128
"""Connections that the kernel keeps until they are accepted."""
KEEPALIVE_S, KEEPALIVE_PROBES = (15, 5), 3
"""Seconds of silence before a dead client is looked for, and between two probes. It is found after 30 s."""
WRITE_BYTES = 1024**2
"""Bytes of answers that wait in this process for a client, before the session waits for it."""
STOP_S = 5.0
"""How long running reads and the receiver may take to end."""


class Server:
    """`run` serves until `stop` is called, by any thread. `ready` is called with the addresses once clients
    can connect."""

    def __init__(self, config: ServerConfig, file: Path, ready: Callable[[dict[str, str]], None]) -> None:
        self._config = config
        self._file = file
        self._ready = ready
        self._stopping = threading.Event()
        self._ended: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._destinations: dict[str, Destination] = {}
        self._sessions: dict[Session, asyncio.Task[None]] = {}

    def stop(self) -> None:
        self._stopping.set()
        if self._loop is not None and self._ended is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._ended.set)

    def run(self) -> None:
        """Raises `PenstockError`."""
        with contextlib.ExitStack() as stack:
            listeners = {
                name: stack.enter_context(listening(address, f"listen.{name}"))
                for name, address in self._config.listen.addresses.items()
            }
            if self._config.positions.path is not None:
                make_folder(self._config.positions.path)
            supervisor = self._receiver()
            if supervisor is not None:
                stack.callback(supervisor.stop)
                supervisor.start()
            check = supervisor.check if supervisor is not None else lambda: None
            try:
                served = self._served(check)
            except TransientError:
                if self._stopping.is_set():
                    return
                raise
            stack.callback(served.close)
            threads = ThreadPoolExecutor((os.cpu_count() or 1) + 1, thread_name_prefix="serve")
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            self._open(served, threads)
            consumer = self._consumer(served)
            stack.callback(consumer.close)
            http = Http(self._destinations, served, threads, self._config.http_token)
            asyncio.run(self._serve(listeners, http, served, consumer, check))

    def _receiver(self) -> Supervisor | None:
        if self._config.source is None:
            return None
        path = self._config.relay_log.path
        assert path is not None
        return Supervisor(self._file, path)

    def _served(self, check: Callable[[], None]) -> ServedLog:
        seconds = self._config.relay_log.catch_up_timeout / 1000
        wait = wait_until(check, self._stopping, seconds)
        place = LogPlace.of(self._config.pipeline).or_archive
        wait(lambda: RelayLog.exists(place), f"the relay log in {place}")
        served = ServedLog.of(self._config)
        served.begin(wait)
        return served

    def _open(self, served: ServedLog, threads: ThreadPoolExecutor) -> None:
        positions: Positions = InMemory()
        if self._config.positions.type == "file":
            assert self._config.positions.path is not None
            positions = InFiles(self._config.positions.path, served.id)
        self._destinations = {
            name: Destination(name, options, served, positions, threads)
            for name, options in self._config.destinations.items()
        }
        served.needed = self._needed

    def _needed(self) -> Offset | None:
        """The oldest offset that a client may read from; None: as far as the log goes back."""
        if any(one.options.start.at != "latest" for one in self._destinations.values()):
            return None
        clients = [one for each in self._destinations.values() for one in each.clients.values()]
        return min((one.place.offset for one in clients), default=None)

    def _consumer(self, served: ServedLog) -> Consumer:
        path = self._config.relay_log.path
        assert path is not None
        clients = [one for each in self._destinations.values() for one in each.clients.values()]
        needs = min((one.place.offset for one in clients), default=served.end)
        return Consumer(path, self._config.name, needs=needs)

    # the event loop -----------------------------------------------------------------------------------------

    async def _serve(
        self,
        listeners: dict[str, socket.socket],
        http: Http,
        served: ServedLog,
        consumer: Consumer,
        check: Callable[[], None],
    ) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping.is_set():
            return
        loop = self._loop

        def grown() -> None:
            for one in self._destinations.values():
                one.log_has_grown()
            http.log_has_grown()

        def on_growth() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(grown)

        served.start_following(on_growth)
        serving = {"canal": self._connected, "http": http.serve}
        servers = [
            await asyncio.start_server(serving[name], sock=listener, backlog=BACKLOG, limit=HEAD_BYTES_MAX)
            for name, listener in listeners.items()
        ]
        self._ready({name: _address(listener) for name, listener in listeners.items()})
        try:
            while not self._ended.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), STORE_S)
                check()
                await self._store(served, consumer)
        finally:
            for server in servers:
                server.close()
            http.end()
            for session in list(self._sessions):
                session.end()
            if self._sessions:
                await asyncio.wait(list(self._sessions.values()), timeout=STOP_S)
            await self._store(served, consumer)
            self._loop = None

    async def _store(self, served: ServedLog, consumer: Consumer) -> None:
        """Positions first, and then what retention may delete."""

        def store(clients: dict[Destination, dict[str, Subscribed]]) -> None:
            for one, known in clients.items():
                one.store_durably(known)
            offsets = [each.place.offset for known in clients.values() for each in known.values()]
            consumer.needs(min(offsets, default=served.end))

        try:
            snapshots = {one: one.snapshot() for one in self._destinations.values()}
            await asyncio.get_running_loop().run_in_executor(None, store, snapshots)
        except OSError as error:
            log.error("positions cannot be stored: %s", error)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._sessions) >= self._config.connections_max:
            writer.transport.abort()
            return
        _keep_alive(writer)
        session = Session(
            reader, writer, self._destinations, self._config.users, self._config.takeover_after / 1000
        )
        task = asyncio.current_task()
        assert task is not None
        self._sessions[session] = task
        try:
            await session.run()
        finally:
            del self._sessions[session]


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    idle, interval = KEEPALIVE_S
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ):
        connection.setsockopt(level, option, value)
    writer.transport.set_write_buffer_limits(high=WRITE_BYTES)


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
