"""One client id of one destination: what it reads, has got and has acknowledged.

Everything here runs in the event loop; only `Reader.read` waits for a thread. At most one read runs at a
time. A rollback while it runs makes a new reader, and what the old one returns is dropped.

The relay log is the store: nothing is buffered for a client that is not there. What is read ahead for one
that is there is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from penstock.errors import PenstockError, TransientError
from penstock.serve.batches import (
    BATCH_BYTES_MAX,
    OUTSTANDING_MAX,
    AnyPlace,
    Block,
    Limit,
    Outstanding,
    ReadAhead,
    later,
)
from penstock.serve.filters import Filter
from penstock.serve.log.destination_log import AnyReader, DestinationLog
from penstock.serve.log.tails import Share
from penstock.serve.log.view import EntryFormat, View
from penstock.serve.positions import Subscribed
from penstock.serve.settings import DestinationSection

log = logging.getLogger(__name__)

BATCHES = Share(total=16 * 1024**2, most=BATCH_BYTES_MAX, least=128 * 1024)
"""Bytes of entries in a batch: each client may leave one unread."""
AHEAD = Share(total=8 * 1024**2, most=1024**2, least=64 * 1024)
"""Bytes that are read ahead while a client works on a batch, if its place is not among the newest entries. A
batch that is larger is read when it is asked for."""
WAITED_BYTES_MAX = BATCH_BYTES_MAX
"""Bytes of a batch that are read in two steps while its client waits for it."""
ITEMS_DEFAULT = 1000
"""Size of a batch for clients that ask for none, as in Canal."""
KIB = 1024
RELEASE_S = 5.0
"""How long a new connection waits for the one before it to end. A client that was killed and started again
connects before its old connection is seen to be closed."""
RETRY_S = 1.0
"""How long an error of the log is answered before it is tried again: it may cost much to find."""


class Refused(Exception):
    """The client's request cannot be fulfilled now. The text is for the client."""


class NotYet(Refused):
    """A request that can succeed later, here or at another server, without any change by a user."""


class Owner(Protocol):
    """A connection that uses the subscription."""

    @property
    def address(self) -> str: ...

    @property
    def idle_seconds(self) -> float:
        """How long the client has sent nothing, although it was not waiting for an answer."""

    def dismiss(self) -> None:
        """Ends the connection, because another connection or another server has taken over."""


class Subscription:
    """What a client has been given and has acknowledged. `stored` is called when `client` has changed, so
    that it can be stored. `served`: see `Destination.served`."""

    def __init__(
        self,
        log: DestinationLog,
        options: DestinationSection,
        client: Subscribed,
        *,
        stored: Callable[[], None],
        format: EntryFormat = "canal-entry",
        served: Callable[[], Awaitable[None]],
        given: int = 0,
    ) -> None:
        self._log = log
        self._options = options
        self._stored = stored
        self._served = served
        self._format: EntryFormat = format
        self.tables: Filter = options.tables.narrowed(client.filter)
        client = self.client = client.counted_by(self._view.digest)
        self.outstanding = Outstanding(given)
        self._ahead = ReadAhead()
        self._next = client.place
        """The place behind everything that was given to the client."""
        self._reader = self._reader_at(self._next)
        self._reading: asyncio.Task[None] | None = None
        self._failed: tuple[float, PenstockError] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.owner: Owner | None = None
        self.last_owner: Owner | None = None
        """While there is no owner, the one before. Batches that it was given can still be acknowledged."""
        self._freed = asyncio.Event()

    # who uses it --------------------------------------------------------------------------------------------

    async def claim(self, owner: Owner, takeover_seconds: float) -> None:
        """Makes `owner` the one connection that uses it. Raises `Refused` while another one does."""
        deadline = time.monotonic() + RELEASE_S
        while self.owner is not None and self.owner is not owner:
            if self.owner.idle_seconds > takeover_seconds:
                self.owner.dismiss()
                break
            left = deadline - time.monotonic()
            if left <= 0:
                raise Refused(f"another client with this id is connected from {self.owner.address}")
            self._freed.clear()
            try:
                await asyncio.wait_for(self._freed.wait(), min(left, 1.0))
            except asyncio.TimeoutError:
                continue
        if self.owner is not owner:
            self._log.clients.connected += self.owner is None
            self.owner, self.last_owner = owner, None
            if not self._options.faithful:
                self.roll_back()

    def release(self, owner: Owner) -> None:
        if self.owner is owner:
            self.owner, self.last_owner = None, owner
            self._log.clients.connected -= 1
            self._drop_ahead()
            self._freed.set()

    # requests -----------------------------------------------------------------------------------------------

    def filter_by(self, text: str) -> None:
        """Sets the filter that the client asks for. Empty: all tables of the destination. Raises
        `BadFilter`."""
        if text == self.client.filter:
            return
        self.tables = self._options.tables.narrowed(text)
        self.client = replace(self.client, filter=text).counted_by(self._view.digest)
        self.roll_back()
        self._stored()

    async def get(self, size: int, timeout: float | None, gone: asyncio.Event) -> tuple[int, list[Block]]:
        """The next batch: its id and entries. The id is -1 if there is nothing until the timeout, or when the
        client is `gone` (see `wake`). Raises `Refused`.

        What the log has now belongs to the batch, if it fits. What comes later does not delay it."""
        if len(self.outstanding) >= OUTSTANDING_MAX:
            raise Refused(f"{OUTSTANDING_MAX} batches are not acknowledged yet")
        limit, end_now = self._limit(size), self._log.end
        deadline = None if not timeout else time.monotonic() + timeout
        full = self._options.faithful and timeout is not None
        while not gone.is_set():
            await self._served()
            self._take_ready(limit)
            at_end = self._reading is None and (self._reader.level or self._failed is not None)
            expired = timeout is None or (deadline is not None and time.monotonic() >= deadline)
            more = (full and not expired) or (not at_end and not self._reader.has_read(end_now))
            found = self._ahead.take(limit, more=more, whole=not at_end)
            if found is not None:
                blocks, end = found
                batch = self.outstanding.add(self._next, end)
                self._next = end
                self._read_ahead()
                return batch.id, blocks
            self._check()
            if at_end and expired:
                self._pass()
                break
            self._read_ahead(wanted=limit.size)
            await self._wait(deadline if at_end else None)
        return -1, []

    def _limit(self, size: int) -> Limit:
        size = size if size > 0 else ITEMS_DEFAULT
        most = BATCHES.of(self._log.clients.connected)
        if self._format == "arrow":  # an entry has rows of one definition
            return Limit(items=1, size=most)
        if self._options.batch == "items" or self._format == "json":
            return Limit(items=size, size=most)
        return Limit(size=min(size * KIB, most))

    def acknowledge(self, batch_id: int) -> None:
        """Acknowledges the oldest batch. Raises `Refused`."""
        try:
            place = self.outstanding.acknowledge(batch_id)
        except ValueError as error:
            raise Refused(str(error)) from None
        self.client = replace(self.client, place=place)
        self._stored()

    def roll_back(self, batch_id: int = 0) -> None:
        """Gives a batch and all later ones again; 0: all that were not acknowledged. Raises `Refused`."""
        try:
            place = self.outstanding.roll_back(batch_id)
        except ValueError as error:
            raise Refused(str(error)) from None
        if not batch_id:
            place = self.client.place
        if place is not None and place != self._next:
            self._next = place
        self._drop_ahead()
        self._read_ahead()

    def _pass(self) -> None:
        """Moves the client's place forward over log that has nothing for it, if everything before was given
        and acknowledged. So that log is not kept for the client."""
        passed = later(self.client.place, self._reader.at.outside)
        if not self.outstanding and not self._ahead and passed != self.client.place:
            self._next = passed
            self.client = replace(self.client, place=passed)

    def behind(self) -> dict[str, Any]:
        """See `ServedLog.behind`. What the log has behind the last change for this client does not count."""
        place = self.client.place
        if not self.outstanding and not self._ahead and self._reader.level:
            place = later(place, self._reader.at.outside)
        return self._log.behind(place)

    # reading ------------------------------------------------------------------------------------------------

    @property
    def _view(self) -> View:
        return View.of(self._options, self.tables, self._format)

    def _reader_at(self, place: AnyPlace) -> AnyReader:
        return self._log.reader(self._view, place)

    def _drop_ahead(self) -> None:
        """Drops what was read ahead. Reading continues at `_next`."""
        self._ahead.clear()
        self._reader.close()
        self._reader = self._reader_at(self._next)
        self._failed = None
        self.wake()

    def _take_ready(self, limit: Limit) -> None:
        """Takes what the shared tail has, if that is not more than a batch needs."""
        if self._reading is not None or self._failed is not None:
            return
        if self._ahead.bytes > limit.size or (limit.items and self._ahead.items > limit.items):
            return
        for block in self._reader.ready() or ():
            self._ahead.add(block)

    def _read_ahead(self, wanted: int = 0) -> None:
        """Begins to read the log, unless the shared tail has what follows, or enough is ahead. `wanted`:
        bytes of the batch that a client waits for. It is read in few steps, since each changes threads."""
        if self._failed is not None or self._reading is not None:
            return
        if self._reader.shares or self._reader.level:
            return
        most = AHEAD.of(self._log.clients.connected)
        if wanted or self._ahead.bytes <= most:
            size = max(most, min(wanted, WAITED_BYTES_MAX)) // 2
            self._reading = asyncio.get_running_loop().create_task(self._read(self._reader, size))

    async def _read(self, reader: AnyReader, size: int) -> None:
        block: Block | None = None
        failed: PenstockError | None = None
        try:
            block = await reader.read(size)
        except PenstockError as error:
            failed = error
        except Exception as error:  # a bug must not look like an empty log
            log.exception("a subscription cannot be read")
            failed = PenstockError(f"The log cannot be read: {type(error).__name__}.")
        self._reading = None
        self.wake()
        if reader is not self._reader:
            return
        if failed is not None:
            log.warning("a subscription cannot be read: %s", failed)
            # What was read before it is given first.
            self._failed = time.monotonic(), failed
        elif block is not None:
            self._ahead.add(block)
        if self.owner is not None:
            self._read_ahead()

    def _check(self) -> None:
        if self._failed is None:
            return
        at, error = self._failed
        if time.monotonic() > at + RETRY_S:
            self._drop_ahead()
        else:
            raise (NotYet if isinstance(error, TransientError) else Refused)(str(error))

    def wake(self) -> None:
        """Makes a waiting `get` look for new entries again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, deadline: float | None) -> None:
        """Waits until there may be new entries, until `wake` is called, or until the deadline."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        if self._reading is None:
            self._reader.waiting.add(waiter)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        timer = None if left is None else loop.call_later(left, self.wake)
        try:
            await waiter
        finally:
            self._waiter = None
            self._reader.waiting.discard(waiter)
            if timer is not None:
                timer.cancel()
