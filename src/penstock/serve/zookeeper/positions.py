"""What clients have acknowledged, in ZooKeeper, as Canal stores it.

One thread writes. What comes while it waits for ZooKeeper is written together, in one transaction for each
destination. Every transaction also checks that this server still serves the destination: `Term`. So a server
that was suspended and replaced can never write a position.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.errors import PenstockError, TransientError
from penstock.serve.batches import Place
from penstock.serve.positions import Clients, Replaced, Subscribed
from penstock.serve.source_places import SourcePlace
from penstock.serve.zookeeper import nodes
from penstock.serve.zookeeper.connection import ZooKeeper

log = logging.getLogger(__name__)

Kind = Literal["zookeeper", "mixed", "period", "memory"]
RETRY_S = 0.2
"""Pause behind a write that failed."""
SETTLE_S = 10.0
"""How long the answer to a client waits until its acknowledgement is stored."""
RUNNING_VERSION = 1
"""The version of the node `running` of one of our servers, which writes it twice. That of Canal's servers is
0."""


@dataclass(frozen=True)
class Term:
    """The right to serve a destination, from when a server began to until another one does. Its number is the
    version of a node that every server changes in the transaction that makes it the running one."""

    destination: str
    generation: int

    def check(self, transaction: Any) -> None:
        """Makes a transaction fail if it has ended."""
        transaction.check(nodes.generation(self.destination), self.generation)
        transaction.check(nodes.running(self.destination), RUNNING_VERSION)


class _Writes:
    """Changes that still have to be written for one destination. None: the client is forgotten."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.stored: dict[str, Subscribed] = {}
        """What ZooKeeper will contain when everything is written."""
        self.pending: dict[str, Subscribed | None] = {}
        self.made: set[str] = set()
        """Nodes that are there."""
        self.busy = False
        self.ended: PenstockError | None = None
        self.failed: PenstockError | None = None


class InZooKeeper:
    """`Positions`. `kind`: `zookeeper` stores an acknowledgement before the client gets its next answer,
    `mixed` at once, `period` once a second, `memory` never. `source_place` may be called in the thread."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        kind: Kind,
        source: tuple[str, int],
        source_place: Callable[[Place], SourcePlace],
    ) -> None:
        self._zookeeper = zookeeper
        self._kind = kind
        self._source = source
        self._source_place = source_place
        self._writes: dict[str, _Writes] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="positions", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(SETTLE_S)

    def begin(self, term: Term, known: dict[str, Subscribed]) -> None:
        """Begins to write positions of the destination in this term. `known`: those that are stored."""
        with self._changed:
            writes = self._writes[term.destination] = _Writes(term)
            writes.stored = dict(known)
            for client_id, client in known.items():
                writes.made.add(nodes.cursor(term.destination, client_id))
                if client.filter:
                    writes.made.add(nodes.filter(term.destination, client_id))

    def add(self, destination: str, client_id: str, client: Subscribed) -> None:
        """A client is known now that was stored by another server."""
        with self._changed:
            writes = self._writes.get(destination)
            if writes is not None:
                writes.stored[client_id] = client

    def end(self, destination: str, *, flush_seconds: float = 0.0) -> None:
        """Writes what is left, if that is possible in this time, and nothing behind it."""
        with self._changed:
            writes = self._writes.get(destination)
            if writes is None:
                return
            if flush_seconds:
                self._changed.wait_for(
                    lambda: writes.ended or not (writes.pending or writes.busy), flush_seconds
                )
            writes.ended = writes.ended or Replaced(f"{destination} is not served here any more.")
            del self._writes[destination]
            self._changed.notify_all()

    # `Positions` --------------------------------------------------------------------------------------------

    def load(self, destination: str) -> dict[str, Subscribed]:
        writes = self._writes.get(destination)
        return {} if writes is None else dict(writes.stored)

    def store(self, destination: str, clients: Clients, *, durable: bool) -> None:
        if self._kind == "memory" or (self._kind == "period" and not durable):
            return
        with self._changed:
            writes = self._writes.get(destination)
            if writes is None or (durable and self._kind != "period"):
                return
            for client_id, value in clients.items():
                if writes.stored.get(client_id) != value:
                    writes.stored[client_id] = writes.pending[client_id] = value
            for client_id in writes.stored.keys() - clients.keys():
                writes.pending[client_id] = None
                del writes.stored[client_id]
            self._changed.notify_all()

    async def settled(self, destination: str) -> None:
        """Returns once what was stored before survives this server. Raises `PenstockError`."""
        writes = self._writes.get(destination)
        if self._kind != "zookeeper" or writes is None or not (writes.pending or writes.busy):
            return
        await asyncio.get_running_loop().run_in_executor(None, self._wait, writes)

    def _wait(self, writes: _Writes) -> None:
        with self._changed:
            writes.failed = None
            self._changed.wait_for(
                lambda: writes.ended or writes.failed or not (writes.pending or writes.busy), SETTLE_S
            )
            if writes.ended is not None:
                raise Replaced(str(writes.ended))
            if writes.pending or writes.busy:
                raise TransientError(f"positions cannot be stored: {writes.failed or 'no answer'}")

    # the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or any(self._due()))
                found = next(self._due(), None)
                if found is None:
                    return
                writes, taken = found, found.pending
                writes.busy, writes.pending = True, {}  # in this order: `settled` looks without the lock
            failed = self._write(writes, taken)
            with self._changed:
                writes.busy = False
                if isinstance(failed, Replaced):
                    log.warning("%s", failed)
                    writes.ended = failed
                elif failed is not None:
                    log.warning("positions of %s cannot be stored: %s", writes.term.destination, failed)
                    writes.failed = failed
                    writes.pending = {**taken, **writes.pending}
                self._changed.notify_all()
                if failed is not None and not self._stopping:
                    self._changed.wait_for(lambda: self._stopping, RETRY_S)

    def _due(self) -> Any:
        return (
            one
            for one in self._writes.values()
            if one.pending and one.ended is None and not (self._stopping and one.failed)
        )

    def _write(self, writes: _Writes, changes: dict[str, Subscribed | None]) -> PenstockError | None:
        """Writes to ZooKeeper. Returns the reason if that failed."""
        from kazoo.exceptions import KazooException

        term = writes.term
        try:
            for client_id, value in changes.items():
                if value is not None:
                    self._make(writes, client_id, value)
            transaction = self._zookeeper.client.transaction()
            term.check(transaction)
            for client_id, value in changes.items():
                if value is not None:
                    assert isinstance(value.place, Place)
                    place = replace(self._source_place(value.place), view=value.view)
                    data = nodes.cursor_data(place, self._source)
                    transaction.set_data(nodes.cursor(term.destination, client_id), data)
                    path = nodes.filter(term.destination, client_id)
                    if path in writes.made:
                        transaction.set_data(path, value.filter.encode())
            results = self._zookeeper.answer(transaction.commit_async())
            if any(isinstance(one, Exception) for one in results[:2]):
                return self._refused(term, results)
            wrong = next((one for one in results if isinstance(one, Exception)), None)
            if wrong is not None:
                writes.made.clear()  # somebody has removed one
                return TransientError(f"ZooKeeper says {type(wrong).__name__}")
            for client_id, value in changes.items():
                if value is None:
                    self._forget(writes, client_id)
        except KazooException as error:
            return TransientError(f"ZooKeeper says {type(error).__name__}")
        except PenstockError as error:
            return error
        return None

    def _refused(self, term: Term, results: list[Any]) -> PenstockError:
        from kazoo.exceptions import BadVersionError, NoNodeError

        if any(isinstance(one, (BadVersionError, NoNodeError)) for one in results[:2]):
            return Replaced(f"Another server serves {term.destination} now. No position was written.")
        return TransientError("ZooKeeper has refused a transaction")

    def _make(self, writes: _Writes, client_id: str, value: Subscribed) -> None:
        """Makes the nodes of a client, empty: that is a client which has acknowledged nothing."""
        client, name = self._zookeeper.client, writes.term.destination
        paths = [nodes.cursor(name, client_id)]
        paths += [nodes.filter(name, client_id)] if value.filter else []
        for path in paths:
            if path not in writes.made:
                self._zookeeper.answer(client.ensure_path_async(path))
                writes.made.add(path)

    def _forget(self, writes: _Writes, client_id: str) -> None:
        """Removes its nodes, but for the one that the client itself has."""
        from kazoo.exceptions import NoNodeError, NotEmptyError

        client, name = self._zookeeper.client, writes.term.destination
        for path in (nodes.filter(name, client_id), nodes.cursor(name, client_id)):
            writes.made.discard(path)
            if self._zookeeper.answer(client.exists_async(path)) is not None:
                transaction = client.transaction()
                writes.term.check(transaction)
                transaction.delete(path)
                self._zookeeper.answer(transaction.commit_async())
        try:
            self._zookeeper.answer(client.delete_async(nodes.client(name, client_id)))
        except (NotEmptyError, NoNodeError):
            return
