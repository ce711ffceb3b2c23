"""Serves one destination whenever no other server does, and stores its positions in the lease (`lease`).

One thread does that. What clients acknowledge while it waits for the store is written together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from penstock.errors import PenstockError, TransientError
from penstock.model.offset import Offset
from penstock.serve.batches import AnyPlace, Place
from penstock.serve.leases.document import Document, StoredClient
from penstock.serve.leases.lease import DestinationLease
from penstock.serve.log.destination_log import DestinationLog
from penstock.serve.log.served_log import ServedLog
from penstock.serve.positions import Replaced, Subscribed
from penstock.serve.source_places import NotReached, SourcePlace

log = logging.getLogger(__name__)

LOOKS = 10
"""How often a lease is looked at within the time after which it is free."""
PLACE_S = 2.0
"""How often it is tried to place clients that could not go on."""
RETRY_S = 0.3
"""Pause behind an error of the store."""
SETTLE_S = 10.0
"""How long the answer to a client waits until its acknowledgement is stored."""
UNREADY_S = 5.0
"""How long a server waits whose log has not reached what the clients have acknowledged, if another one may
have it."""
LOADED_S, LOADED_MAX_S = 0.3, 2.0
"""How long a server waits for each destination that it serves already, and at most, so that they are
spread."""


class Host(Protocol):
    """The server, as the thread sees it."""

    def enter(
        self, name: str, generation: int, alive: Callable[[], bool], unplaced: Mapping[str, str], /
    ) -> None: ...

    def stopped(self, name: str, /) -> bool: ...

    def place(self, name: str, client_id: str, client: Subscribed, /) -> None: ...

    def leave(self, name: str, /) -> None: ...

    def serving(self) -> int: ...


class Keeper:
    """Keeps the lease of one destination, and stores its positions. `logs`: the destination's, by the names
    of their sources. `interval_s`: how often positions are written at most; 0: before the client gets its
    next answer."""

    def __init__(
        self,
        name: str,
        lease: DestinationLease,
        logs: Mapping[str, ServedLog],
        destination_log: DestinationLog,
        host: Host,
        *,
        timeout_s: float,
        interval_s: float,
    ) -> None:
        self.name = name
        self._lease = lease
        self._logs = logs
        self._log = destination_log
        self._host = host
        self._timeout_s, self._interval_s = timeout_s, interval_s
        self._changed = threading.Condition()
        self._stopping = False
        self._serving = False
        self._clients: dict[str, Subscribed] = {}
        self._asked = self._written = 0
        """Numbers of the newest positions, and of those that are stored."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._ended: PenstockError | None = None
        self._unplaced: dict[str, StoredClient] = {}
        self._encoded: dict[str, tuple[Subscribed, StoredClient]] = {}
        self._free_since: float | None = None
        self._wrote = self._placed_at = 0.0
        self.address = ""
        """The server that serves it, as far as that is known; empty: none."""
        self.needs: dict[ServedLog, Offset] | None = None
        """For each log, the place from which its clients need it while another server serves it. None: not
        known."""
        self._thread = threading.Thread(target=self._run, name=f"lease-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def join(self) -> None:
        self._thread.join(SETTLE_S)

    # positions, in the event loop ---------------------------------------------------------------------------

    @property
    def known(self) -> dict[str, Subscribed]:
        """The positions that were stored when this server began to serve."""
        return dict(self._clients)

    def store(self, clients: Mapping[str, Subscribed]) -> None:
        with self._changed:
            if self._clients != clients:
                self._clients = dict(clients)
                self._asked += 1
                self._changed.notify_all()

    async def settled(self) -> None:
        """Returns once the positions that `store` got before would survive this server. Raises
        `PenstockError`."""
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._ended is not None:
                raise Replaced(self._ended.message)
            if self._interval_s or self._written >= self._asked:
                return
            future = loop.create_future()
            self._waiting.append((self._asked, future))
        try:
            await asyncio.wait_for(future, SETTLE_S)
        except asyncio.TimeoutError:
            raise TransientError("positions cannot be stored: the store does not answer") from None

    def _settle(self) -> None:
        """Wakes the calls of `settled` whose positions are stored now; all of them if the lease has ended."""
        with self._changed:
            done = [one for one in self._waiting if one[0] <= self._written or self._ended is not None]
            self._waiting = [one for one in self._waiting if one not in done]
            ended = self._ended
        for _, future in done:
            try:
                future.get_loop().call_soon_threadsafe(_finish, future, ended)
            except RuntimeError:  # the loop has just ended
                return

    # the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        said = ""
        while not self._stopping:
            pause = 0.0
            try:
                self._hold() if self._serving else self._watch()
                said = ""
            except (PenstockError, OSError) as error:
                if str(error) != said:
                    log.warning("%s: %s", self.name, error)
                said, pause = str(error), RETRY_S
            except Exception:  # a bug must not end the thread silently
                log.exception("%s cannot be kept", self.name)
                pause = RETRY_S
            self._wait(pause)
        if self._serving:
            try:
                self._hand_over()
            except (PenstockError, OSError) as error:
                log.warning("%s was not given up in order: %s", self.name, error)

    def _wait(self, pause: float) -> None:
        with self._changed:
            if pause or not self._serving:
                self._changed.wait_for(lambda: self._stopping, pause or self._timeout_s / LOOKS)
                return
            self._changed.wait_for(
                lambda: self._stopping or self._is_pending or self._host.stopped(self.name),
                self._timeout_s / LOOKS,
            )

    @property
    def _is_pending(self) -> bool:
        return self._written < self._asked and time.monotonic() - self._wrote >= self._interval_s

    def _watch(self) -> None:
        found = self._lease.read()
        placed, unplaced = self._place_all(found)
        self.needs = self._needed(placed)
        free = self._lease.is_free
        self.address = "" if free else found.address
        if self._host.stopped(self.name) or not free:
            self._free_since = None
            return
        now = time.monotonic()
        self._free_since = self._free_since or now
        waits = min(LOADED_S * self._host.serving(), LOADED_MAX_S) + (UNREADY_S if unplaced else 0.0)
        if now - self._free_since >= waits:
            self._begin(found, placed, unplaced)

    def _needed(self, placed: Mapping[str, Subscribed]) -> dict[ServedLog, Offset]:
        needed: dict[ServedLog, Offset] = {}
        for one in placed.values():
            for served, offset in self._log.needs(one.place).items():
                needed[served] = min(offset, needed.get(served, offset))
        return needed

    def _begin(
        self, found: Document, placed: dict[str, Subscribed], unplaced: dict[str, tuple[StoredClient, str]]
    ) -> None:
        generation = self._lease.take(found)
        self._free_since = None
        if generation is None:
            return
        with self._changed:
            self._clients, self._ended = placed, None
            self._asked = self._written = 0
        self._unplaced = {name: client for name, (client, _) in unplaced.items()}
        self._serving = True
        try:
            whys = {name: why for name, (_, why) in unplaced.items()}
            self._host.enter(self.name, generation, partial(self._lease.alive, generation), whys)
        except PenstockError:
            self._drop()
            raise
        log.info("serving %s (generation %d)", self.name, generation)

    def _hold(self) -> None:
        if self._host.stopped(self.name):
            self._hand_over()
            return
        if self._is_pending or self._lease.is_due:
            try:
                self._write()
            except Replaced as error:
                log.warning("%s", error)
                self._drop(error)
                return
        if self._unplaced and time.monotonic() > self._placed_at + PLACE_S:
            self._placed_at = time.monotonic()
            self._place_rest()

    def _write(self, *, stopped: bool = False) -> None:
        with self._changed:
            clients, number = dict(self._clients), self._asked
        stored = {name: one for name, one in self._unplaced.items() if name not in clients}
        for name, client in clients.items():
            known = self._encoded.get(name)
            if known is None or known[0] != client:
                known = self._encoded[name] = client, StoredClient(self._source_places(client), client.filter)
            stored[name] = known[1]
        self._encoded = {name: one for name, one in self._encoded.items() if name in clients}
        self._lease.store_clients(stored, stopped=stopped)
        self._written, self._wrote = number, time.monotonic()
        self._settle()

    def _hand_over(self) -> None:
        self._host.leave(self.name)
        try:
            self._write(stopped=True)
        finally:
            self._drop(left=True)

    def _drop(self, error: PenstockError | None = None, *, left: bool = False) -> None:
        """Stops serving a destination: another server may serve it already."""
        self._serving = False
        self._lease.drop()
        with self._changed:
            self._ended = error or Replaced(f"{self.name} is not served here any more.")
        self._settle()
        if not left:
            self._host.leave(self.name)

    # places -------------------------------------------------------------------------------------------------

    def _place_all(
        self, found: Document
    ) -> tuple[dict[str, Subscribed], dict[str, tuple[StoredClient, str]]]:
        """The clients that can continue at this server, and for each of the others the reason why not."""
        placed: dict[str, Subscribed] = {}
        unplaced: dict[str, tuple[StoredClient, str]] = {}
        for client_id, client in found.clients.items():
            try:
                placed[client_id] = self._placed(client)
            except NotReached as error:
                unplaced[client_id] = client, f"{error} Try again."
            except PenstockError as error:
                unplaced[client_id] = client, str(error)
        return placed, unplaced

    def _placed(self, client: StoredClient) -> Subscribed:
        """The place of a client in the logs of this server. Raises `NotReached`, and other
        `PenstockError`s."""
        view = next((one.view for one in client.places.values()), "")
        return Subscribed(self._place(client.places), client.filter, view)

    def _place(self, places: Mapping[str, SourcePlace]) -> AnyPlace:
        found = {log.id: log.place_of(places[name]) for name, log in self._logs.items() if name in places}
        place = self._log.restored(found)
        if place is None:
            raise PenstockError(f"The stored places are those of the sources {', '.join(places)}.")
        return place

    def _place_rest(self) -> None:
        for client_id, client in list(self._unplaced.items()):
            try:
                placed = self._placed(client)
            except PenstockError:
                continue
            self._host.place(self.name, client_id, placed)
            del self._unplaced[client_id]

    def _source_places(self, client: Subscribed) -> dict[str, SourcePlace]:
        found: dict[str, Place] = self._log.stored(client.place)
        return {
            name: replace(log.source_place(found[log.id]), view=client.view)
            for name, log in self._logs.items()
            if log.id in found
        }


def _finish(future: asyncio.Future[None], error: PenstockError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(Replaced(error.message))
