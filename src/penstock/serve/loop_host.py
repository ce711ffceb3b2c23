"""The destinations of a server whose destinations come and go: for the threads that decide about that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as NotDone
from typing import Any, TypeVar

from penstock.errors import PenstockError
from penstock.serve.destination import Destination, Destinations
from penstock.serve.log.destination_log import DestinationLog
from penstock.serve.positions import Positions, Subscribed
from penstock.serve.settings import ServerConfig

CALL_S = 10.0
"""How long the event loop may take for a call of another thread."""

Result = TypeVar("Result")


class Elsewhere(dict[str, str]):
    """For destinations that this server does not serve, the answers to their clients. `running`: the
    addresses of the servers that serve them, as far as they are known."""

    def __init__(self, running: Callable[[], Mapping[str, str]], names: set[str], address: str) -> None:
        super().__init__()
        self._running = running
        self._names = names
        self._address = address

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __getitem__(self, name: str) -> str:
        address = self._running().get(name)
        if address in (None, self._address):  # the entry of this one, before it was started again
            return f"no server serves {name} yet; try again"
        return f"{name} is served by {address}"


class LoopHost:
    """Its methods are called by other threads, and do their work in the event loop. Each returns when it is
    done. `log_of`: what a destination reads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        destinations: Destinations,
        positions: Positions,
        log_of: Callable[[str], DestinationLog],
    ) -> None:
        self._loop = loop
        self._config = config
        self._destinations = destinations
        self._positions = positions
        self._log_of = log_of

    def enter(
        self, name: str, generation: int, alive: Callable[[], bool], unplaced: Mapping[str, str]
    ) -> None:
        """Serves a destination. `unplaced`: clients that cannot go on yet, and why."""

        def enter() -> None:
            self._destinations[name] = Destination(
                name, self._config.destinations[name], self._log_of(name), self._positions,
                self._config.takeover_after / 1000, alive=alive, unplaced=unplaced, generation=generation,
            )  # fmt: skip

        self._call(enter)

    def stopped(self, name: str) -> bool:
        """Whether an operator wants this server not to serve it."""
        return name in self._destinations.stopped

    def place(self, name: str, client_id: str, client: Subscribed) -> None:
        """Gives a client its place, so that it can continue."""

        def place() -> None:
            if name in self._destinations:
                self._destinations[name].place(client_id, client)

        self._call(place)

    def leave(self, name: str) -> None:
        """Ends the connections of its clients."""

        def leave() -> None:
            if name in self._destinations:
                one = self._destinations.pop(name)
                one.close()
                one.store()
                one.store_durably(one.clients)  # what `period` has not written yet

        self._call(leave)

    def report(self, name: str) -> dict[str, Any]:
        return self._call(lambda: self._destinations[name].report() if name in self._destinations else {})

    def serving(self) -> int:
        """How many destinations this server serves."""
        return len(self._destinations)

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
