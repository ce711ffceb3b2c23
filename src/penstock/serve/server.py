"""Runs a subscription server: the receiver, the log, the destinations and the listener. It only connects
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
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.serve.destination import Destination, Destinations
from penstock.serve.listeners import Listeners
from penstock.serve.log import ServedLog, wait_until
from penstock.serve.positions import InFiles, InMemory, Positions, Subscribed, make_folder
from penstock.serve.settings import ServerConfig
from penstock.serve.tails import Tails
from penstock.serve.zookeeper.failover import Failover
from penstock.sources.supervisor import Supervisor

log = logging.getLogger(__name__)

STORE_S = 1.0
"""How often positions are stored where they survive a power loss."""
STOP_S = 5.0
"""How long the receiver may take to end."""


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
        self._destinations = Destinations()
        self._failover: Failover | None = None

    def stop(self) -> None:
        self._stopping.set()
        if self._loop is not None and self._ended is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._ended.set)

    def run(self) -> None:
        """Raises `PenstockError`."""
        with contextlib.ExitStack() as stack:
            listeners = Listeners(self._config)
            stack.callback(listeners.close)
            if self._config.positions.path is not None:
                make_folder(self._config.positions.path)
            if self._config.zookeeper:
                self._failover = Failover(self._config, listeners.canal_address)
                stack.callback(self._failover.close)
                self._failover.open()
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
            tails = Tails(served)
            stack.callback(tails.stop)
            served.needed = self._needed
            if self._failover is None:
                self._open(served, tails, threads)
            consumer = self._consumer(served)
            stack.callback(consumer.close)
            asyncio.run(self._serve(listeners, served, tails, consumer, check, threads))

    def _receiver(self) -> Supervisor | None:
        if self._config.source is None:
            return None
        path = self._config.relay_log.path
        assert path is not None
        start = None
        if self._failover is not None and not RelayLog.exists(path):
            start = self._failover.oldest_file()
        return Supervisor(self._file, path, start_file=start)

    def _served(self, check: Callable[[], None]) -> ServedLog:
        seconds = self._config.relay_log.catch_up_timeout / 1000
        wait = wait_until(check, self._stopping, seconds)
        place = LogPlace.of(self._config.pipeline).or_archive
        wait(lambda: RelayLog.exists(place), f"the relay log in {place}")
        served = ServedLog.of(self._config)
        served.begin(wait)
        return served

    def _open(self, served: ServedLog, tails: Tails, threads: ThreadPoolExecutor) -> None:
        positions: Positions = InMemory()
        if self._config.positions.type == "file":
            assert self._config.positions.path is not None
            positions = InFiles(self._config.positions.path, served.id)
        takeover = self._config.takeover_after / 1000
        for name, options in self._config.destinations.items():
            self._destinations[name] = Destination(name, options, served, positions, tails, threads, takeover)

    def _needed(self) -> Offset | None:
        """The oldest offset that a client may read from; None: as far as the log goes back."""
        if any(one.start.at != "latest" for one in self._config.destinations.values()):
            return None
        return min(self._places(), default=None)

    def _places(self) -> list[Offset]:
        """The offsets that clients go on from."""
        known = [*self._destinations.values(), *filter(None, self._destinations.stopped.values())]
        found = [one.place.offset for each in known for one in each.clients.values()]
        needs = None if self._failover is None else self._failover.needs
        return found if needs is None else [*found, needs]

    def _consumer(self, served: ServedLog) -> Consumer:
        path = self._config.relay_log.path
        assert path is not None
        if self._failover is not None:  # others may read the same log
            name = f"{self._config.name}-{self._failover.address.replace(':', '-').strip('[]')}"
            return Consumer(path, name, needs=served.start)
        return Consumer(path, self._config.name, needs=min(self._places(), default=served.end))

    # the event loop -----------------------------------------------------------------------------------------

    async def _serve(
        self,
        listeners: Listeners,
        served: ServedLog,
        tails: Tails,
        consumer: Consumer,
        check: Callable[[], None],
        threads: ThreadPoolExecutor,
    ) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping.is_set():
            return
        tails.begin(self._loop)
        served.start_following(tails.advance)
        addresses = await listeners.serve(self._destinations)
        if self._failover is not None:
            self._failover.join(served, self._destinations, tails, threads)
        self._ready(addresses)
        try:
            while not self._ended.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), STORE_S)
                check()
                await self._store(served, consumer)
        finally:
            if self._failover is not None:
                await self._failover.leave()
            await listeners.end()
            await self._store(served, consumer)
            self._loop = None

    async def _store(self, served: ServedLog, consumer: Consumer) -> None:
        """Positions first, and then what retention may delete."""

        def store(clients: dict[Destination, dict[str, Subscribed]]) -> None:
            for one, known in clients.items():
                one.store_durably(known)
            consumer.needs(min(places, default=served.end))

        try:
            places = self._places()
            snapshots = {one: one.snapshot() for one in self._destinations.values()}
            await asyncio.get_running_loop().run_in_executor(None, store, snapshots)
        except OSError as error:
            log.error("positions cannot be stored: %s", error)
