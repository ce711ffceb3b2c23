"""The relay logs of a server: one, or one for each of its `sources`. Each has a receiver, a thread that
follows it, and a place among the readers of the log, so that retention keeps what clients need."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from penstock.errors import START_OVER, PenstockError
from penstock.model.offset import Offset
from penstock.relaylog.consumers import Consumer
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.serve.log.origin import Clients, MergedLogs, OneLog, Origin
from penstock.serve.log.served_log import ServedLog, wait_until
from penstock.serve.log.tails import Tails
from penstock.serve.settings import ServerConfig
from penstock.sources.supervisor import Supervisor

NEW_LOG = (
    "begin with a new log: move the relay log and the positions away, and start the server again. Its "
    "clients then begin at the destination's `start`. They do not get the changes in between, so they must "
    "load their tables again."
)
"""Hint for losses that cannot be repaired."""


class SourceLog:
    """The relay log of one source. `name`: of the source; empty if the file has `source` and `relay_log`."""

    def __init__(self, config: ServerConfig, name: str, served: ServedLog, supervisor: Supervisor | None):
        self.name = name
        self.served = served
        self.tails = Tails(served)
        self._pipeline = config.pipeline_of(name)
        self._supervisor = supervisor
        self._consumer: Consumer | None = None

    def check(self) -> None:
        """Raises the error that ended the receiver for good."""
        if self._supervisor is not None:
            check_receiver(self._supervisor)

    def register(self, name: str, needs: Offset) -> Consumer:
        """Keeps the log from this place on, from now on."""
        self._consumer = Consumer(self._pipeline.relay_log_path, name, needs=needs)
        return self._consumer

    def keep(self, needs: Offset) -> None:
        assert self._consumer is not None
        self._consumer.needs(needs)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tails.begin(loop)
        self.served.start_following(self.tails.advance)


def check_receiver(supervisor: Supervisor) -> None:
    """Raises the error that ended the receiver for good, with the cure for a server, which has no tables."""
    try:
        supervisor.check()
    except PenstockError as error:
        error.hint = error.hint.replace(START_OVER, NEW_LOG)
        raise


class SourceLogs:
    """The logs of all sources. `stack` closes what is opened."""

    def __init__(self, config: ServerConfig, file: Path, stack: ExitStack, stopping: threading.Event) -> None:
        self._config = config
        self._file = file
        self._stack = stack
        self._stopping = stopping
        self._clients = Clients()
        self.all: list[SourceLog] = []

    def open(self, start_place: Callable[[str], str | None]) -> None:
        """Starts the receivers, and finds the definitions of tables. `start_place`: what the new relay log of
        a source must have; None: as the file says. Raises `PenstockError`, and `TransientError` if it is
        stopped meanwhile."""
        supervisors = {name: self._receiver(name, start_place) for name in self._config.logs}
        for name, supervisor in supervisors.items():
            check = (lambda: None) if supervisor is None else partial(check_receiver, supervisor)
            pipeline = self._config.pipeline_of(name)
            wait = wait_until(check, self._stopping, pipeline.relay_log.catch_up_timeout / 1000)
            # A receiver restores the log from its archive, and says so in the folder.
            place = LogPlace.of(pipeline).or_archive if supervisor is None else pipeline.relay_log_path
            wait(lambda place=place: RelayLog.exists(place), f"the relay log in {place}")
            served = ServedLog.of(self._config, name)
            self._stack.callback(served.close)
            served.begin(wait)
            made = SourceLog(self._config, name, served, supervisor)
            self._stack.callback(made.tails.stop)
            self.all.append(made)

    def _receiver(self, name: str, start_place: Callable[[str], str | None]) -> Supervisor | None:
        if self._config.logs[name].source is None:
            return None
        path = self._config.pipeline_of(name).relay_log_path
        start = None if RelayLog.exists(path) else start_place(name)
        made = Supervisor(self._file, path, start_place=start, source=name)
        self._stack.callback(made.stop)
        made.start()
        return made

    def origin(self, destination: str, threads: Executor) -> Origin:
        """The log, or the logs, that a destination reads."""
        known = {one.name: one for one in self.all}
        logs = {
            name: OneLog(known[name].served, known[name].tails, threads, self._clients)
            for name in self._config.sources_of(destination)
        }
        if len(logs) == 1:
            [one] = logs.values()
            return one
        return MergedLogs(logs, self._clients, self._config.destinations[destination].start)

    def check(self) -> None:
        for one in self.all:
            one.check()

    def keep(self, places: Iterable[dict[ServedLog, Offset]]) -> None:
        """Makes retention keep the log from these places on."""
        known = list(places)
        for one in self.all:
            needed = [each[one.served] for each in known if one.served in each]
            one.keep(min(needed, default=one.served.end))
