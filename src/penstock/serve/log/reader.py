"""Reads a view of the log from a place on, for one subscriber: from the tail that all subscribers of the view
share if the place is in its window, and from the log itself otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from penstock.model.offset import Offset
from penstock.serve.batches import Block, Piece, Place
from penstock.serve.log.scan import Scan, scan_of
from penstock.serve.log.served_log import ServedLog
from penstock.serve.log.tails import Tail, Tails
from penstock.serve.log.view import View


class Reader:
    """Reads for one subscription, in the event loop, by one task at a time. `at`: the place behind everything
    that was returned."""

    def __init__(self, served: ServedLog, tails: Tails, view: View, place: Place, threads: Executor) -> None:
        self._served = served
        self._tails = tails
        self._view = view
        self._threads = threads
        self.at = place
        self._scan: Scan | None = None
        self._read_to: Offset | None = None
        """The log's end when the scan had nothing more."""
        self._tail: Tail | None = None
        self._number = 0
        """The number of the next block of the tail."""

    @property
    def level(self) -> bool:
        """Whether everything in the log was returned."""
        if self._tail is not None:
            return self._tail.level and self._number == self._tail.window.next
        return self._read_to == self._served.end

    @property
    def passed(self) -> Offset:
        """The place up to which all entries were returned."""
        return self.at.offset

    def has_read(self, end: Place) -> bool:
        """Whether everything up to this place was returned."""
        return self.passed >= end.offset

    @property
    def shares(self) -> bool:
        """Whether it takes its entries from a tail that other readers use, too."""
        return self._tail is not None

    def close(self) -> None:
        if self._tail is not None:
            self._tails.leave(self._tail)
            self._tail = None

    def ready(self) -> list[Block] | None:
        """The next blocks of the tail. Empty: it has nothing new. None: this reader has no tail, so `read`
        reads the log."""
        if self._tail is None:
            return self._joined()
        blocks = None if self._tail.ended else self._tail.window.since(self._number)
        if blocks is None:
            self.close()
            return self._joined()
        return self._taken(self._tail, blocks)

    def _joined(self) -> list[Block] | None:
        if self.at.entries:  # the tail may count the entries of this transaction from another offset
            return None
        found = self._tails.join(self._view, self.at, at_end=self._read_to is not None)
        if found is None:
            return None
        self._tail, self._number, rest = found
        self._scan = self._read_to = None
        blocks = self._tail.window.since(self._number) or []
        return self._taken(self._tail, blocks if rest is None else [rest, *blocks])

    def _taken(self, tail: Tail, blocks: list[Block]) -> list[Block]:
        self._number = tail.window.next
        if blocks:
            self.at = _behind(blocks[-1].pieces)
        self.at = max(self.at, Place(tail.window.passed))
        return [one for one in blocks if one.items]

    async def read(self, size: int) -> Block | None:
        """The next entries of the log, about `size` bytes. None: there are none for now. Raises
        `PenstockError`."""
        scan = self._scan = self._scan or scan_of(self._served, self._view, self.at)
        end = self._served.end
        pieces = await asyncio.get_running_loop().run_in_executor(self._threads, scan.read, size)
        if pieces is None:
            self._read_to = end
        elif pieces:
            self.at = _behind(pieces)
        self.at = max(self.at, Place(scan.passed))
        return Block.of(pieces or ())

    @property
    def waiting(self) -> set[asyncio.Future[None]]:
        """Futures that are done when there may be more."""
        return self._tails.waiting if self._tail is None else self._tail.waiting

    async def wait(self, seconds: float, ended: asyncio.Future[Any]) -> bool:
        """Waits until there may be more, or `ended` is done. Returns False after `seconds` without either."""
        return await wait_in(self.waiting, seconds, ended)


class Waiting(Protocol):
    """A set of futures."""

    def add(self, waiter: asyncio.Future[None], /) -> None: ...

    def discard(self, waiter: asyncio.Future[None], /) -> None: ...


async def wait_in(waiting: Waiting, seconds: float, ended: asyncio.Future[Any]) -> bool:
    """Waits until `waiting` is woken, or `ended` is done. Returns False after `seconds` without either."""
    waiter = asyncio.get_running_loop().create_future()
    waiting.add(waiter)
    try:
        done, _ = await asyncio.wait((waiter, ended), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        waiting.discard(waiter)
        waiter.cancel()


def _behind(pieces: Sequence[Piece]) -> Place:
    return pieces[-1].own_place(len(pieces[-1].entries))
