"""The one writer of a relay log: bytes, fsync, then the index line that commits them.

Order, and why a crash at any point is harmless:

1. Bytes are appended to the segment. No index line speaks of them yet; readers do not see them.
2. The segment is made durable (`fdatasync`).
3. The index line is appended without its newline and made durable. Readers ignore a line without newline.
4. The newline is appended: the span exists. If a crash loses only the newline, the next writer finds the
   whole line and completes it, so an offset a reader has ever seen is never taken back.

A writer starts by recovering: the last segment is cut to the last transaction end that an index line
commits. Bytes behind it were never visible to a reader, so their offsets may be issued again. The segment
is then closed for good and the next one begins at its end, under the new writer's generation.

Steps 2-4 run in a thread of their own, so that the socket is read while the disk works. Jobs are done in
order.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from penstock._core import scan_span, take_back
from penstock.config import RelayLogConfig
from penstock.errors import InternalError, RelayLogCorrupt, TransientError
from penstock.model.offset import Offset
from penstock.relaylog import consumers, index
from penstock.relaylog.lease import Lease
from penstock.relaylog.segment import (
    DAMAGED_HINT,
    SegmentName,
    check_writable,
    leftovers,
    list_segments,
    replace_file,
    sync_folder,
    write_all,
)
from penstock.relaylog.spool import Spool

UNFLUSHED_MAX = 64 * 1024**2
"""Bytes that may wait for fsync before the writer stops taking more: bounds dirty pages, not correctness."""
LINES_MAX = 20_000
"""Index lines of one open segment; beyond that it is rolled, so readers never hold a huge index in memory."""

Piece: TypeAlias = "bytes | tuple[str, bytes] | tuple[int, int] | tuple[int, bytes, list[str]]"
T = TypeVar("T")


class DiskFull(TransientError):
    """The file system of the relay log has no room; nothing is lost, the writer waits."""


class _Flusher:
    """Runs jobs one after the other in a thread. The first failure stops it; `submit` and `wait` raise it."""

    def __init__(self, on_done: Callable[[], None]) -> None:
        self._on_done = on_done
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=8)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="relay-log-flusher", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self._failure is None:
                    job()
            except BaseException as error:  # handed to the main thread
                self._failure = error
            finally:
                self._jobs.task_done()
                self._on_done()

    @property
    def idle(self) -> bool:
        return self._jobs.unfinished_tasks == 0

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def submit(self, job: Callable[[], None]) -> None:
        self.raise_failure()
        self._jobs.put(job)

    def wait(self) -> None:
        self._jobs.join()
        self.raise_failure()

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()


class _OpenSegment:
    def __init__(self, folder: Path, name: SegmentName, head: bytes) -> None:
        self.name = name
        self.folder = folder
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self.binlog = os.open(folder / name.binlog, flags, 0o600)
        self.index = os.open(folder / name.index, flags, 0o600)
        self.lines = 0
        self.opened = time.monotonic()
        self.named = False
        write_all(self.binlog, head)

    def commit(self, entries: Sequence[str]) -> None:
        """Steps 2 to 4 of the module's argument."""
        os.fdatasync(self.binlog)
        if not self.named:
            sync_folder(self.folder)
            self.named = True
        for entry in entries:
            write_all(self.index, index.format_line(entry))
            os.fdatasync(self.index)
            write_all(self.index, b"\n")

    def close(self) -> None:
        os.close(self.binlog)
        os.close(self.index)


class RelayLogWriter:
    """Holds the lease of `folder` until `close`. `end` is the end of the log after recovery.

    Raises `ConfigError`, and touches nothing, if the folder's segments have a format that is not known."""

    def __init__(
        self, folder: Path, config: RelayLogConfig, *, on_committed: Callable[[], None] = lambda: None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_writable(folder)
        self.folder = folder
        self.config = config
        self.lease = Lease(folder)
        self.spool = Spool(folder)
        self._segment: _OpenSegment | None = None
        self._on_committed = on_committed
        self._flusher = _Flusher(on_committed)
        self._unflushed = 0
        self._free_checked = 0.0
        self.end = Offset(0)
        try:
            self.recover()
        except BaseException:
            self.lease.release()
            raise

    def recover(self) -> None:
        """Cuts the log to its last committed transaction end; nothing is open afterwards. Raises
        `DiskFull`."""
        self._abandon()
        self._guarded(self._recover)

    def _recover(self) -> None:
        read = max(consumers.offsets(self.folder), default=Offset(0))
        for path in leftovers(self.folder):
            self._ensure_unread(path, read)
            path.unlink(missing_ok=True)
        while names := list_segments(self.folder):
            kept = _repair(self.folder, names[-1], self.config.span_size, read)
            if kept:
                self.end = kept[-1].committed
                self.spool.recover(index.prepared_at_end(kept))
                return
        self.end = Offset(0)
        self.spool.recover([])

    def _ensure_unread(self, leftover: Path, read: Offset) -> None:
        """A file without its other half is a crash's, or retention's, unless somebody has read from it."""
        name = SegmentName.parse(leftover.name)
        names = list_segments(self.folder)
        if name is None or (names and name.base <= names[0].base) or name.base in {one.base for one in names}:
            return
        # Behind the first segment, and at no other's base: only the newest may have been left by a crash.
        if name.base < read or (names and name.base < names[-1].base):
            lost = name.binlog if leftover.suffix == ".index" else name.index
            raise RelayLogCorrupt(
                f"The file {self.folder / lost} of the relay log is missing.",
                hint=DAMAGED_HINT,
                path=str(self.folder / lost),
                offset=int(name.base),
            )

    def _abandon(self) -> None:
        """Stops the flusher whatever state it is in, and starts a fresh one."""
        self._flusher.stop()
        self._flusher = _Flusher(self._on_committed)
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self.spool.close()
        self._unflushed = 0

    def put(self, pieces: Sequence[Piece]) -> None:
        """Appends what the framer gave. Raises `DiskFull`; the log must then be recovered."""
        for piece in pieces:
            if isinstance(piece, bytes):
                self._append(piece, partial(write_all, self._open.binlog, piece))
            elif len(piece) == 3:
                self._roll(*piece)
            elif isinstance(piece[1], bytes):
                self._check_space()
                self._append(piece[1], partial(self.spool.append, str(piece[0]), piece[1]))
            else:
                name = self._open.name
                take_back(str(self.folder / name.binlog), name.base, int(piece[0]), piece[1])

    def _append(self, data: bytes, write: Callable[[], None]) -> None:
        if self._unflushed > UNFLUSHED_MAX:
            self._guarded(self._flusher.wait)
            self._unflushed = 0
        self._guarded(write)
        self._unflushed += len(data)

    @property
    def _open(self) -> _OpenSegment:
        if self._segment is None:
            raise InternalError("No segment is open.")
        return self._segment

    def _roll(self, base: int, head: bytes, entries: list[str]) -> None:
        self._check_space()
        if self._segment is not None:
            self.flush(entries)
            closing = self._segment
            self._guarded(lambda: self._flusher.submit(lambda: self._finish(closing)))
        name = SegmentName(Offset(base), self.lease.generation)
        self._segment = self._guarded(lambda: _OpenSegment(self.folder, name, head))

    def _finish(self, segment: _OpenSegment) -> None:
        segment.close()
        path = self.folder / segment.name.index
        entries = index.parse_lines(path.read_bytes(), path)
        replace_file(path, index.encode(index.compact(entries, self.config.span_size)), durable=True)

    @property
    def ready_to_flush(self) -> bool:
        """The thread has nothing to do: a flush now would start at once."""
        self._guarded(self._flusher.raise_failure)
        return self._flusher.idle

    def flush(self, entries: list[str], *, spools: Sequence[str] | None = None) -> None:
        """Commits `entries`, which speak of everything put so far. `spools`: the spool files needed behind
        them; None: all."""
        if not entries:
            return
        segment = self._open
        segment.lines += len(entries)
        self._unflushed = 0
        self._check_space()
        sync, gone = self.spool.syncing(), self.spool.forget(spools)

        def job() -> None:
            self.lease.check()
            sync()
            segment.commit(entries)
            self.spool.remove(gone)

        self._guarded(lambda: self._flusher.submit(job))

    def wait(self) -> None:
        """Returns when everything flushed is committed."""
        self._guarded(self._flusher.wait)

    @property
    def wants_roll(self) -> bool:
        segment = self._segment
        if segment is None:
            return False
        age_ms = (time.monotonic() - segment.opened) * 1000
        return segment.lines > LINES_MAX or (segment.lines > 1 and age_ms > self.config.segment_age)

    def _guarded(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise self._disk_full() from error
            raise

    def _check_space(self) -> None:
        now = time.monotonic()
        if now - self._free_checked > 0.2:
            self._free_checked = now
            if self.free_bytes() < self.config.disk_free_min:
                raise self._disk_full()

    def free_bytes(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def _disk_full(self) -> DiskFull:
        return DiskFull(
            f"The file system of the relay log {self.folder} has {self.free_bytes() >> 20} MiB left, less "
            f"than relay_log.disk_free_min ({self.config.disk_free_min >> 20} MiB) or than a write needs. "
            "The receiver waits; nothing is lost as long as the source keeps its log.",
            hint="Free space there, or move the relay log to a larger disk.",
            path=str(self.folder),
        )

    def close(self) -> None:
        """Commits nothing more. What was not flushed is cut by the next writer."""
        self._flusher.stop()
        if self._segment is not None:
            self._segment.close()
        self.spool.close()
        self.lease.release()


def _repair(folder: Path, name: SegmentName, span_size: int, read: Offset) -> list[index.Entry]:
    """Closes the last segment at its last committed transaction end; its entries up to there.

    None at all: the segment never had a committed entry, so no reader knows it; it is removed. `read` is
    how far some consumer has got: an index that ends before it has lost lines, and nothing is cut.
    """
    index_path, binlog_path = folder / name.index, folder / name.binlog
    data = index_path.read_bytes()
    entries = index.parse_lines(data, index_path)
    if (last := index.last_line(data)) is not None:
        entries.append(last)
    committed = entries[-1].committed if entries else name.base
    if committed < read:
        raise RelayLogCorrupt(
            f"The index {index_path} ends at offset {committed}, but has been read up to {read}: its end "
            "is missing.",
            hint=f"{DAMAGED_HINT} If no reader can have come so far, `penstock consumers` names the one that "
            "says so; remove it there.",
            path=str(index_path),
            offset=int(committed),
        )
    if not entries:
        index_path.unlink()
        binlog_path.unlink()
        return []
    if binlog_path.stat().st_size < committed - name.base:
        raise RelayLogCorrupt(
            f"The segment {binlog_path} ends before offset {committed}, up to which its index commits it.",
            hint=DAMAGED_HINT,
            path=str(binlog_path),
            offset=int(committed),
        )
    descriptor = os.open(binlog_path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, committed - name.base)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # After the cut, which may be what makes room for it. Until then entries may speak of bytes behind
    # `committed`;
    # no reader looks there.
    kept = [_recounted(entry, name, binlog_path, committed) for entry in index.cut_off(entries, committed)]
    replace_file(index_path, index.encode(index.compact(kept, span_size)), durable=True)
    return kept


def _recounted(entry: index.Entry, name: SegmentName, path: Path, end: Offset) -> index.Entry:
    """The entry of the span that was cut: its counts spoke of rows that are gone."""
    if entry.end != end or entry.head is not None or not entry.tables:
        return entry
    counted = json.loads(scan_span(str(path), name.base, entry.start, end, open=entry.open_events))
    kept = ("file", "position", "open", "last", "prepared")
    return index.Entry(counted | {key: entry.fields[key] for key in kept if key in entry.fields})
