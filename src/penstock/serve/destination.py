"""The destinations of a server, with the subscriptions of their clients."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import ConfigError
from penstock.serve.batches import AnyPlace, parse_place
from penstock.serve.log.destination_log import AnyReader, DestinationLog
from penstock.serve.log.view import EntryFormat, View
from penstock.serve.positions import Positions, Subscribed
from penstock.serve.settings import DestinationSection
from penstock.serve.subscription import NotYet, Refused, Subscription
from penstock.sources.log_start import LogStart

log = logging.getLogger(__name__)

CLIENTS_MAX = 1000
"""Client ids of one destination. Each costs a line in its file, and a place up to which the log is kept."""
BATCHES_MAX = 1_000_000_000
"""Batches that one server gives to a client before another one serves it. Numbers may have 63 bits."""
OF_ARROW = "arrow:"
"""Prefix of the ids of clients that get one table with typed columns."""
OF_FLIGHT = "flight:"
"""Prefix of the ids of clients that get rows as JSON. They are not those of Canal's clients: a place inside
of a transaction counts other entries."""
CERTAIN_S = 3.0
"""How long a request waits until it is certain again that no other server has taken over. A machine that is
busy for a second makes it uncertain. A session of the default time has ended by then."""
CERTAIN_POLL_S = 0.02
"""Seconds between two looks in that time. A look costs nothing but a switch of tasks."""
_CLIENT_ID = re.compile(r"^(?!running$|cluster$|parser?$|\.+$)[A-Za-z0-9._-]{1,64}$")
"""Ids of clients. Names that mean something else in the same folder of ZooKeeper are excluded."""


class Destinations(dict[str, "Destination"]):
    """The destinations that this server serves. `elsewhere`: the answers to clients of the others in its
    file. `stopped`: those that an operator has stopped. `shared`: other servers may serve them, too, and they
    are taken over and given up without an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: Mapping[str, str] = {}
        self.stopped: dict[str, Destination | None] = {}
        self.shared = False
        self.mark = ""
        """A mark of the relay log. With other servers, it is part of the places that readers keep themselves:
        in the log of another server they mean something else."""

    def text_of(self, place: AnyPlace) -> str:
        return f"{place}@{self.mark}" if self.mark else str(place)

    def place_of(self, text: str) -> AnyPlace:
        """The place that a text names. Raises `ValueError` if it names none, and `Refused` for a place of
        another server."""
        place, _, mark = text.partition("@")
        if mark != self.mark:
            raise Refused(
                f"the place {text[:64]!r} is not one of this server's relay log; begin at a `start`, or use "
                "a client id, whose place all servers know"
            )
        return parse_place(place)

    def stop(self, name: str) -> None:
        """Ends the connections of a destination's clients, and refuses new ones until `start`. Raises
        `KeyError`."""
        if name in self.stopped:
            return
        if self.shared:
            if name not in self and name not in self.elsewhere:
                raise KeyError(name)
            self.stopped[name] = None
            return
        one = self.pop(name)
        self.stopped[name] = one
        one.close()

    def start(self, name: str) -> None:
        """Serves a stopped destination again. Raises `KeyError`."""
        if name in self or (self.shared and name not in self.stopped and name in self.elsewhere):
            return
        one = self.stopped.pop(name)
        if one is not None:
            one.open()
            self[name] = one

    def absent(self, name: str) -> str | None:
        """The answer to clients of a destination that is not served here now. None: it does not exist."""
        if name in self.elsewhere:
            return self.elsewhere[name]
        return f"{name} was stopped by an operator" if name in self.stopped else None

    def states(self) -> dict[str, str]:
        names = sorted({*self, *self.stopped, *self.elsewhere})
        return {
            name: "running" if name in self else "stopped" if name in self.stopped else self.elsewhere[name]
            for name in names
        }


class Destination:
    """A destination that this server serves. Used in the event loop, except `store`."""

    def __init__(
        self,
        name: str,
        options: DestinationSection,
        log: DestinationLog,
        positions: Positions,
        takeover_seconds: float,
        *,
        alive: Callable[[], bool] = lambda: True,
        unplaced: Mapping[str, str] | None = None,
        generation: int = 0,
    ) -> None:
        """`alive`: whether it is certain that this server serves it. `unplaced`: clients that cannot go on
        yet, and why. `generation`: how often another server has begun to serve it; a batch of one has no
        number of another. Raises `ConfigError` if the stored positions cannot be used."""
        self.name = name
        self.options = options
        self.log = log
        self._positions = positions
        self._alive: Callable[[], bool] | None = alive
        self._unplaced = dict(unplaced or {})
        self._given = generation * BATCHES_MAX
        self.takeover_seconds = takeover_seconds
        self._stored: dict[str, Subscribed] = {}
        self._safe: dict[str, Subscribed] | None = None
        self.subscriptions: dict[str, Subscription] = {}
        for client_id, client in positions.load(name).items():
            if not log.reaches(client.place):
                raise ConfigError(
                    f"The client {client_id} of the destination {name} has acknowledged more than the relay "
                    "log has: an older copy of the log is here.",
                    hint="Bring back the newer relay log, or remove the destination's file of positions.",
                )
            self.subscriptions[client_id] = self._subscription(client_id, client)

    def _subscription(self, client_id: str, client: Subscribed) -> Subscription:
        return Subscription(
            self.log, self.options, client, stored=self.store,
            format=_format_of(client_id), served=self.served,
            given=self._given,
        )  # fmt: skip

    async def served(self) -> None:
        """Returns when it is certain that no other server serves it. Raises `NotYet` if that takes too
        long, or one does. To be awaited before each request."""
        deadline = time.monotonic() + CERTAIN_S
        while self._alive is None or not self._alive():
            if self._alive is None or time.monotonic() > deadline:
                raise NotYet(
                    f"{self.name} is not served here any more: another server may have taken it over"
                )
            await asyncio.sleep(CERTAIN_POLL_S)

    def place(self, client_id: str, client: Subscribed) -> None:
        """Gives a place to a client that could not go on, and can do so now."""
        self._unplaced.pop(client_id, None)
        self.subscriptions.setdefault(client_id, self._subscription(client_id, client))

    def close(self) -> None:
        """Ends the connections of the destination's clients: another server serves it from now on."""
        self._alive = None
        for one in self.subscriptions.values():
            if one.owner is not None:
                one.owner.dismiss()

    def open(self) -> None:
        """Serves it again after `close`."""
        self._alive = lambda: True

    async def settled(self) -> None:
        """Returns once what clients have acknowledged is stored. Raises `PenstockError`."""
        await self._positions.settled(self.name)

    def reader(self, filter: str, start: AnyPlace | LogStart, format: EntryFormat) -> AnyReader:
        """A reader for a client that remembers its own place. Raises `BadFilter`, `ConfigError` and
        `Refused`."""
        tables = self.options.tables.narrowed(filter)
        if isinstance(start, LogStart):
            place = self.log.begin(start)
        elif self.log.has(start):
            place = start
        else:
            raise Refused(f"the relay log does not have the place {start} (any more)")
        return self.log.reader(View.of(self.options, tables, format), place)

    def existing(self, client_id: str) -> Subscription:
        """The subscription of a client that has one. Raises `Refused`."""
        found = self.subscriptions.get(client_id)
        if found is None:
            self._refuse_unplaced(client_id)
            raise Refused(f"client {client_id[:64]!r} should subscribe to {self.name} first")
        return found

    def subscribed(self, client_id: str) -> Subscription:
        """The subscription of a client, which begins now if there is none. Raises `Refused` and
        `ConfigError`."""
        found = self.subscriptions.get(client_id)
        if found is None:
            self._refuse_unplaced(client_id)
            if not _CLIENT_ID.match(client_id.removeprefix(OF_FLIGHT).removeprefix(OF_ARROW)):
                raise Refused("a client's id has letters, digits, dots and dashes, at most 64")
            if len(self.subscriptions) >= CLIENTS_MAX:
                raise Refused(f"{self.name} has {CLIENTS_MAX} clients already")
            place = self.log.begin(self.options.start)
            found = self.subscriptions[client_id] = self._subscription(client_id, Subscribed(place))
            self.store()
        return found

    def _refuse_unplaced(self, client_id: str) -> None:
        if client_id in self._unplaced:
            raise NotYet(self._unplaced[client_id])

    def unsubscribe(self, client_id: str) -> None:
        """Forgets what the client has acknowledged."""
        self.subscriptions.pop(client_id, None)
        self.store()

    def store(self) -> None:
        """Stores the positions of the clients. They may not survive a power loss. Raises `OSError`."""
        self._stored = self.clients
        self._positions.store(self.name, self._stored, durable=False)

    def snapshot(self) -> dict[str, Subscribed]:
        """Stores what the clients have acknowledged, and returns it. Raises `OSError`."""
        if self.clients != self._stored:
            self.store()
        return self._stored

    def store_durably(self, clients: dict[str, Subscribed]) -> None:
        """Stores a snapshot so that it survives a power loss. Called by a thread. Raises `OSError`."""
        if clients != self._safe:
            self._positions.store(self.name, clients, durable=True)
            self._safe = clients

    @property
    def clients(self) -> dict[str, Subscribed]:
        return {name: one.client for name, one in list(self.subscriptions.items())}

    def report(self) -> dict[str, Any]:
        return {
            "filter": self.options.filter,
            "clients": {
                client_id: {
                    **self.log.acknowledged(one.client.place),
                    **one.behind(),
                    "outstanding": len(one.outstanding),
                    "address": one.owner.address if one.owner is not None else None,
                    "filter": one.client.filter,
                }
                for client_id, one in self.subscriptions.items()
            },
        }


def _format_of(client_id: str) -> EntryFormat:
    if client_id.startswith(OF_ARROW):
        return "arrow"
    return "json" if client_id.startswith(OF_FLIGHT) else "canal-entry"
