"""Subscription servers that share a destination, and a client that reads from whichever serves it, while
members of ZooKeeper are cut off, processes suspended and killed, and packets late, doubled, or for a
connection that is dead.

The servers' code is the real one: who serves (`zookeeper.cluster`), what is known of sessions
(`zookeeper.connection`), positions (`zookeeper.positions`), batches and acknowledgements (`destination`,
`subscription`). Around it are models: ZooKeeper, the log, connections, and the client.

`broken` gives up one condition. A model that finds nothing wrong then is no good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from tests.models import session_model
from tests.models.serving_parts import Log, Source
from tests.models.simulation import Clock, Process, Threading, World
from tests.models.zookeeper_model import Client, Ensemble, State

from penstock import clock
from penstock.errors import PenstockError
from penstock.serve import destination
from penstock.serve.destination import Destination
from penstock.serve.positions import Subscribed
from penstock.serve.settings import DestinationSection
from penstock.serve.subscription import Refused, Subscription
from penstock.serve.zookeeper import cluster, nodes, positions
from penstock.serve.zookeeper.cluster import Cluster
from penstock.serve.zookeeper.connection import ZooKeeper
from penstock.serve.zookeeper.positions import InZooKeeper, Term

SESSION_S = 4.0
NAME, CLIENT = "shop", "1001"
SERVERS = 2
TRANSACTIONS = 25
FAULTS = 4
DRIFT = 0.01
PATIENCE_S = 4.0
"""How long the client waits for an answer."""


class Loop:
    """What `InZooKeeper.settled` and `Destination.served` use of `asyncio`: other tasks are waited for."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def sleep(self, seconds: float) -> None:
        self._world.wait(lambda: False, seconds)

    def get_running_loop(self) -> Loop:
        return self

    async def run_in_executor(self, _: None, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)


def done(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing but tasks of the model."""
    try:
        coroutine.send(None)
    except StopIteration as result:
        return result.value
    raise AssertionError("it waits in an event loop")


class Server(Process):
    """One process. `connections`: those of clients."""

    def __init__(self, history: History, number: int) -> None:
        dice = history.dice
        super().__init__(1 + dice.uniform(-DRIFT, DRIFT))
        self.history, self.address = history, f"server-{number}:1"
        self.log = history.logs[number]
        self.serving: Destination | None = None
        history.booting = self
        self.zookeeper = ZooKeeper(["127.0.0.1:1"], history.asked_s)
        self.client = Client(history.ensemble, lambda asked: self.zookeeper.connected(asked, SESSION_S))
        self.zookeeper.client = self.client
        self.positions = InZooKeeper(self.zookeeper, "zookeeper", ("h", 1), self.log.source_place)
        served: Any = self.log
        self.cluster = Cluster(self.zookeeper, self.address, [NAME], served, self.positions, self, {})
        self.cluster.start()
        history.booting = history.network

    def kill(self) -> None:
        self.killed = True
        if self.client.link is not None:
            self.client.link.close()

    # `cluster.Host` -----------------------------------------------------------------------------------------

    def enter(
        self, name: str, generation: int, alive: Callable[[], bool], unplaced: Mapping[str, str]
    ) -> None:
        self.history.pause(0.01)
        broken = self.history.broken
        log: Any = self.log
        self.serving = Destination(
            name, DestinationSection(), log, self.positions, 0.0,
            alive=(lambda: True) if broken == "alive" else alive, unplaced=unplaced,
            generation=0 if broken == "numbers" else generation,
        )  # fmt: skip
        self.generation = generation

    def stopped(self, name: str) -> bool:
        return False

    def place(self, name: str, client_id: str, client: Subscribed) -> None:
        if self.serving is not None:
            self.serving.place(client_id, client)

    def leave(self, name: str) -> None:
        self.history.pause(0.01)
        one, self.serving = self.serving, None
        if one is not None:
            one.close()
            one.store()

    def report(self, name: str) -> dict[str, Any]:
        return {}


class Connection:
    """A connection of a client. Both sides have their own view of whether it is there. What was sent may
    arrive after the client has gone."""

    def __init__(self, server: Server) -> None:
        self.server, self.history = server, server.history
        self.inbox: list[tuple[float, str, Any]] = []
        self.answers: list[Any] = []
        self.gone = self.dismissed = False
        self._claimed: Subscription | None = None
        self._late = ""
        self._unsettled: set[Destination] = set()
        self.history.spawn(self._serve, server)

    address = "client"
    idle_seconds = 1.0

    def dismiss(self) -> None:
        self.dismissed = True

    def is_set(self) -> bool:
        return self.dismissed

    def send(self, kind: str, value: Any = None) -> None:
        after = max([self.history.now, *(at for at, _, _ in self.inbox)])
        at = after + self.history.dice.choice((0.01, 0.01, 0.1, 1.0))
        self.inbox.append((at, kind, value))

    def _serve(self) -> None:
        history = self.history
        while not self.dismissed:
            history.wait(lambda: self.inbox or self.dismissed or self.gone)
            if self.dismissed or not self.inbox:
                break
            at, kind, value = self.inbox[0]
            history.wait(lambda: self.dismissed, max(0.0, at - history.now))
            self.inbox.pop(0)
            if kind == "ack":
                self._acknowledge(value)
            else:
                self._answer(kind, value)
        history.pause(0.5)
        if self._claimed is not None:
            self._claimed.release(self)

    def _answer(self, kind: str, value: Any) -> None:
        """As `Session._reply` does."""
        try:
            unsettled, self._unsettled = self._unsettled, set()
            if self.history.broken != "settled":
                for one in unsettled:
                    done(one.settled())
            if self._late:
                late, self._late = self._late, ""
                raise Refused(late)
            answer: object = self._subscribe() if kind == "subscribe" else self._get(value)
        except (Refused, PenstockError) as error:
            answer = str(error)
        self.history.pause(0.05)  # the answer is on its way
        if not self.dismissed:
            self.answers.append(answer)

    def _destination(self) -> Destination:
        if self.server.serving is None:
            raise Refused("not served here")
        found = self.server.serving
        done(found.served())
        return found

    def _subscribe(self) -> str:
        found = self._destination()
        self._take(found.subscribed(CLIENT))
        done(found.settled())
        return "subscribed"

    def _take(self, subscription: Subscription) -> None:
        done(subscription.claim(self, 0.0))
        self._claimed = subscription

    def _get(self, size: int) -> tuple[int, list[int]]:
        found = self._destination()
        subscription = found.existing(CLIENT)
        self._take(subscription)
        gone: Any = self
        batch, blocks = done(subscription.get(size, None, gone))
        self.history.answered(self.server)
        return batch, [int(entry) for block in blocks for entry in block.entries()]

    def _acknowledge(self, batch: int) -> None:
        """As `Session._note` does."""
        try:
            found = self._destination()
            subscription = found.existing(CLIENT)
            self._take(subscription)
            subscription.acknowledge(batch)
            self._unsettled.add(found)
        except (Refused, PenstockError) as error:
            self._late = str(error)


class Reader:
    """The client. It has processed all entries up to `processed`, and has sent acknowledgements of those up
    to `acknowledged`. What it knows to be stored must never come again: `stored`."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.processed = self.acknowledged = self.stored = 0
        self._last: int | None = None
        """The newest batch of all connections."""

    def run(self) -> None:
        while True:
            server = self.history.dice.choice(self.history.servers)
            connected = Connection(server)
            while self._use(connected):
                self.history.pause(0.05)
            connected.gone = True
            self.history.pause(0.3)

    def _ask(self, connected: Connection, kind: str, value: Any = None) -> Any:
        connected.send(kind, value)
        self.history.wait(lambda: connected.answers or connected.server.killed, PATIENCE_S)
        lost = self.history.dice.random() < 0.02 and not self.history.calm
        return connected.answers.pop(0) if connected.answers and not lost else None

    def _use(self, connected: Connection) -> bool:
        dice = self.history.dice
        if self._ask(connected, "subscribe") != "subscribed":
            return False
        late = self._last  # it belongs to another connection
        outstanding: list[tuple[int, int]] = []
        at, sent = None, 0
        while dice.random() < 0.95 or self.history.calm:
            answer = self._ask(connected, "get", dice.choice((1, 2, 2, 50)))
            if not isinstance(answer, tuple):
                return False
            self.stored = max(self.stored, sent)
            batch, entries = answer
            if batch != -1:
                self._process(entries, at)
                at = entries[-1]
                outstanding.append((batch, at))
                self._last = batch
            if late is not None and dice.random() < 0.1 and not self.history.calm:
                connected.send("ack", late)
            if outstanding and (dice.random() < 0.7 or self.history.calm):
                batch, sent = outstanding.pop(0)
                self.acknowledged = max(self.acknowledged, sent)
                connected.send("ack", batch)
                if dice.random() < 0.03:
                    connected.send("ack", batch)  # doubled
            self.history.pause(0.1)
        return False

    def _process(self, entries: list[int], at: int | None) -> None:
        first, last = entries[0], entries[-1]
        if entries != list(range(first, last + 1)) or (at is not None and first != at + 1):
            self.history.violated(f"out of order: {entries} behind {at}")
        if first > self.processed + 1:
            self.history.violated(f"missed what is between {self.processed} and {first}")
        if first <= self.stored:
            self.history.violated(f"got {first} again, which was stored as acknowledged: {self.stored}")
        self.processed = max(self.processed, last)


def _settles(server: Server) -> bool:
    found = server.positions._writes.get(NAME)
    return found is not None and bool(found.pending or found.busy)


PATCHES: dict[str, tuple[Any, str, Any]] = {
    "renewed by a read": session_model.BROKEN["renewed by a read"],
    "rollback": (Subscription, "roll_back", lambda one: None),
    "fence": (Term, "check", lambda term, transaction: None),
}
BROKEN = (*PATCHES, "alive", "numbers", "settled")


class History(World):
    """`play` goes through one history, and raises `Violation`."""

    def __init__(self, seed: int, broken: str = "") -> None:
        super().__init__(seed)
        self.broken = broken
        self.asked_s = session_model.ASKED_S if self.dice.random() < 0.2 else SESSION_S
        self.source = Source([self.dice.choice((1, 1, 2, 3)) for _ in range(TRANSACTIONS)])
        self.written = 0
        self.logs = [Log(self.source, number) for number in range(SERVERS)]
        self.ensemble = Ensemble(self, SESSION_S)
        self.ensemble.committed = self._check
        self.reader = Reader(self)
        self.servers: list[Server] = []

    def play(self) -> None:
        with self._patched():
            try:
                self.servers = [Server(self, number) for number in range(SERVERS)]
                self.spawn(self._write)
                self.spawn(self._break)
                self.spawn(self.reader.run)
                for log in self.logs:
                    self.spawn(partial(self._receive, log))
                self.run(40.0)
                self.calm = True
                self.run(30.0)
                whole = self.source.before(TRANSACTIONS)
                if self.reader.processed < whole:
                    self.violated(f"the client has {self.reader.processed} of {whole} entries")
                    self.run(1.0)
            finally:
                self.close()

    @contextmanager
    def _patched(self) -> Iterator[None]:
        threads, times = Threading(self), Clock(self)
        patches: list[Any] = [
            mock.patch.object(clock, "seconds", self.clock),
            *(mock.patch.object(one, "threading", threads) for one in (cluster, positions)),
            *(mock.patch.object(one, "time", times) for one in (cluster, destination)),
            *(mock.patch.object(one, "asyncio", Loop(self)) for one in (positions, destination)),
        ]
        if self.broken in PATCHES:
            owner, name, weaker = PATCHES[self.broken]
            patches.append(mock.patch.object(owner, name, weaker))
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()

    # the world ----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        while self.written < TRANSACTIONS:
            self.pause(1.5)
            self.written += 1

    def _receive(self, log: Log) -> None:
        while True:
            self.wait(lambda: log.received < self.written)
            self.pause(self.dice.choice((0.05, 0.05, 2.0)))
            log.received = self.written

    def _break(self) -> None:
        for _ in range(FAULTS):
            self.pause(9.0, 2.0)
            if self.calm:
                return
            serving = [number for number, one in enumerate(self.servers) if one.serving is not None]
            victim = self.dice.choice([*serving, *serving, *range(SERVERS)])
            server = self.servers[victim]
            match self.dice.choice(("kill", "suspend", "suspend", "cut off", "cut off", "connection")):
                case "kill":
                    server.kill()
                    self.pause(6.0)
                    self.servers[victim] = Server(self, victim)
                case "suspend":
                    self.wait(partial(_settles, server), 2.0)
                    near = SESSION_S * self.dice.uniform(0.8, 1.1)
                    server.suspended_until = self.now + self.dice.choice((near, near, 7.0))
                case "cut off":
                    link = server.client.link
                    member = self.dice.choice(self.ensemble.members) if link is None else link.member
                    self.ensemble.cut_off(member, self.dice.uniform(3.0, 9.0))
                    self.pause(9.0, 9.0)
                case "connection":
                    if server.client.link is not None:
                        server.client.link.close()

    # what must hold -----------------------------------------------------------------------------------------

    def answered(self, server: Server) -> None:
        """A server that may have been replaced answers with errors."""
        if server.zookeeper.session not in self.ensemble.sessions:
            self.violated(f"{server.address} answered after its session had ended")

    def _check(self, before: State, after: State) -> None:
        """A position never goes back, and never beyond what was acknowledged."""
        was, now = (self._stored(one) for one in (before, after))
        if now < was:
            self.violated(f"the position went back from {was} to {now}")
        if now > self.reader.acknowledged:
            self.violated(f"the position is {now}; only {self.reader.acknowledged} was acknowledged")

    def _stored(self, state: State) -> int:
        node = state.get(nodes.cursor(NAME, CLIENT))
        place = None if node is None else nodes.cursor_place(node.data)
        return 0 if place is None else self.source.number(place)
