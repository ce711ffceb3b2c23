"""Reads a view of several logs, merged into one order (`merge`), for one subscriber."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.serve.batches import Block, Places
from penstock.serve.log.merge import Merge, Seen
from penstock.serve.log.reader import Reader, wait_in
from penstock.serve.log.served_log import ServedLog

HELD_BYTES_MAX = 1024**2
"""Bytes of one source that wait for the others."""
TAKE_BYTES = 1024**2
"""Bytes that are merged at once."""


class MergedReader:
    """`reader.Reader` for several logs. In the event loop, by one task at a time."""

    def __init__(self, logs: Sequence[ServedLog], readers: Sequence[Reader], place: Places) -> None:
        self._logs = logs
        self._readers = readers
        self._merge = Merge(place)

    @property
    def at(self) -> Places:
        """The place behind the last entry that was returned."""
        return self._merge.place

    @property
    def level(self) -> bool:
        """Whether everything in the logs was returned, except what has to wait for another source."""
        return not self._unread() and not self._merge.can_take(self._seen())

    @property
    def shares(self) -> bool:
        """Whether the next entries come from tails that other readers use, too."""
        return not any(not self._readers[number].shares for number in self._unread())

    def has_read(self, ends: Places) -> bool:
        """Whether everything up to these places was returned."""
        pairs = zip(self._readers, ends.each, strict=True)
        return not any(self._merge.sizes) and all(one.has_read(end) for one, end in pairs)

    def close(self) -> None:
        for one in self._readers:
            one.close()

    def ready(self) -> list[Block] | None:
        """See `Reader.ready`."""
        for number, reader in enumerate(self._readers):
            if not self._is_full(number):
                self._add(number, reader.ready() or ())
        merged = self._taken()
        if merged is not None:
            return [merged]
        return [] if self.shares else None

    async def read(self, size: int) -> Block | None:
        """See `Reader.read`."""
        wanted = [number for number in self._unread() if not self._readers[number].shares]
        blocks = await asyncio.gather(*(self._readers[number].read(size) for number in wanted))
        for number, block in zip(wanted, blocks, strict=True):
            self._add(number, () if block is None else (block,))
        return self._taken()

    @property
    def waiting(self) -> _Waiting:
        return _Waiting([one.waiting for one in self._readers])

    async def wait(self, seconds: float, ended: asyncio.Future[Any]) -> bool:
        """See `Reader.wait`."""
        return await wait_in(self.waiting, seconds, ended)

    def _add(self, number: int, blocks: Sequence[Block]) -> None:
        for one in blocks:
            self._merge.add(number, one.pieces)

    def _taken(self) -> Block | None:
        return Block.of(self._merge.take(self._seen(), TAKE_BYTES))

    def _is_full(self, number: int) -> bool:
        return self._merge.sizes[number] >= HELD_BYTES_MAX

    def _unread(self) -> list[int]:
        """The sources of which more can be read."""
        return [
            number for number, one in enumerate(self._readers) if not one.level and not self._is_full(number)
        ]

    def _seen(self) -> list[Seen]:
        found = []
        for log, reader in zip(self._logs, self._readers, strict=True):
            passed = reader.passed
            found.append(Seen(passed, log.reached_us(passed) if reader.level else None))
        return found


class _Waiting:
    """Sets of futures, as one."""

    def __init__(self, sets: list[set[asyncio.Future[None]]]) -> None:
        self._sets = sets

    def add(self, waiter: asyncio.Future[None]) -> None:
        for one in self._sets:
            one.add(waiter)

    def discard(self, waiter: asyncio.Future[None]) -> None:
        for one in self._sets:
            one.discard(waiter)
