"""Runs a subscription server: the receivers, the logs, the destinations and the listener. It only connects
them.

Everything but reading the log and storing positions durably runs in one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.errors import TransientError
from penstock.model.offset import Offset
from penstock.relaylog.consumers import Consumer
from penstock.serve.destination import Destination, Destinations
from penstock.serve.failover import Failover
from penstock.serve.leases.failover import StoreFailover
from penstock.serve.listeners.listeners import Listeners
from penstock.serve.log.served_log import ServedLog, mark_of
from penstock.serve.log.source_log import SourceLog
from penstock.serve.log.source_logs import SourceLogs
from penstock.serve.positions import InFiles, InMemory, Positions, Subscribed, make_folder
from penstock.serve.settings import ServerConfig

log = logging.getLogger(__name__)

STORE_S = 1.0
"""How often positions are stored where they survive a power loss."""
STOP_S = 5.0
"""How long the receiver may take to end."""


class Server:
    """A subscription server. `run` serves until `stop` is called, by any thread. `ready` is called with the
    addresses once clients can connect."""

    def __init__(self, config: ServerConfig, file: Path, ready: Callable[[dict[str, str]], None]) -> None:
        self._config = config
        self._file = file
        self._ready = ready
        self._stopping = threading.Event()
        self._ended: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._destinations = Destinations()
        self._failover: Failover | None = None

    def stop(self) -> None:
        self._stopping.set()
        if self._loop is not None and self._ended is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._ended.set)

    def run(self) -> None:
        """Serves until the process is asked to stop. Raises `PenstockError`."""
        with contextlib.ExitStack() as stack:
            listeners = Listeners(self._config)
            stack.callback(listeners.close)
            if self._config.positions.path is not None:
                make_folder(self._config.positions.path)
            self._failover = self._sharing(listeners.canal_address)
            if self._failover is not None:
                stack.callback(self._failover.close)
                self._failover.open()
            threads = ThreadPoolExecutor((os.cpu_count() or 1) + 1, thread_name_prefix="serve")
            logs = SourceLogs(self._config, self._file, stack, self._stopping, threads)
            try:
                logs.open(self._start_place)
            except TransientError:
                if self._stopping.is_set():
                    return
                raise
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            if self._failover is None:
                self._open(logs)
            for one in logs.all:
                stack.callback(self._register(one).close)
            asyncio.run(self._serve(listeners, logs))

    def _sharing(self, address: str) -> Failover | None:
        """How destinations are shared with other servers. None: this server is alone."""
        if self._config.zookeeper:
            from penstock.serve.zookeeper.failover import ZooKeeperFailover

            return ZooKeeperFailover(self._config, address)
        return StoreFailover(self._config, address) if self._config.positions.type == "store" else None

    def _start_place(self, source: str) -> str | None:
        return None if self._failover is None else self._failover.start_place(source)

    def _open(self, logs: SourceLogs) -> None:
        read = {name: logs.of(name) for name in self._config.destinations}
        positions: Positions = InMemory()
        if self._config.positions.type == "file":
            assert self._config.positions.path is not None
            positions = InFiles(self._config.positions.path, read)
        if any(one.served.was_restored for one in logs.all):  # places that readers keep may be of before
            self._destinations.mark = mark_of([one.served for one in logs.all])
        takeover = self._config.takeover_after / 1000
        for name, options in self._config.destinations.items():
            self._destinations[name] = Destination(name, options, read[name], positions, takeover)

    def _places(self) -> list[dict[ServedLog, Offset]]:
        """The offsets that clients go on from."""
        known = [*self._destinations.values(), *filter(None, self._destinations.stopped.values())]
        found = [each.log.needs(one.place) for each in known for one in each.clients.values()]
        return found if self._failover is None else [*found, *self._failover.needs()]

    def _register(self, log: SourceLog) -> Consumer:
        served = log.served
        if self._failover is not None:  # others may read the same log
            name = f"{self._config.name}-{self._failover.address.replace(':', '-').strip('[]')}"
            return log.register(name, served.start)
        needed = [one[served] for one in self._places() if served in one]
        return log.register(self._config.name, min(needed, default=served.end))

    # the event loop -----------------------------------------------------------------------------------------

    async def _serve(self, listeners: Listeners, logs: SourceLogs) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping.is_set():
            return
        for one in logs.all:
            one.follow(self._loop)
        addresses = await listeners.serve(self._destinations)
        if self._failover is not None:
            served = [one.served for one in logs.all]
            self._failover.join(served, self._destinations, logs.of)
        self._ready(addresses)
        try:
            while not self._ended.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), STORE_S)
                logs.check()
                await self._store(logs)
        finally:
            if self._failover is not None:
                await self._failover.leave()
            await listeners.end()
            await self._store(logs)
            self._loop = None

    async def _store(self, logs: SourceLogs) -> None:
        """Stores positions, and then lets retention delete log that they do not need."""

        def store(clients: dict[Destination, dict[str, Subscribed]]) -> None:
            for one, known in clients.items():
                one.store_durably(known)
            logs.keep(places)

        try:
            places = self._places()
            snapshots = {one: one.snapshot() for one in self._destinations.values()}
            await asyncio.get_running_loop().run_in_executor(None, store, snapshots)
        except OSError as error:
            log.error("positions cannot be stored: %s", error)
