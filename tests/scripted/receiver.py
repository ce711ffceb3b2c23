"""Writes a script's log into a relay log, by the writer and the framer that every receiver has."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

from tests.scripted.server import Server

from penstock._core import Framer
from penstock.config import PipelineConfig
from penstock.disk.replace import replace_file
from penstock.errors import TransientError
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import FORMAT, RELAY_FILE
from penstock.relaylog.segment_format import ROWS
from penstock.relaylog.writer import RelayLogWriter


class ScriptedReceiver:
    """`sources.receiver.Receiver` without a process or thread of its own. Each call receives everything that
    has been committed, so the order of events is that of the script."""

    def __init__(self, config: PipelineConfig, server: Server) -> None:
        self._config = config
        self._server = server
        self._folder = config.relay_log_path
        self._writer: RelayLogWriter | None = None
        self._framer: Framer | None = None
        self._sent = 0
        """The number of transactions that this connection and those before it have received."""

    def start(self) -> None:
        self._writer = RelayLogWriter(self._folder, self._config.relay_log)
        self._connect()
        self.check()

    def check(self) -> None:
        """Receives all that was committed at the server."""
        new = self._server.committed[self._sent :]
        self._receive([event for events in new for event in events])
        self._sent += len(new)
        self._commit()

    def receive_half(self) -> None:
        """Receives everything but the second half of the last transaction, which can then never be committed.
        Then the process ends without closing anything."""
        *whole, last = self._server.committed[self._sent :]
        self._receive([event for events in whole for event in events])
        self._receive(last[: len(last) // 2])
        self._commit()
        self.stop()

    def wait_for(
        self, condition: Callable[[], Any], what: str, stopping: threading.Event, *, seconds: float
    ) -> None:
        self.check()
        if not condition():
            raise TransientError(f"Nothing more comes, and {what} is not there.")

    def renew(self) -> None:
        """A new connection begins a segment."""
        self.check()
        self._connect()

    def ask_to_stop(self) -> None:
        """Does nothing: there is no process."""

    def stop(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def describe(self) -> str:
        return "plays a script"

    def _connect(self) -> None:
        """Continues after the last transaction in the relay log."""
        assert self._writer is not None
        self._writer.recover()
        log = RelayLog.open(self._folder) if RelayLog.exists(self._folder) else None
        executed = "" if log is None else str(log.executed_at(log.end))
        known = log.position_at(log.end) if log is not None else None
        self._sent = int(executed.rpartition("-")[2] or 0)
        if log is None:
            self._create()
        self._framer = Framer(
            offset=self._writer.end,
            segment_size=self._config.relay_log.segment_size,
            span_size=self._config.relay_log.span_size,
            server_uuid=str(self._server.uuid),
            executed=executed,
            position=known.order[-1] if known is not None else 0,
            spool=str(self._writer.spool.folder),
            generation=self._writer.lease.generation,
            segment_format=ROWS,
        )
        self._receive(self._server.greeting)
        self._commit()

    def _create(self) -> None:
        relay = {"format": FORMAT, "segment_format": ROWS, "uuid": str(uuid.uuid4()), "created": 0.0,
                 "start": {}, "source": {"type": "script"}}  # fmt: skip
        replace_file(self._folder / RELAY_FILE, json.dumps(relay).encode(), durable=True)

    def _receive(self, events: list[bytes]) -> None:
        assert self._writer is not None and self._framer is not None
        self._writer.put(self._framer.feed(b"".join(events)))

    def _commit(self) -> None:
        assert self._writer is not None and self._framer is not None
        self._writer.flush(self._framer.cut(), spools=self._framer.spool_files)
        self._writer.wait()
