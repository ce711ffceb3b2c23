"""The loop of a receiver: one session after the other, each of which continues the relay log.

Each source says what its session is: it asks the source for what the log does not have, and appends what
comes. A session that fails is followed by another one, after a pause that grows while nothing comes.
"""

from __future__ import annotations

import json
import time
import uuid as uuids
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from penstock.backoff import Backoff, Schedule
from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.disk.replace import replace_file
from penstock.errors import ConfigError, TransientError
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import FORMAT, RELAY_FILE, read_relay
from penstock.relaylog.segment_format import format_of
from penstock.relaylog.status import StatusFile
from penstock.relaylog.upkeep import Upkeep
from penstock.relaylog.writer import DiskFull, RelayLogWriter
from penstock.sources.stop_signals import Stopping

RECONNECT_FIRST_S = 0.2
"""Seconds until the second session."""


class SessionReceiver(ABC):
    """Writes the relay log of one pipeline. `run` raises the error that ends it.

    `reconnect_max_ms`: the longest pause between two sessions. `address`: where the source is, for reports.
    """

    segment_format: str
    """What the segments of this source's log hold (`relaylog/segment_format.py`)."""

    def __init__(
        self, config: PipelineConfig, stopping: Stopping, *, reconnect_max_ms: int, address: Mapping[str, Any]
    ) -> None:
        self.config = config
        self.stopping = stopping
        self.place = LogPlace.of(config)
        self.folder = config.relay_log_path
        self.upkeep = Upkeep(self.place, config.relay_log, lambda: bool(stopping))
        self._reconnect = Backoff(Schedule(first_s=RECONNECT_FIRST_S, max_s=reconnect_max_ms / 1000))
        self._address = dict(address)
        self._connected_once = False
        self._bytes = 0
        """Bytes received since the start."""
        self._unfinished = 0
        """Bytes of the transaction that was being written when the last session ended."""

    def run(self) -> None:
        """Receives until it is stopped. Raises `LeaseHeld` at once if another receiver writes this log."""
        directory.make(self.folder, "relay_log.path")
        directory.close_to_others(self.folder, "relay_log.path")
        self._check_format()
        self.writer = RelayLogWriter(
            self.folder,
            self.config.relay_log,
            on_committed=self.stopping.wake,
            prepare=self.upkeep.prepare,
        )
        self.status = StatusFile(self.folder, self.writer.lease.generation)
        self.status.facts["source"] = self._address
        with self.upkeep.until_end(self.writer, self.status):
            self.relay = self._relay()
            self._sessions()

    @abstractmethod
    def _session(self) -> None:
        """Continues the log until it is asked to stop, or to connect again."""

    def _trouble(self, error: Exception, *, progressed: bool) -> TransientError:
        """Returns what another session may mend, and raises every other error. `progressed`: whether the
        session has received anything."""
        if not isinstance(error, TransientError):
            raise error
        if not self._connected_once and not RelayLog.exists(self.folder):
            raise ConfigError(error.message, hint=error.hint, **error.details) from error
        return error

    def _check_format(self) -> None:
        """Raises `ConfigError` if the log is of another kind of source, or of a version that wrote it in
        another format."""
        if not (self.folder / RELAY_FILE).exists():
            return
        found = format_of(read_relay(self.folder))
        if found != self.segment_format:
            raise ConfigError(
                f"The relay log {self.folder} has segments of the format {found}. With `source.type: "
                f"{self.config.source.type}`, Penstock writes the format {self.segment_format}.",
                hint="Begin again with a new `state` and `relay_log.path`. The old log stays readable.",
            )

    def _create(self, source: Mapping[str, Any], start: Mapping[str, Any], **facts: str) -> None:
        """Writes `relay.json` when the source is known, if it is not there yet."""
        if "source" in self.relay:
            return
        self.relay |= {**facts, "source": dict(source), "start": dict(start)}
        data = json.dumps(self.relay, indent=1).encode()
        replace_file(self.folder / RELAY_FILE, data, durable=True)

    def _relay(self) -> dict[str, Any]:
        """The content of `relay.json`. For a new log, the content that will be written once the source is
        known."""
        if (self.folder / RELAY_FILE).exists():
            return read_relay(self.folder)
        return {
            "format": FORMAT,
            "segment_format": self.segment_format,
            "uuid": str(uuids.uuid4()),
            "created": time.time(),
        }

    def _sessions(self) -> None:
        reconnects = 0
        while not self.stopping:
            before = self._bytes
            try:
                self.stopping.reconnect = False
                self.status.enter("connecting")
                self.writer.recover()
                self._session()
                continue
            except DiskFull as error:
                sleep = self.stopping.sleep
                self.upkeep.wait_for_room(self.writer, self.status, error, sleep, self._unfinished)
                continue
            except Exception as error:
                progressed = self._bytes > before
                trouble = self._trouble(error, progressed=progressed)
            if progressed:
                self._reconnect.succeeded()
            reconnects += 1
            self.status.facts["reconnects"] = reconnects
            self.status.enter("reconnecting", str(trouble), trouble)
            self.stopping.sleep(self._reconnect.failed())
