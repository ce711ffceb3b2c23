"""What a receiver does for its relay log beside writing it: retention, and the archive if there is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from penstock.config import RelayLogConfig
from penstock.errors import InternalError, PenstockError
from penstock.relaylog import archive_restore, retention
from penstock.relaylog.archiver import Archiver
from penstock.relaylog.files import LogPlace
from penstock.relaylog.status import StatusFile
from penstock.relaylog.writer import DiskFull, RelayLogWriter

RETENTION_EVERY_S = 30.0
"""How often segments that nobody needs are deleted. It reads the folder and the consumers' files."""
DISK_RETRY_S = 1.0
"""How often a receiver with a full disk checks for space."""
DISK_WAIT_MAX_S = 60.0
"""After this time it tries to write anyway, because the space that it needs is an estimate."""


class Upkeep:
    """Retention, archive and reports of a running receiver. `stopping`: whether the receiver is asked to
    stop."""

    def __init__(
        self, place: LogPlace, config: RelayLogConfig, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        if place.folder is None:
            raise InternalError("a receiver needs a folder")
        self._folder = place.folder
        self._config = config
        self._stopping = stopping
        self._archiver = None if place.archive is None else Archiver(self._folder, place.archive, config)
        self._applied = 0.0

    def prepare(self) -> int:
        """For `RelayLogWriter`: see `archive_restore.prepare`."""
        if self._archiver is None:
            return 0
        return archive_restore.prepare(self._archiver, self._stopping)

    def begin(self, generation: int) -> None:
        if self._archiver is not None:
            self._archiver.begin(generation)

    def each_second(self) -> None:
        """Raises `LeaseHeld` if another receiver has taken the archive over."""
        if self._archiver is not None:
            if self._archiver.failure is not None:
                raise self._archiver.failure
        elif time.monotonic() - self._applied > RETENTION_EVERY_S:
            self._applied = time.monotonic()
            retention.apply(self._folder, self._config)

    def make_room(self) -> None:
        """Deletes what may be deleted: the disk is full."""
        if self._archiver is not None:
            self._archiver.drop_cached(0)
        else:
            retention.apply(self._folder, self._config)

    def wait_for_room(
        self,
        writer: RelayLogWriter,
        status: StatusFile,
        error: DiskFull,
        sleep: Callable[[float], object],
        unfinished: int = 0,
    ) -> None:
        """Waits until there is space for what did not fit, and some more. After a while it returns anyway.
        `unfinished`: bytes of the transaction that was being written."""
        with suppress(DiskFull):
            writer.recover()
        # The report is on the same disk, so it is written after the recovery.
        status.enter("disk_full", str(error), error)
        needed = self._config.disk_free_min + unfinished * 5 // 4 + (1 << 20)
        until = time.monotonic() + DISK_WAIT_MAX_S
        while not self._stopping() and time.monotonic() < until:
            sleep(DISK_RETRY_S)
            self.make_room()
            if writer.free_bytes() >= needed:
                return
            status.write()

    def report(self) -> dict[str, Any]:
        """For `receiver.json`."""
        return {} if self._archiver is None else {"archive": self._archiver.report()}

    @contextmanager
    def until_end(self, writer: RelayLogWriter, status: StatusFile) -> Iterator[None]:
        """Runs the receiver's work, reports how it ended, and closes the writer."""
        self.begin(writer.lease.generation)
        clean = False
        try:
            yield
            clean = True
            status.enter("stopped")
        except PenstockError as error:
            status.enter("failed", error.message, error)
            raise
        except BaseException as error:
            status.enter("failed", f"{type(error).__name__}: {error}")
            raise
        finally:
            writer.close(hand_over=lambda: self.end(clean=clean))

    def end(self, *, clean: bool) -> None:
        """Ends the archive's work. `clean`: the log's writer has ended, and has committed everything."""
        if self._archiver is not None:
            self._archiver.stop(clean=clean)
