"""A server and the others that share its destinations by leases in a store (`lease`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from penstock.model.offset import Offset
from penstock.serve.destination import Destinations
from penstock.serve.leases.document import Document, read
from penstock.serve.leases.keeper import Keeper
from penstock.serve.leases.lease import DestinationLease
from penstock.serve.log.destination_log import DestinationLog
from penstock.serve.log.served_log import ServedLog, mark_of
from penstock.serve.loop_host import Elsewhere, LoopHost
from penstock.serve.positions import Clients, Subscribed
from penstock.serve.settings import ServerConfig
from penstock.store.probe import check_conditions


class InStore:
    """`Positions`."""

    def __init__(self) -> None:
        self.keepers: dict[str, Keeper] = {}

    def load(self, destination: str) -> dict[str, Subscribed]:
        return self.keepers[destination].known

    def store(self, destination: str, clients: Clients, *, durable: bool) -> None:
        if not durable:
            self.keepers[destination].store(clients)

    async def settled(self, destination: str) -> None:
        await self.keepers[destination].settled()


class StoreFailover:
    """`failover.Failover`. `address`: where clients of Canal reach this server."""

    def __init__(self, config: ServerConfig, listening: str) -> None:
        self._config = config
        self.address = config.advertise or listening
        url = config.positions.store_url
        assert url is not None
        self._store = config.store.open(url)
        self._documents: dict[str, Document] = {}
        self._logs: list[ServedLog] = []
        self._positions = InStore()

    def open(self) -> None:
        """Checks the store. Raises `PenstockError`."""
        check_conditions(self._store)
        self._documents = {name: read(self._store, name)[1] for name in self._config.destinations}

    def close(self) -> None:
        pass

    def start_place(self, source: str) -> str | None:
        """The oldest place in a source's log that a client needs. None: no client needs any."""
        places = [
            client.places[source]
            for one in self._documents.values()
            for client in one.clients.values()
            if source in client.places
        ]
        return str(min(places, key=lambda one: one.position.order)) if places else None

    def needs(self) -> list[dict[ServedLog, Offset]]:
        """For each log, the place from which it must be kept for destinations that other servers serve: its
        beginning while their needs are not known."""
        found = []
        for name, one in self._positions.keepers.items():
            needed = one.needs
            logs = self._logs_of(name).values()
            found.append({log: log.start for log in logs} if needed is None else needed)
        return found or [{log: log.start for log in self._logs}]

    def _logs_of(self, destination: str) -> dict[str, ServedLog]:
        known = dict(zip(self._config.logs, self._logs, strict=True))
        return {name: known[name] for name in self._config.sources_of(destination)}

    # in the event loop --------------------------------------------------------------------------------------

    def join(
        self, logs: list[ServedLog], destinations: Destinations, log_of: Callable[[str], DestinationLog]
    ) -> None:
        """Begins to take destinations over and to give them up. `log_of`: what a destination reads."""
        self._logs = logs
        loop = asyncio.get_running_loop()
        host = LoopHost(loop, self._config, destinations, self._positions, log_of)
        positions = self._config.positions
        timeout_s = positions.lease_timeout / 1000
        for name in self._config.destinations:
            self._positions.keepers[name] = Keeper(
                name, DestinationLease(self._store, name, self.address, timeout_s), self._logs_of(name),
                log_of(name), host, timeout_s=timeout_s, interval_s=positions.interval / 1000,
            )  # fmt: skip
        destinations.shared = True
        destinations.mark = mark_of(logs)
        destinations.elsewhere = Elsewhere(self._running, set(self._config.destinations), self.address)
        for one in self._positions.keepers.values():
            one.start()

    def _running(self) -> Mapping[str, str]:
        return {name: one.address for name, one in self._positions.keepers.items() if one.address}

    async def leave(self) -> None:
        """Gives all destinations up, so that other servers take over at once."""
        keepers = list(self._positions.keepers.values())
        for one in keepers:
            one.ask_to_stop()
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, one.join) for one in keepers))
