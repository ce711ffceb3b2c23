"""One client id of one destination: what it reads, has got and has acknowledged.

Everything here runs in the event loop, but for `Feed.read`, which runs in a thread. At most one read runs at
a time. A rollback while it runs makes a new feed, and what the old one returns is dropped.

The relay log is the store: nothing is buffered for a client that is not there. What is read ahead for one
that is there is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.serve.batches import (
    BATCH_BYTES_MAX,
    OUTSTANDING_MAX,
    Limit,
    Outstanding,
    Piece,
    Place,
    ReadAhead,
)
from penstock.serve.feed import Feed
from penstock.serve.filters import Filter
from penstock.serve.log import ServedLog
from penstock.serve.positions import Subscribed
from penstock.serve.settings import DestinationSection

log = logging.getLogger(__name__)

AHEAD_BYTES = 2 * 1024**2
"""Bytes that are read ahead while a client works on a batch. A batch that is larger is read when it is asked
for."""
ITEMS_DEFAULT = 1000
"""Size of a batch for clients that ask for none, as in Canal."""
KIB = 1024
RELEASE_S = 5.0
"""How long a new connection waits for the one before it to end. A client that was killed and started again
connects before its old connection is seen to be closed."""
RETRY_S = 1.0
"""How long an error of the log is answered before it is tried again: it may cost much to find."""


class Refused(Exception):
    """What the client asks for cannot be done now; it gets the text."""


class Owner(Protocol):
    """A connection that uses the subscription."""

    @property
    def address(self) -> str: ...

    @property
    def idle_seconds(self) -> float:
        """How long the client has sent nothing, while nobody made it wait."""

    def dismiss(self) -> None:
        """Another connection has taken its place."""


class Subscription:
    """`stored` is called when `client` has changed, which is what must be remembered."""

    def __init__(
        self,
        served: ServedLog,
        options: DestinationSection,
        client: Subscribed,
        *,
        threads: Executor,
        stored: Callable[[], None],
    ) -> None:
        self._served = served
        self._options = options
        self._threads = threads
        self._stored = stored
        self.client = client
        self.tables: Filter = options.tables.narrowed(client.filter)
        self.outstanding = Outstanding()
        self._ahead = ReadAhead()
        self._next = client.place
        """Behind everything that was given."""
        self._feed = self._feed_at(self._next)
        self._reading: asyncio.Task[None] | None = None
        self._level = False
        """The feed has returned everything that the log has."""
        self._changed = asyncio.Event()
        self._failed: tuple[float, PenstockError] | None = None
        self.owner: Owner | None = None
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
            self.owner = owner
            if not self._options.faithful:
                self.roll_back()
            self._read_ahead()

    def release(self, owner: Owner) -> None:
        if self.owner is owner:
            self.owner = None
            self._drop_ahead()
            self._freed.set()

    # requests -----------------------------------------------------------------------------------------------

    def filter_by(self, text: str) -> None:
        """The client asks for the tables of a filter from now on; empty: for all of the destination. Raises
        `BadFilter`."""
        if text == self.client.filter:
            return
        self.tables = self._options.tables.narrowed(text)
        # Entries inside of a transaction are counted by the filter.
        self.client = Subscribed(Place(self.client.place.offset), text)
        self.roll_back()
        self._stored()

    async def get(self, size: int, timeout: float | None, gone: asyncio.Event) -> tuple[int, list[bytes]]:
        """The next batch: its id and entries. The id is -1 if there is nothing until the timeout, or when the
        client is `gone`. Raises `Refused`."""
        if len(self.outstanding) >= OUTSTANDING_MAX:
            raise Refused(f"{OUTSTANDING_MAX} batches are not acknowledged yet")
        limit = self._limit(size)
        deadline = None if not timeout else time.monotonic() + timeout
        full = self._options.faithful and timeout is not None
        while True:
            at_end = self._level and self._reading is None
            expired = timeout is None or (deadline is not None and time.monotonic() >= deadline)
            found = self._ahead.take(limit, more=not at_end or (full and not expired))
            if found is not None:
                entries, end = found
                batch = self.outstanding.add(self._next, end)
                self._next = end
                self._read_ahead()
                return batch.id, entries
            self._check()
            if at_end and expired:
                self._pass()
                return -1, []
            self._changed.clear()
            self._read_ahead(wanted=self._ahead.bytes)
            if self._reading is None and not self._level:
                continue
            await self._wait(deadline if at_end else None, gone)
            if gone.is_set():
                return -1, []

    def _limit(self, size: int) -> Limit:
        size = size if size > 0 else ITEMS_DEFAULT
        if self._options.batch == "items":
            return Limit(items=size)
        return Limit(bytes=min(size * KIB, BATCH_BYTES_MAX))

    def acknowledge(self, batch_id: int) -> None:
        """Raises `Refused`."""
        try:
            place = self.outstanding.acknowledge(batch_id)
        except ValueError as error:
            raise Refused(str(error)) from None
        self.client = Subscribed(place, self.client.filter)
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
        """Everything was given and acknowledged, and the log goes on without anything for this client: what
        was passed is not needed any more."""
        passed = Place(self._feed.passed)
        if not self.outstanding and not self._ahead and passed > self.client.place:
            self._next = passed
            self.client = Subscribed(passed, self.client.filter)

    def behind(self) -> dict[str, Any]:
        """See `ServedLog.behind`. What the log has behind the last change for this client does not count."""
        place = self.client.place.offset
        if not self.outstanding and not self._ahead and self._level:
            place = max(place, self._feed.passed)
        return self._served.behind(place)

    # reading ------------------------------------------------------------------------------------------------

    def log_has_grown(self) -> None:
        self._level = False
        if self.owner is not None:
            self._read_ahead()

    def _feed_at(self, place: Place) -> Feed:
        return Feed(self._served, self.tables, self._options, place)

    def _drop_ahead(self) -> None:
        """Goes on from `_next`."""
        self._ahead.clear()
        self._feed = self._feed_at(self._next)
        self._level = False
        self._failed = None
        self._changed.set()

    def _read_ahead(self, wanted: int = 0) -> None:
        """Begins to read, unless enough is ahead: at least `wanted` bytes, if a client waits for them."""
        if self._failed is not None or self._reading is not None or self._level:
            return
        if self._ahead.bytes <= max(AHEAD_BYTES, wanted):
            self._reading = asyncio.get_running_loop().create_task(self._read(self._feed))

    async def _read(self, feed: Feed) -> None:
        pieces: list[Piece] | None = []
        failed: PenstockError | None = None
        end = self._served.end
        try:
            pieces = await asyncio.get_running_loop().run_in_executor(self._threads, feed.read)
        except PenstockError as error:
            failed = error
        except Exception as error:  # a bug must not look like an empty log
            log.exception("a subscription cannot be read")
            failed = PenstockError(f"The log cannot be read: {type(error).__name__}.")
        self._reading = None
        self._changed.set()
        if feed is not self._feed:
            self._read_ahead()
            return
        if failed is not None:
            log.warning("a subscription cannot be read: %s", failed)
            # What was read before it is given first.
            self._failed, self._level = (time.monotonic(), failed), True
        elif pieces is None:
            self._level = end == self._served.end
        else:
            self._ahead.add(pieces)
        if self.owner is not None:
            self._read_ahead()

    def _check(self) -> None:
        if self._failed is None:
            return
        at, error = self._failed
        if time.monotonic() > at + RETRY_S:
            self._drop_ahead()
        else:
            raise Refused(str(error))

    async def _wait(self, deadline: float | None, gone: asyncio.Event) -> None:
        """Until something was read, the client is gone, or the deadline has passed."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        waits = [asyncio.ensure_future(one.wait()) for one in (self._changed, gone)]
        try:
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
