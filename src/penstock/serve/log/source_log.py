"""The relay log of one source, with what serves it: a receiver, a thread that follows the log, the tails that
subscribers share, and a place among the readers of the log, so that retention keeps what clients need."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from penstock.errors import START_OVER, PenstockError
from penstock.model.offset import Offset
from penstock.relaylog.consumers import Consumer
from penstock.serve.batches import AnyPlace, Place
from penstock.serve.log.destination_log import Clients
from penstock.serve.log.reader import Reader
from penstock.serve.log.served_log import ServedLog
from penstock.serve.log.tails import Tails
from penstock.serve.log.view import View
from penstock.sources.log_start import LogStart
from penstock.sources.supervisor import Supervisor

NEW_LOG = (
    "begin with a new log: move the relay log and the positions away, and start the server again. Its "
    "clients then begin at the destination's `start`. They do not get the changes in between, so they must "
    "load their tables again."
)
"""Hint for losses that cannot be repaired."""


class SourceLog:
    """`DestinationLog`. `folder`: of the relay log. `threads`: in which subscribers read what no tail has.
    `supervisor`: of the receiver; None: somebody else runs it."""

    def __init__(
        self, served: ServedLog, folder: Path, threads: Executor, clients: Clients,
        supervisor: Supervisor | None = None,
    ) -> None:  # fmt: skip
        self.served = served
        self.tails = Tails(served)
        self.clients = clients
        self._folder = folder
        self._threads = threads
        self._supervisor = supervisor
        self._consumer: Consumer | None = None

    def check(self) -> None:
        """Raises the error that ended the receiver for good."""
        if self._supervisor is not None:
            check_receiver(self._supervisor)

    def register(self, name: str, needs: Offset) -> Consumer:
        """Keeps the log from this place on, from now on."""
        self._consumer = Consumer(self._folder, name, needs=needs)
        return self._consumer

    def keep(self, needs: Offset) -> None:
        assert self._consumer is not None
        self._consumer.needs(needs)

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tails.begin(loop)
        self.served.start_following(self.tails.advance)

    # for destinations ---------------------------------------------------------------------------------------

    @property
    def end(self) -> Place:
        return Place(self.served.end)

    def begin(self, start: LogStart) -> Place:
        return Place(self.served.offset_of(start))

    def has(self, place: AnyPlace) -> bool:
        return isinstance(place, Place) and self.served.start <= place.offset <= self.served.end

    def reaches(self, place: AnyPlace) -> bool:
        return _one(place).offset <= self.served.end

    def reader(self, view: View, place: AnyPlace) -> Reader:
        return Reader(self.served, self.tails, view, _one(place), self._threads)

    def behind(self, place: AnyPlace) -> dict[str, Any]:
        return self.served.behind(_one(place).offset)

    def acknowledged(self, place: AnyPlace) -> dict[str, Any]:
        return {"offset": _one(place).offset}

    def needs(self, place: AnyPlace) -> dict[ServedLog, Offset]:
        return {self.served: _one(place).offset}

    def stored(self, place: AnyPlace) -> dict[str, Place]:
        return {self.served.id: _one(place)}

    def restored(self, places: Mapping[str, Place], /) -> Place | None:
        found = (self.served.place_in(log_id, one) for log_id, one in places.items())
        return next((one for one in found if one is not None), None)


def _one(place: AnyPlace) -> Place:
    assert isinstance(place, Place)
    return place


def check_receiver(supervisor: Supervisor) -> None:
    """Raises the error that ended the receiver for good, with the cure for a server, which has no tables."""
    try:
        supervisor.check()
    except PenstockError as error:
        error.hint = error.hint.replace(START_OVER, NEW_LOG)
        raise
