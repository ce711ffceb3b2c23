"""Where the entries of a destination come from: one relay log, or several that are merged.

Places, and readers, are those of the origin: `Place` and `Reader` for one log, `Places` and `MergedReader`
for several.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.model.offset import Offset
from penstock.serve.batches import AnyPlace, Block, Place, Places
from penstock.serve.log.merged_reader import MergedReader
from penstock.serve.log.reader import Reader
from penstock.serve.log.served_log import ServedLog
from penstock.serve.log.tails import Tails
from penstock.serve.log.view import View
from penstock.sources.log_start import LogStart

logger = logging.getLogger(__name__)


class Waiting(Protocol):
    """The set to which somebody adds a future that waits for more entries."""

    def add(self, waiter: asyncio.Future[None], /) -> None: ...

    def discard(self, waiter: asyncio.Future[None], /) -> None: ...


class AnyReader(Protocol):
    """See `Reader`."""

    @property
    def at(self) -> AnyPlace: ...

    @property
    def level(self) -> bool: ...

    @property
    def shares(self) -> bool: ...

    @property
    def waiting(self) -> Waiting: ...

    def has_read(self, end: Any, /) -> bool: ...

    def close(self) -> None: ...

    def ready(self) -> list[Block] | None: ...

    async def read(self, size: int) -> Block | None: ...

    async def wait(self, seconds: float, ended: asyncio.Future[Any]) -> bool: ...


@dataclass
class Clients:
    """How many clients use a subscription: they share what may be in memory."""

    connected: int = 0


class Origin(Protocol):
    clients: Clients

    @property
    def end(self) -> AnyPlace:
        """The place up to which it can be read."""

    def begin(self, start: LogStart) -> AnyPlace:
        """The place that a `start` means. Raises `ConfigError`."""

    def has(self, place: AnyPlace) -> bool:
        """Whether the log from this place on is still there."""

    def reaches(self, place: AnyPlace) -> bool:
        """Whether the log has been received up to this place."""

    def reader(self, view: View, place: AnyPlace) -> AnyReader: ...

    def behind(self, place: AnyPlace) -> dict[str, Any]:
        """How much log follows a place, and its position at the source."""

    def acknowledged(self, place: AnyPlace) -> dict[str, Any]:
        """A place as reports show it."""

    def needs(self, place: AnyPlace) -> dict[ServedLog, Offset]:
        """For each log, the offset from which it is needed to continue at a place."""

    def stored(self, place: AnyPlace) -> dict[str, Place]:
        """A place in the form that is stored: by the ids of the logs."""

    def restored(self, places: Mapping[str, Place], /) -> AnyPlace | None:
        """The place that was stored. A log that it does not have begins at the destination's `start`. None:
        it has none of these logs."""


class OneLog:
    """`Origin`."""

    def __init__(self, served: ServedLog, tails: Tails, threads: Executor, clients: Clients) -> None:
        self._served = served
        self._tails = tails
        self._threads = threads
        self.clients = clients

    @property
    def served(self) -> ServedLog:
        return self._served

    @property
    def end(self) -> Place:
        return Place(self._served.end)

    def begin(self, start: LogStart) -> Place:
        return Place(self._served.offset_of(start))

    def has(self, place: AnyPlace) -> bool:
        return isinstance(place, Place) and self._served.start <= place.offset <= self._served.end

    def reaches(self, place: AnyPlace) -> bool:
        return _one(place).offset <= self._served.end

    def reader(self, view: View, place: AnyPlace) -> Reader:
        return Reader(self._served, self._tails, view, _one(place), self._threads)

    def behind(self, place: AnyPlace) -> dict[str, Any]:
        return self._served.behind(_one(place).offset)

    def acknowledged(self, place: AnyPlace) -> dict[str, Any]:
        return {"offset": _one(place).offset}

    def needs(self, place: AnyPlace) -> dict[ServedLog, Offset]:
        return {self._served: _one(place).offset}

    def stored(self, place: AnyPlace) -> dict[str, Place]:
        return {self._served.id: _one(place)}

    def restored(self, places: Mapping[str, Place], /) -> Place | None:
        found = (self._served.place_in(log_id, one) for log_id, one in places.items())
        return next((one for one in found if one is not None), None)


class MergedLogs:
    """`Origin`. `logs`: by the names of the sources, in their order. `start`: of the destination."""

    def __init__(self, logs: Mapping[str, OneLog], clients: Clients, start: LogStart) -> None:
        self._start = start
        self._names = list(logs)
        self._logs: Sequence[OneLog] = list(logs.values())
        self._served = [one.served for one in self._logs]
        for one in self._served:
            one.is_merged = True
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
        return MergedReader(self._served, readers, _several(place))

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

    def _pairs(self, place: AnyPlace) -> list[tuple[OneLog, Place]]:
        return list(zip(self._logs, _several(place).each, strict=True))


def _one(place: AnyPlace) -> Place:
    assert isinstance(place, Place)
    return place


def _several(place: AnyPlace) -> Places:
    assert isinstance(place, Places)
    return place
