"""The log that a destination reads: that of one source (`source_log`), or of several, merged (`merged_log`).

Places, and readers, are those of the log: `Place` and `Reader` for one source, `Places` and `MergedReader`
for several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.model.offset import Offset
from penstock.serve.batches import AnyPlace, Block, Place
from penstock.serve.log.reader import Waiting
from penstock.serve.log.served_log import ServedLog
from penstock.serve.log.view import View
from penstock.sources.log_start import LogStart


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


class DestinationLog(Protocol):
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
