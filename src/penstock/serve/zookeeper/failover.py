"""A server and the others that share its destinations: connects the thread of the cluster with the event
loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from concurrent.futures import TimeoutError as NotDone
from typing import Any, TypeVar

from penstock.errors import PenstockError
from penstock.model.offset import Offset
from penstock.serve.destination import Destination, Destinations
from penstock.serve.log import ServedLog
from penstock.serve.positions import Subscribed
from penstock.serve.settings import ServerConfig
from penstock.serve.tails import Tails
from penstock.serve.zookeeper import stored
from penstock.serve.zookeeper.cluster import Cluster
from penstock.serve.zookeeper.connection import ZooKeeper
from penstock.serve.zookeeper.positions import InZooKeeper

CONNECT_S = 15.0
"""How long the first connection to ZooKeeper may take."""
CALL_S = 10.0
"""How long the event loop may take for a call of the cluster's thread."""

Result = TypeVar("Result")


class Failover:
    """`address`: where clients of Canal reach this server."""

    def __init__(self, config: ServerConfig, listening: str) -> None:
        self._config = config
        self._zookeeper = ZooKeeper(config.zookeeper, config.zookeeper_timeout / 1000)
        self.address = config.advertise or listening
        self._cluster: Cluster | None = None
        self._positions: InZooKeeper | None = None

    def open(self) -> None:
        """Raises `PenstockError`."""
        self._zookeeper.start(CONNECT_S)

    def close(self) -> None:
        if self._positions is not None:
            self._positions.close()
        self._zookeeper.close()

    def oldest_file(self) -> str | None:
        """The oldest file of the source's log that a client needs. Raises `PenstockError`."""
        return stored.oldest_file(self._zookeeper, self._config.destinations)

    @property
    def needs(self) -> Offset | None:
        """The log behind this is needed. None: nothing is, for destinations of others."""
        return None if self._cluster is None else self._cluster.needs

    # in the event loop --------------------------------------------------------------------------------------

    def join(self, served: ServedLog, destinations: Destinations, tails: Tails, threads: Executor) -> None:
        """From now on, destinations come and go."""
        kind = self._config.positions.type
        self._positions = InZooKeeper(
            self._zookeeper, "zookeeper" if kind == "file" else kind, self._source, served.source_place
        )
        self._host = LoopHost(
            asyncio.get_running_loop(), self._config, served, destinations, self._positions, tails, threads
        )
        about = {"name": self._config.name, "since": time.time(), "http": self._config.listen.http}
        names = list(self._config.destinations)
        self._cluster = Cluster(
            self._zookeeper, self.address, names, served, self._positions, self._host, about
        )
        destinations.shared = True
        destinations.mark = served.id[:8]
        destinations.elsewhere = _Elsewhere(self._cluster, self._config, self.address)
        self._cluster.start()

    @property
    def _source(self) -> tuple[str, int]:
        source = self._config.source
        return str(getattr(source, "host", "")), int(getattr(source, "port", 0))

    async def leave(self) -> None:
        """Gives all destinations up, so that other servers take over at once."""
        if self._cluster is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._cluster.close)


class _Elsewhere(dict[str, str]):
    """What clients of a destination are told that this server does not serve."""

    def __init__(self, cluster: Cluster, config: ServerConfig, address: str) -> None:
        super().__init__()
        self._cluster = cluster
        self._names = set(config.destinations)
        self._address = address

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __getitem__(self, name: str) -> str:
        address = self._cluster.running.get(name)
        if address in (None, self._address):  # the node of this one, before it was started again
            return f"no server serves {name} yet; try again"
        return f"{name} is served by {address}"


class LoopHost:
    """`cluster.Host`. Its methods are called by the cluster's thread, and do their work in the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        served: ServedLog,
        destinations: Destinations,
        positions: InZooKeeper,
        tails: Tails,
        threads: Executor,
    ) -> None:
        self._loop = loop
        self._config = config
        self._served = served
        self._destinations = destinations
        self._positions = positions
        self._tails = tails
        self._threads = threads

    def enter(
        self, name: str, generation: int, alive: Callable[[], bool], unplaced: Mapping[str, str]
    ) -> None:
        def enter() -> None:
            self._destinations[name] = Destination(
                name, self._config.destinations[name], self._served, self._positions, self._tails,
                self._threads, self._config.takeover_after / 1000, alive=alive, unplaced=unplaced,
                generation=generation,
            )  # fmt: skip

        self._call(enter)

    def stopped(self, name: str) -> bool:
        return name in self._destinations.stopped

    def place(self, name: str, client_id: str, client: Subscribed) -> None:
        def place() -> None:
            if name in self._destinations:
                self._destinations[name].place(client_id, client)

        self._call(place)

    def leave(self, name: str) -> None:
        def leave() -> None:
            if name in self._destinations:
                one = self._destinations.pop(name)
                one.close()
                one.store()
                one.store_durably(one.clients)  # what `period` has not written yet

        self._call(leave)

    def report(self, name: str) -> dict[str, Any]:
        return self._call(lambda: self._destinations[name].report() if name in self._destinations else {})

    def _call(self, work: Callable[[], Result]) -> Result:
        async def called() -> Result:
            return work()

        pending = called()
        try:
            future = asyncio.run_coroutine_threadsafe(pending, self._loop)
        except RuntimeError:
            pending.close()
            raise PenstockError("The server has ended.") from None
        try:
            return future.result(CALL_S)
        except NotDone:
            future.cancel()
            raise PenstockError("The event loop does not answer.") from None
