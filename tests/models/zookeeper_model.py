"""ZooKeeper as a model: a history of committed states, members that lag behind it or are cut off, and
sessions that end when the leader has not heard of them.

What is modelled as it is (ZooKeeper 3.9): reads are answered from a member's memory; writes are in order for
each connection, and are refused when the session goes on over another one; the leader learns of sessions when
they connect and by the reports of members, twice in each tick; a member that is cut off goes on for
`SYNC_LIMIT_S`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kazoo import exceptions as errors
from kazoo.handlers.threading import KazooTimeoutError
from tests.models.simulation import World

TICK_S = 1.0
SYNC_LIMIT_S = 5.0


@dataclass(frozen=True)
class Node:
    data: bytes
    czxid: int
    version: int = 0
    ephemeralOwner: int = 0


State = Mapping[str, Node]


class Member:
    def __init__(self) -> None:
        self.applied = 0
        self.apart = False
        self.serves = True
        self.heard: set[int] = set()


@dataclass
class Session:
    number: int
    ends_at: float
    link: Link | None = None


class Ensemble:
    """`committed` is called with the state before and after each commit."""

    def __init__(self, world: World, session_s: float, members: int = 3) -> None:
        self.world, self.session_s = world, session_s
        self.members = [Member() for _ in range(members)]
        self.states: list[State] = [{"/": Node(b"", 0)}]
        self.sessions: dict[int, Session] = {}
        self.committed: Callable[[State, State], None] = lambda before, after: None
        self._numbers = 0
        world.later(TICK_S / 2, self._tick)
        world.later(0.0, self._expire)

    @property
    def state(self) -> State:
        """What is committed."""
        return self.states[-1]

    def _tick(self) -> None:
        self.world.later(TICK_S / 2, self._tick)
        for member in self.members:
            if not member.apart:
                for number in member.heard & self.sessions.keys():
                    self.sessions[number].ends_at = self.world.now + self.session_s
                member.heard.clear()

    def _expire(self) -> None:
        self.world.later(0.13, self._expire)
        for one in list(self.sessions.values()):
            if one.ends_at < self.world.now:
                del self.sessions[one.number]
                gone = f"!{one.number}"
                kept = (item for item in self.state.items() if item[0] != gone)
                self._commit({path: node for path, node in kept if node.ephemeralOwner != one.number})

    def _commit(self, state: State) -> None:
        before = self.state
        self.states.append(dict(state))
        for member in self.members:
            self.world.later(self.world.dice.uniform(0, 0.2), partial(self._apply, member))
        self.committed(before, state)

    def _apply(self, member: Member) -> None:
        if not member.apart:
            member.applied = len(self.states) - 1

    def cut_off(self, member: Member, seconds: float) -> None:
        member.apart = True

        def ends() -> None:
            member.serves = not member.apart

        def heals() -> None:
            member.apart, member.serves = False, True
            self._apply(member)

        self.world.later(min(SYNC_LIMIT_S, seconds), ends)
        self.world.later(seconds, heals)

    def connect(self, number: int | None, link: Link) -> int:
        """The leader's answer to a connection: the session, or another one if that has ended."""
        found = self.sessions.get(number or 0)
        if found is None:
            self._numbers += 1
            found = self.sessions[self._numbers] = Session(self._numbers, 0.0)
            self._commit({**self.state, f"!{found.number}": Node(b"", len(self.states))})
        link.began = len(self.states) - 1
        found.ends_at, found.link = self.world.now + self.session_s, link
        return found.number

    def write(self, link: Link, operations: list[Operation]) -> list[Any]:
        """The results of a transaction, which is committed as a whole or not at all."""
        session = self.sessions.get(link.session)
        if session is None:
            raise errors.SessionExpiredError
        if session.link is not link:
            raise errors.SessionMovedError
        state, results = dict(self.state), []
        for number, operation in enumerate(operations):
            try:
                results.append(operation(state, len(self.states), session.number))
            except errors.KazooException as error:
                self._commit(self.state)
                behind = len(operations) - number - 1
                return (
                    [errors.RolledBackError()] * number + [error] + [errors.RuntimeInconsistency()] * behind
                )
        self._commit(state)
        return results


Operation = Callable[[dict[str, Node], int, int], Any]
"""Changes a state, as the transaction of this number, in a session. Raises what ZooKeeper answers."""


def check(path: str, version: int) -> Operation:
    def run(state: dict[str, Node], number: int, session: int) -> Any:
        if path not in state:
            raise errors.NoNodeError
        if version not in (-1, state[path].version):
            raise errors.BadVersionError
        return True

    return run


def set_data(path: str, data: bytes, version: int = -1) -> Operation:
    def run(state: dict[str, Node], number: int, session: int) -> Any:
        check(path, version)(state, number, session)
        state[path] = replace(state[path], data=data, version=state[path].version + 1)
        return state[path]

    return run


def create(path: str, data: bytes = b"", *, ephemeral: bool = False, makepath: bool = False) -> Operation:
    def run(state: dict[str, Node], number: int, session: int) -> Any:
        above = path.rpartition("/")[0] or "/"
        if path in state:
            raise errors.NodeExistsError
        if above not in state:
            if not makepath:
                raise errors.NoNodeError
            create(above, makepath=True)(state, number, session)
        state[path] = Node(data, number, ephemeralOwner=session if ephemeral else 0)
        return path

    return run


def ensure(path: str) -> Operation:
    def run(state: dict[str, Node], number: int, session: int) -> Any:
        return path if path in state else create(path, makepath=True)(state, number, session)

    return run


def delete(path: str) -> Operation:
    def run(state: dict[str, Node], number: int, session: int) -> Any:
        check(path, -1)(state, number, session)
        if children(state, path):
            raise errors.NotEmptyError
        del state[path]
        return True

    return run


def children(state: State, path: str) -> list[str]:
    found = (one.rpartition("/") for one in state)
    return sorted(name for above, _, name in found if above == path and name)


class Pending:
    """kazoo's asynchronous result."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._done = False
        self._value: Any = None

    def resolve(self, value: Any) -> None:
        if not self._done:
            self._done, self._value = True, value

    def get(self, timeout: float | None = None) -> Any:
        if not self._world.wait(lambda: self._done, timeout):
            raise KazooTimeoutError
        if isinstance(self._value, BaseException):
            raise self._value
        return self._value


@dataclass
class Request:
    pending: Pending
    read: Callable[[State], Any] | None = None
    operations: list[Operation] | None = None
    alone: bool = False


class Link:
    """A connection of a client to a member. Requests are answered in order."""

    def __init__(self, ensemble: Ensemble, member: Member) -> None:
        self.ensemble, self.world, self.member = ensemble, ensemble.world, member
        self.session = self.began = 0
        self.open = True
        self.queue: list[Request] = []

    @property
    def ended(self) -> bool:
        """Whether its member knows that the session has ended, or does not serve."""
        known = self.ensemble.states[self.member.applied]
        over = self.member.applied >= self.began and f"!{self.session}" not in known
        return over or not (self.open and self.member.serves)

    def close(self) -> None:
        self.open = False
        for one in self.queue:
            one.pending.resolve(errors.ConnectionLoss())

    def serve(self) -> None:
        while self.open:
            self.world.wait(lambda: self.queue or not self.open)
            if not self.open:
                return
            request = self.queue[0]
            self.world.pause(self._slowness())
            if self.open:
                self.member.heard.add(self.session)
            if request.read is not None:
                answer = self._read(request.read)
            else:
                answer = self._written(request)
            self.world.pause(self._slowness())
            if self.open:
                self.queue.pop(0)
                request.pending.resolve(answer)

    def _slowness(self) -> float:
        return 0.01 if self.world.calm else self.world.dice.choice((0.01, 0.01, 0.01, 0.1, 0.4))

    def _read(self, read: Callable[[State], Any]) -> Any:
        try:
            return read(self.ensemble.states[self.member.applied])
        except errors.KazooException as error:
            return error

    def _written(self, request: Request) -> Any:
        """What a member has sent to the leader is executed, even if the client has gone."""
        assert request.operations is not None
        self.world.wait(lambda: not self.member.apart or not self.open)
        if self.member.apart:
            return errors.ConnectionLoss()
        try:
            results = self.ensemble.write(self, request.operations)
        except errors.KazooException as error:
            return error
        number = len(self.ensemble.states) - 1
        self.world.wait(lambda: self.member.applied >= number or not self.open)
        if request.alone and isinstance(results[0], Exception):
            return results[0]
        return results[0] if request.alone else results


class Client:
    """What is used of `KazooClient`. `connected` is called with the time for which a connection was asked."""

    def __init__(self, ensemble: Ensemble, connected: Callable[[float], None]) -> None:
        self.world, self.ensemble = ensemble.world, ensemble
        self.link: Link | None = None
        self._connected = connected
        self._session: int | None = None
        self._seen = 0
        self._watches: list[Callable[[State], None]] = []
        self.world.spawn(self._connect)
        self.world.spawn(self._watch)

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return None if self._session is None else (self._session, b"")

    def _connect(self) -> None:
        while True:
            member = self.world.dice.choice(self.ensemble.members)
            asked = self.world.clock()
            self.world.pause(0.1)
            if member.serves and not member.apart and member.applied >= self._seen:
                self.link = link = Link(self.ensemble, member)
                link.session = self.ensemble.connect(self._session, link)
                self.world.spawn(link.serve, self.world.network)
                self.world.pause(0.2)
                self._session = link.session
                self._connected(asked)
                while not link.ended:
                    member.heard.add(link.session)
                    self._seen = member.applied
                    self.world.wait(partial(getattr, link, "ended"), self.ensemble.session_s / 3)
                link.close()
            self.world.pause(0.3)

    def _watch(self) -> None:
        while True:
            self.world.pause(self.world.dice.choice((0.05, 0.5)))
            if self.link is not None and self.link.open:
                state = self.ensemble.states[self.link.member.applied]
                for one in self._watches:
                    one(state)

    def _ask(self, request: Request) -> Pending:
        if self.link is None or not self.link.open:
            request.pending.resolve(errors.ConnectionLoss())
        else:
            self.link.queue.append(request)
        return request.pending

    def _write(self, *operations: Operation, alone: bool = True) -> Pending:
        return self._ask(Request(Pending(self.world), operations=list(operations), alone=alone))

    def _read(self, read: Callable[[State], Any]) -> Pending:
        return self._ask(Request(Pending(self.world), read=read))

    # kazoo's calls ------------------------------------------------------------------------------------------

    def exists_async(self, path: str) -> Pending:
        return self._read(lambda state: state.get(path))

    def get_async(self, path: str) -> Pending:
        return self._read(lambda state: (_node(state, path).data, _node(state, path)))

    def get_children_async(self, path: str) -> Pending:
        return self._read(lambda state: _node(state, path) and children(state, path))

    def ensure_path_async(self, path: str) -> Pending:
        return self._write(ensure(path))

    def set_async(self, path: str, data: bytes) -> Pending:
        return self._write(set_data(path, data))

    def delete_async(self, path: str) -> Pending:
        return self._write(delete(path))

    def create_async(self, path: str, data: bytes, **options: Any) -> Pending:
        return self._write(create(path, data, **options))

    def transaction(self) -> Transaction:
        return Transaction(self)

    def ChildrenWatch(self, path: str, told: Callable[[list[str]], None]) -> None:
        self._tell(lambda state: children(state, path), told)

    def DataWatch(self, path: str, told: Callable[[bytes | None, Any], None]) -> None:
        self._tell(lambda state: state.get(path), lambda node: told(node and node.data, node))

    def _tell(self, look: Callable[[State], Any], told: Callable[[Any], Any]) -> None:
        last: list[Any] = []

        def watch(state: State) -> None:
            if last != [found := look(state)]:
                last[:] = [found]
                told(found)

        self._watches.append(watch)


class Transaction:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._operations: list[Operation] = []

    def check(self, path: str, version: int) -> None:
        self._operations.append(check(path, version))

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self._operations.append(set_data(path, data, version))

    def create(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        self._operations.append(create(path, data, ephemeral=ephemeral))

    def delete(self, path: str) -> None:
        self._operations.append(delete(path))

    def commit_async(self) -> Pending:
        return self._client._write(*self._operations, alone=False)


def _node(state: State, path: str) -> Node:
    if path not in state:
        raise errors.NoNodeError
    return state[path]
