"""The logs of several sources, merged into one order (`merge`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.model.offset import Offset
from penstock.serve.batches import AnyPlace, Block, Place, Places
from penstock.serve.log.destination_log import Clients
from penstock.serve.log.merge import Merge, Seen
from penstock.serve.log.reader import Reader, wait_in
from penstock.serve.log.served_log import ServedLog
from penstock.serve.log.source_log import SourceLog
from penstock.serve.log.view import View
from penstock.sources.log_start import LogStart

logger = logging.getLogger(__name__)

HELD_BYTES_MAX = 1024**2
"""Bytes of one source that wait for the others."""
TAKE_BYTES = 1024**2
"""Bytes that are merged at once."""


class MergedLog:
    """`DestinationLog`. `logs`: by the names of the sources, in their order. `start`: of the destination."""

    def __init__(self, logs: Mapping[str, SourceLog], clients: Clients, start: LogStart) -> None:
        self._start = start
        self._names = list(logs)
        self._logs: Sequence[SourceLog] = list(logs.values())
        for one in self._logs:
            one.served.is_merged = True
        self.clients = clients

    @property
    def end(self) -> Places:
        return Places(tuple(one.end for one in self._logs))

    def begin(self, start: LogStart) -> Places:
        return Places(tuple(one.begin(start) for one in self._logs))

    def has(self, place: AnyPlace) -> bool:
        if not isinstance(place, Places) or len(place.each) != len(self._logs):
            return False
        return all(log.has(one) for log, one in zip(self._logs, place.each, strict=True))

    def reaches(self, place: AnyPlace) -> bool:
        return all(log.reaches(one) for log, one in self._pairs(place))

    def reader(self, view: View, place: AnyPlace) -> MergedReader:
        readers = [log.reader(view, one) for log, one in self._pairs(place)]
        return MergedReader([one.served for one in self._logs], readers, _several(place))

    def behind(self, place: AnyPlace) -> dict[str, Any]:
        """The sums over all sources (of seconds, the maximum), and the values of each source."""
        each = dict(zip(self._names, (log.behind(one) for log, one in self._pairs(place)), strict=True))
        sums = {
            name: sum(one.get(name, 0) for one in each.values())
            for name in ("behind_bytes", "behind_transactions")
        }
        seconds = max((one.get("behind_seconds", 0.0) for one in each.values()), default=0.0)
        return {**sums, "behind_seconds": seconds, "sources": each}

    def acknowledged(self, place: AnyPlace) -> dict[str, Any]:
        places = _several(place).each
        return {"offsets": {name: one.offset for name, one in zip(self._names, places, strict=True)}}

    def needs(self, place: AnyPlace) -> dict[ServedLog, Offset]:
        return {log.served: one.offset for log, one in self._pairs(place)}

    def stored(self, place: AnyPlace) -> dict[str, Place]:
        return {log.served.id: one for log, one in self._pairs(place)}

    def restored(self, places: Mapping[str, Place], /) -> Places | None:
        known = [log.restored(places) for log in self._logs]
        new, others = known.count(None), len(places) - len(known) + known.count(None)
        if new == len(known) or (new and others):
            return None  # the log of a source may have been replaced by another one
        found = []
        for name, log, one in zip(self._names, self._logs, known, strict=True):
            if one is None:
                logger.warning("the source %s is new: its changes begin at the destination's `start`", name)
            found.append(log.begin(self._start) if one is None else one)
        return Places(tuple(found))

    def _pairs(self, place: AnyPlace) -> list[tuple[SourceLog, Place]]:
        return list(zip(self._logs, _several(place).each, strict=True))


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


def _several(place: AnyPlace) -> Places:
    assert isinstance(place, Places)
    return place
