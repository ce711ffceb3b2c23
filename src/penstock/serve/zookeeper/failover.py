"""A server and the others that share its destinations: connects the thread of the cluster with the event
loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.serve.destination import Destinations
from penstock.serve.log.destination_log import DestinationLog
from penstock.serve.log.served_log import ServedLog, mark_of
from penstock.serve.loop_host import Elsewhere, LoopHost
from penstock.serve.settings import ServerConfig
from penstock.serve.zookeeper import stored
from penstock.serve.zookeeper.cluster import Cluster
from penstock.serve.zookeeper.connection import ZooKeeper
from penstock.serve.zookeeper.positions import InZooKeeper

CONNECT_S = 15.0
"""How long the first connection to ZooKeeper may take."""


class ZooKeeperFailover:
    """`failover.Failover`. `address`: where clients of Canal reach this server."""

    def __init__(self, config: ServerConfig, listening: str) -> None:
        self._config = config
        self._zookeeper = ZooKeeper(config.zookeeper, config.zookeeper_timeout / 1000)
        self.address = config.advertise or listening
        self._cluster: Cluster | None = None
        self._served: ServedLog | None = None
        self._positions: InZooKeeper | None = None

    def open(self) -> None:
        """Connects to ZooKeeper. Raises `PenstockError`."""
        self._zookeeper.start(CONNECT_S)

    def close(self) -> None:
        if self._positions is not None:
            self._positions.close()
        self._zookeeper.close()

    def start_place(self, _source: str) -> str | None:
        """The oldest place in the source's log that a client needs. Raises `PenstockError`."""
        return stored.oldest_place(self._zookeeper, self._config.destinations)

    def needs(self) -> list[dict[ServedLog, Offset]]:
        """For each log, the place from which it must be kept for destinations that other servers serve."""
        needs = None if self._cluster is None else self._cluster.needs
        return [] if needs is None or self._served is None else [{self._served: needs}]

    # in the event loop --------------------------------------------------------------------------------------

    def join(
        self, logs: list[ServedLog], destinations: Destinations, log_of: Callable[[str], DestinationLog]
    ) -> None:
        """Begins to take destinations over and to give them up. `log_of`: what a destination reads."""
        [served] = logs
        if not served.has_canals_places:
            raise ConfigError(
                "`zookeeper` stores positions as Canal does, by file and position of MySQL's log. The log of "
                "this source has none.",
                hint="Share destinations by `positions: {type: store}`.",
            )
        self._served = served
        kind = self._config.positions.type
        assert kind != "store"
        self._positions = InZooKeeper(
            self._zookeeper, "zookeeper" if kind == "file" else kind, self._source, served.source_place
        )
        self._host = LoopHost(asyncio.get_running_loop(), self._config, destinations, self._positions, log_of)
        about = {"name": self._config.name, "since": time.time(), "http": self._config.addresses.get("http")}
        names = list(self._config.destinations)
        cluster = self._cluster = Cluster(
            self._zookeeper, self.address, names, served, self._positions, self._host, about
        )
        destinations.shared = True
        destinations.mark = mark_of([served])
        destinations.elsewhere = Elsewhere(lambda: cluster.running, set(names), self.address)
        self._cluster.start()

    @property
    def _source(self) -> tuple[str, int]:
        source = self._config.source
        return str(getattr(source, "host", "")), int(getattr(source, "port", 0))

    async def leave(self) -> None:
        """Gives all destinations up, so that other servers take over at once."""
        if self._cluster is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._cluster.close)
