"""The relay logs of a server: one, or one for each of its `sources`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from penstock.model.offset import Offset
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.serve.log.destination_log import Clients, DestinationLog
from penstock.serve.log.merged_log import MergedLog
from penstock.serve.log.served_log import ServedLog, wait_until
from penstock.serve.log.source_log import SourceLog, check_receiver
from penstock.serve.settings import ServerConfig
from penstock.sources.supervisor import Supervisor


class SourceLogs:
    """The logs of all sources. `stack` closes what is opened. `threads`: see `SourceLog`."""

    def __init__(
        self, config: ServerConfig, file: Path, stack: ExitStack, stopping: threading.Event, threads: Executor
    ) -> None:
        self._config = config
        self._file = file
        self._stack = stack
        self._stopping = stopping
        self._threads = threads
        self._clients = Clients()
        self._by_name: dict[str, SourceLog] = {}

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
            made = SourceLog(served, pipeline.relay_log_path, self._threads, self._clients, supervisor)
            self._stack.callback(made.tails.stop)
            self._by_name[name] = made

    def _receiver(self, name: str, start_place: Callable[[str], str | None]) -> Supervisor | None:
        if self._config.logs[name].source is None:
            return None
        path = self._config.pipeline_of(name).relay_log_path
        start = None if RelayLog.exists(path) else start_place(name)
        made = Supervisor(self._file, path, start_place=start, source=name)
        self._stack.callback(made.stop)
        made.start()
        return made

    @property
    def all(self) -> list[SourceLog]:
        return list(self._by_name.values())

    def of(self, destination: str) -> DestinationLog:
        """The log that a destination reads."""
        logs = {name: self._by_name[name] for name in self._config.sources_of(destination)}
        if len(logs) == 1:
            [one] = logs.values()
            return one
        return MergedLog(logs, self._clients, self._config.destinations[destination].start)

    def check(self) -> None:
        for one in self.all:
            one.check()

    def keep(self, places: Iterable[dict[ServedLog, Offset]]) -> None:
        """Makes retention keep the log from these places on."""
        known = list(places)
        for one in self.all:
            needed = [each[one.served] for each in known if one.served in each]
            one.keep(min(needed, default=one.served.end))
