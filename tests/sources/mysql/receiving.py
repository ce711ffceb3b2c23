"""A receiver process under test, and the judge: the source's own binlog files, walked without our code."""

from __future__ import annotations

import contextlib
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from penstock.relaylog import segment_format
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import list_segments
from penstock.relaylog.status import read_status
from penstock.testing.servers import DatabaseServer

TIMEOUT_S = 60.0
# STOP, ROTATE, FORMAT_DESCRIPTION, PREVIOUS_GTIDS, and MariaDB's BINLOG_CHECKPOINT and GTID_LIST: of a file,
# not of a transaction. ANNOTATE_ROWS (160) is only sent to who asks for it.
_FILE_FRAME = {3, 4, 15, 35, 160, 161, 163}


class Receiving:
    """A pipeline file in `folder`, and any number of receiver processes for it, one after the other."""

    def __init__(
        self, server: DatabaseServer, folder: Path, *, start: Any = "earliest", **options: Any
    ) -> None:
        self.server = server
        self.log_path = folder / "relay"
        source = {
            "host": "127.0.0.1",
            "port": server.port,
            "user": server.user,
            "password": server.password,
            "heartbeat": "1s",
            "start": start,
            **options.pop("source", {}),
        }
        if "password_file" in source:
            del source["password"]
        document = {
            "name": "test",
            "source": source,
            "tables": ["*.*"],
            "state": str(folder),
            "relay_log": {"disk_free_min": 0, **options},
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "pipeline.yaml"
        self.file.write_text(yaml.safe_dump(document))
        self.errors = folder / "stderr"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", "receive", str(self.file)]
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(command, stderr=errors, stdin=subprocess.DEVNULL)
        return self.process

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def fails(self) -> str:
        """Runs until it ends by itself with exit code 1; what it said."""
        assert self.start().wait(TIMEOUT_S) == 1
        return self.errors.read_text()

    @property
    def log(self) -> RelayLog:
        return RelayLog.open(self.log_path)

    def status(self) -> dict[str, Any]:
        return read_status(self.log_path)

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, (
                f"no {what} in time; {self.status()} {self.errors.read_text()}"
            )
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the receiver ended: {self.errors.read_text()}")
            time.sleep(0.02)

    def wait_until_level(self) -> None:
        """Until all that the source has written is committed in the log."""

        self.wait_for(lambda: RelayLog.exists(self.log_path), "relay log")
        log, goal = self.log, segment_format.position(*self.server.position())

        def reached() -> bool:
            log.refresh()
            return log.reached(goal)

        self.wait_for(reached, f"position {goal}")


@contextlib.contextmanager
def receiving(server: DatabaseServer, folder: Path, **options: Any) -> Iterator[Receiving]:
    receiver = Receiving(server, folder, **options)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.kill()


def events_of(path: Path, end: int | None = None) -> Iterator[bytes]:
    """Events of transactions in a binlog file, by the format's definition."""
    data = path.read_bytes()[:end]
    assert data[:4] == b"\xfebin"
    at = 4
    while at < len(data):
        kind, length = data[at + 4], struct.unpack_from("<I", data, at + 9)[0]
        event = data[at : at + length]
        assert len(event) == length, f"{path} is cut off at {at}"
        if kind not in _FILE_FRAME:
            yield event
        at += length


def source_events(server: DatabaseServer) -> list[bytes]:
    return [event for path in server.binlog_files() for event in events_of(path)]


def log_events(folder: Path) -> list[bytes]:
    """Events of the committed part of a relay log: files cut where the next begins, or at the reader's
    end."""
    names = list_segments(folder)
    ends = [name.base for name in names[1:]] + [RelayLog.open(folder).end]
    return [
        event
        for name, end in zip(names, ends, strict=True)
        for event in events_of(folder / name.file, end - name.base)
    ]
