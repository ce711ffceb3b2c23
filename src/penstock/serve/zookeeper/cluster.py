"""One server of several that share destinations: who serves what.

**One serves.** A server serves a destination while it owns the node `running`, which ZooKeeper removes when
the server's session ends. It creates the node in a transaction that also changes the node of the generation,
and whoever writes a position checks both in the same transaction (`positions.Term`). So a server that lost
its session cannot write, whatever it believes. It does not answer clients either, once its session may have
ended by its own clock (`ZooKeeper.alive`), which goes on while the process is suspended.

**Who.** The servers that can serve a destination are registered below it. Each computes the same assignment
(`assignment.py`). A server registers once its relay log has what the clients have acknowledged. A destination
that is assigned elsewhere is given up in order: the clients' connections end, positions are written, and then
the node is removed.

One thread does all of this. Watches wake it; it never relies on what they said before it gives something up.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.errors import LogPurged, PenstockError, TransientError
from penstock.model.offset import Offset
from penstock.serve.batches import Place
from penstock.serve.log.served_log import ServedLog
from penstock.serve.positions import Subscribed
from penstock.serve.source_places import NotReached
from penstock.serve.zookeeper import nodes, stored
from penstock.serve.zookeeper.assignment import Seen, assigned, decide
from penstock.serve.zookeeper.connection import ANSWER_S, ZooKeeper
from penstock.serve.zookeeper.positions import RUNNING_VERSION, InZooKeeper, Term

log = logging.getLogger(__name__)

TICK_S = 0.5
"""Seconds between two looks, if nothing wakes it."""
STORED_S = 2.0
"""How often positions are read that another server writes, and what this one reports is written."""
FLUSH_S = 3.0
"""How long positions may take to be written before a destination is given up."""
YIELD_S = 5.0
"""How long a server that was asked to give up a destination does not take it again. Canal's servers wait as
long."""


@dataclass(frozen=True)
class Running:
    address: str
    active: bool
    owner: int
    czxid: int


@dataclass(frozen=True)
class Serving:
    term: Term
    czxid: int


class Host(Protocol):
    """The server, as the thread sees it. Each call returns when it is done."""

    def enter(
        self, name: str, generation: int, alive: Callable[[], bool], unplaced: Mapping[str, str]
    ) -> None:
        """Serves a destination. `unplaced`: clients that cannot go on yet, and why."""

    def stopped(self, name: str) -> bool:
        """Whether an operator wants this server not to serve it."""

    def place(self, name: str, client_id: str, client: Subscribed) -> None:
        """A client can go on now."""

    def leave(self, name: str) -> None:
        """Ends the connections of its clients."""

    def report(self, name: str) -> dict[str, Any]: ...


class Cluster:
    """The servers that share destinations through one ZooKeeper. `running`: the addresses that serve
    destinations, as far as they are known."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        address: str,
        destinations: Sequence[str],
        served: ServedLog,
        positions: InZooKeeper,
        host: Host,
        about: Mapping[str, Any],
    ) -> None:
        self._zookeeper = zookeeper
        self._client = zookeeper.client
        self._address = address
        self._names = list(destinations)
        self._served = served
        self._positions = positions
        self._host = host
        self._about = about
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._session: int | None = None
        self._watched = False
        self._servers: set[str] = set()
        self._members: dict[str, list[str]] = {}
        self._running: dict[str, Running | None] = {}
        self._serving: dict[str, Serving] = {}
        self._ready: dict[str, bool] = {}
        self._unplaced: dict[str, set[str]] = {}
        self._needs: dict[str, Offset] = {}
        self._free_since: dict[str, float] = {}
        self._assigned: dict[str, tuple[str, float]] = {}
        self._yielded: dict[str, float] = {}
        self._looked = 0.0
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)
        self._renewing = threading.Thread(target=self._renew, name="session", daemon=True)

    @property
    def running(self) -> dict[str, str]:
        return {name: one.address for name, one in list(self._running.items()) if one is not None}

    @property
    def needs(self) -> Offset | None:
        """The log behind this is needed for clients of destinations that others serve; also while it is not
        known what they need. None: nothing is."""
        if len(self._needs.keys() | self._serving.keys()) < len(self._names):
            return self._served.start
        known = [offset for name, offset in list(self._needs.items()) if name not in self._serving]
        return min(known, default=None)

    def start(self) -> None:
        self._thread.start()
        self._renewing.start()

    def close(self) -> None:
        """Gives everything up in order, so that others take over at once."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(FLUSH_S * 3)
        self._renewing.join(ANSWER_S)

    def _renew(self) -> None:
        """Renews the session in a task of its own, because other tasks may take longer than a session may be
        silent."""
        from kazoo.exceptions import KazooException

        while not self._stopping.is_set():
            with contextlib.suppress(KazooException, PenstockError):
                self._zookeeper.renew()
            self._stopping.wait(min(TICK_S, self._zookeeper.renew_s))

    # the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        from kazoo.exceptions import KazooException

        said = ""
        while not self._stopping.is_set():
            try:
                self._step()
                said = ""
            except (KazooException, PenstockError, OSError) as error:
                text = str(error) or type(error).__name__
                if text != said:
                    log.warning("the cluster cannot be followed: %s", text)
                said = text
            except Exception:  # a bug must not end the thread silently
                log.exception("the cluster cannot be followed")
            self._wake.wait(TICK_S)
            self._wake.clear()
        for name in list(self._serving):
            try:
                self._hand_over(name)
            except (KazooException, PenstockError, OSError) as error:
                log.warning("%s was not given up in order: %s", name, error)

    def _step(self) -> None:
        session = self._zookeeper.session
        if session != self._session:
            for name in list(self._serving):
                self._drop(name)
            self._zookeeper.forget()
            self._session = session
        if session is None:
            raise TransientError("there is no session of ZooKeeper")
        if not self._watched:
            self._watch()
            self._watched = True
        self._zookeeper.renew()
        self._register(nodes.server(self._address), b"")
        self._register(nodes.our_server(self._address), nodes.report_data(self._about))
        self._look_at_stored()
        mine = {name: self._candidates(name) for name in self._names}
        now = time.monotonic()
        for name, address in assigned(mine).items():
            if self._assigned.get(name, ("", 0.0))[0] != address:
                self._assigned[name] = address, now
        for name in self._names:
            self._look(name)

    def _candidates(self, name: str) -> list[str]:
        return [one for one in self._members.get(name, []) if one in self._servers]

    def _watch(self) -> None:
        client = self._client
        self._zookeeper.answer(client.ensure_path_async(nodes.OUR_SERVERS))

        def servers(children: list[str]) -> None:
            self._servers = set(children)
            self._wake.set()

        client.ChildrenWatch(nodes.OUR_SERVERS, servers)
        for name in self._names:
            for path in (nodes.members(name), nodes.generation(name)):
                self._zookeeper.answer(client.ensure_path_async(path))
            self._watch_one(name)

    def _watch_one(self, name: str) -> None:
        def members(children: list[str]) -> None:
            self._members[name] = children
            self._wake.set()

        def running(data: bytes | None, stat: Any) -> None:
            self._running[name] = _running(data, stat)
            self._wake.set()

        self._client.ChildrenWatch(nodes.members(name), members)
        self._client.DataWatch(nodes.running(name), running)

    def _register(self, path: str, data: bytes) -> None:
        """Makes a node that ends with the session. One of an earlier session with this address ends by
        itself."""
        from kazoo.exceptions import NodeExistsError

        if self._zookeeper.answer(self._client.exists_async(path)) is None:
            try:
                create = self._client.create_async(path, data, ephemeral=True, makepath=True)
                self._zookeeper.answer(create)
            except NodeExistsError:
                return

    def _unregister(self, path: str) -> None:
        from kazoo.exceptions import NoNodeError

        found = self._zookeeper.answer(self._client.exists_async(path))
        if found is not None and found.ephemeralOwner == self._session:
            try:
                self._zookeeper.answer(self._client.delete_async(path))
            except NoNodeError:
                return

    # what others have stored --------------------------------------------------------------------------------

    def _look_at_stored(self) -> None:
        if time.monotonic() < self._looked + STORED_S:
            return
        self._looked = time.monotonic()
        about = {**self._about, "log": self._served.end_position}
        path = nodes.our_server(self._address)
        self._zookeeper.answer(self._client.set_async(path, nodes.report_data(about)))
        for name in self._names:
            if name in self._serving:
                self._place_rest(name)
                self._report(name)
                continue
            placed, unplaced = self._placed(name)
            places = [one.place.offset for one in placed.values() if isinstance(one.place, Place)]
            self._needs[name] = min(places, default=self._served.end)
            ready = self._ready[name] = not unplaced and not self._host.stopped(name)
            path = nodes.member(name, self._address)
            self._register(path, b"") if ready else self._unregister(path)

    def _placed(self, name: str) -> tuple[dict[str, Subscribed], dict[str, str]]:
        """The clients that can go on here, and why others cannot."""
        placed, unplaced = {}, {}
        for client_id, client in stored.clients_of(self._zookeeper, name).items():
            if client.place is None:
                unplaced[client_id] = client.wrong
                continue
            try:
                place = self._served.place_of(client.place)
                placed[client_id] = Subscribed(place, client.filter, client.place.view)
            except NotReached as error:
                unplaced[client_id] = f"{error} Try again."
            except (LogPurged, PenstockError) as error:
                unplaced[client_id] = str(error)
        return placed, unplaced

    def _place_rest(self, name: str) -> None:
        if not self._unplaced.get(name):
            return
        placed, _ = self._placed(name)
        for client_id in self._unplaced[name] & placed.keys():
            self._positions.add(name, client_id, placed[client_id])
            self._host.place(name, client_id, placed[client_id])
            self._unplaced[name].discard(client_id)

    def _report(self, name: str) -> None:
        path = nodes.report(name)
        data = nodes.report_data({"server": self._address, "at": time.time(), **self._host.report(name)})
        self._zookeeper.answer(self._client.ensure_path_async(path))
        self._zookeeper.answer(self._client.set_async(path, data))

    # one destination ----------------------------------------------------------------------------------------

    def _look(self, name: str) -> None:
        running, serving = self._running.get(name), self._serving.get(name)
        now = time.monotonic()
        if serving is not None and (running is None or running.czxid != serving.czxid):
            running = self._read_running(name)  # what a watch says may be older
            if running is None or running.czxid != serving.czxid:
                log.warning("%s is not served here any more: its node in ZooKeeper is gone", name)
                self._drop(name)
                serving = None
        if serving is None and running is not None and running.owner == self._session:
            self._drop(name)
            running = self._read_running(name)
            if running is not None and running.owner == self._session:  # its creation had no answer
                self._zookeeper.answer(self._client.delete_async(nodes.running(name)))
            return
        if self._host.stopped(name):
            if serving is not None:
                self._unregister(nodes.member(name, self._address))
                self._hand_over(name)
            return
        if serving is not None and running is not None and not running.active:
            self._yielded[name] = now
            self._hand_over(name)
            return
        if running is not None:
            self._free_since.pop(name, None)
        elif serving is None:
            self._free_since.setdefault(name, now)
        if now < self._yielded.get(name, -YIELD_S) + YIELD_S:
            return
        match decide(self._seen(name, now)):
            case "claim" if self._zookeeper.alive:
                self._claim(name)
            case "hand over":
                log.info("%s moves to %s", name, self._assigned[name][0])
                self._hand_over(name)

    def _seen(self, name: str, now: float) -> Seen:
        address, since = self._assigned.get(name, ("", now))
        free = self._free_since.get(name)
        return Seen(
            mine=name in self._serving,
            assigned_here=address == self._address,
            assigned=bool(address),
            ready=self._ready.get(name, False),
            free_s=None if free is None else now - free,
            assigned_s=now - since,
        )

    def _read_running(self, name: str) -> Running | None:
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = self._zookeeper.answer(self._client.get_async(nodes.running(name)))
        except NoNodeError:
            found = None
        else:
            found = _running(data, stat)
        self._running[name] = found
        return found

    def _claim(self, name: str) -> None:
        data = nodes.running_data(self._address)
        transaction = self._client.transaction()
        transaction.set_data(nodes.generation(name), b"")
        transaction.create(nodes.running(name), data, ephemeral=True)
        transaction.set_data(nodes.running(name), data, version=RUNNING_VERSION - 1)
        results = self._zookeeper.answer(transaction.commit_async())
        running = self._read_running(name)
        if any(isinstance(one, Exception) for one in results) or running is None:
            return
        term = Term(name, results[0].version)
        placed, unplaced = self._placed(name)
        self._register(nodes.member(name, self._address), b"")
        self._positions.begin(term, placed)
        session = self._session
        self._unplaced[name] = set(unplaced)
        alive = partial(self._zookeeper.alive_in, session)
        self._serving[name] = Serving(term, running.czxid)
        try:
            self._host.enter(name, term.generation, alive, unplaced)
        except PenstockError:
            self._drop(name)  # and the node is removed at the next look
            raise
        self._free_since.pop(name, None)
        log.info("serving %s (generation %d)", name, term.generation)

    def _drop(self, name: str) -> None:
        """Stops serving a destination: another server may serve it already."""
        self._serving.pop(name, None)
        self._positions.end(name)
        self._host.leave(name)

    def _hand_over(self, name: str) -> None:
        serving = self._serving.pop(name)
        self._host.leave(name)
        self._positions.end(name, flush_seconds=FLUSH_S)
        transaction = self._client.transaction()
        transaction.check(nodes.generation(name), serving.term.generation)
        transaction.delete(nodes.running(name))
        results = self._zookeeper.answer(transaction.commit_async())
        if any(isinstance(one, Exception) for one in results):
            raise TransientError(f"the node of {name} could not be removed")
        self._running[name] = None


def _running(data: bytes | None, stat: Any) -> Running | None:
    if stat is None:
        return None
    try:
        address, active = nodes.running_address(data or b"")
    except ValueError:
        address, active = "", True
    return Running(address, active, int(stat.ephemeralOwner), int(stat.czxid))
