"""The protocol by which a server shares its destinations with other servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.model.offset import Offset
from penstock.serve.destination import Destinations
from penstock.serve.log.destination_log import DestinationLog
from penstock.serve.log.served_log import ServedLog


class Failover(Protocol):
    address: str
    """Where clients of Canal reach this server."""

    def open(self) -> None:
        """Connects to what the servers share. Raises `PenstockError`."""

    def close(self) -> None: ...

    def start_place(self, source: str, /) -> str | None:
        """The oldest place in a source's log that a client needs. Raises `PenstockError`."""

    def needs(self) -> list[dict[ServedLog, Offset]]:
        """For each log, the place from which it must be kept for destinations that other servers serve."""

    def join(
        self, logs: list[ServedLog], destinations: Destinations, log_of: Callable[[str], DestinationLog], /
    ) -> None:
        """Begins to take destinations over and to give them up. `log_of`: what a destination reads. Called in
        the event loop."""

    async def leave(self) -> None:
        """Gives all destinations up, so that other servers take over at once."""
