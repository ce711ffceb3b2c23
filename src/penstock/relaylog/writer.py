"""The writer of a relay log: appends bytes, makes them durable, then commits them with an index line.

The order of steps, and why a crash at any point is harmless:

1. Bytes are appended to the segment. No index line names them yet, so readers do not see them.
2. The segment is made durable (`fdatasync`).
3. The index line is appended without its newline and made durable. Readers ignore a line without newline.
4. The newline is appended: the span is now visible. If a crash loses only the newline, the next writer finds
   the complete line and adds it. So an offset that a reader has seen is never withdrawn.

A writer first recovers the log: it cuts the last segment at the last committed transaction end. Bytes after
that were never visible to a reader, so their offsets may be used again. That segment is then closed, and the
next one begins at its end, with the new writer's generation.

Steps 2 to 4 run in order in a thread of their own, so that the socket is read while the disk works.
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
from penstock.disk.replace import replace_file, sync
from penstock.errors import InternalError, RelayLogCorrupt, TransientError
from penstock.model.offset import Offset
from penstock.relaylog import consumers, index, segment_format
from penstock.relaylog.lease import Lease
from penstock.relaylog.segment import (
    DAMAGED_HINT,
    SegmentName,
    check_writable,
    first_offset,
    leftovers,
    list_segments,
    write_all,
)
from penstock.relaylog.segment_format import suffix_of
from penstock.relaylog.spool import Spool

UNFLUSHED_BYTES_MAX = 64 * 1024**2
"""Bytes that may wait for fsync before the writer blocks. Bounds dirty pages; not needed for correctness."""
LINES_MAX = 20_000
"""Index lines of an open segment. Then a new segment is started, so that readers never load a huge index."""

Piece: TypeAlias = "bytes | tuple[str, bytes] | tuple[int, int] | tuple[int, bytes, list[str]]"
T = TypeVar("T")


class DiskFull(TransientError):
    """The file system of the relay log is full. Nothing is lost: the writer waits for space."""


class _Flusher:
    """Runs jobs in order in a thread. The first failure stops it and is raised by `submit` and `wait`."""

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
        self.data = os.open(folder / name.file, flags, 0o600)
        self.index = os.open(folder / name.index, flags, 0o600)
        self.lines = 0
        self.opened = time.monotonic()
        self.named = False
        write_all(self.data, head)

    def commit(self, entries: Sequence[str]) -> None:
        """Steps 2 to 4 of the module's argument."""
        os.fdatasync(self.data)
        if not self.named:
            sync(self.folder)
            self.named = True
        for entry in entries:
            write_all(self.index, index.format_line(entry))
            os.fdatasync(self.index)
            write_all(self.index, b"\n")

    def close(self) -> None:
        os.close(self.data)
        os.close(self.index)


class RelayLogWriter:
    """Holds the lease of `folder` until `close`. `end` is the end of the log after recovery. `prepare` is
    called before it, with the lease, and returns the greatest generation that is known elsewhere.

    Raises `ConfigError`, and touches nothing, if the folder's segments have a format that is not known."""

    def __init__(
        self,
        folder: Path,
        config: RelayLogConfig,
        *,
        on_committed: Callable[[], None] = lambda: None,
        prepare: Callable[[], int] = lambda: 0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_writable(folder)
        self.folder = folder
        self.config = config
        self.lease = Lease(folder, prepare)
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
        """Cuts the log at its last committed transaction end. No segment is open afterwards. Raises
        `DiskFull`."""
        self._abandon()
        self.guarded(self._recover)

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
        self.end = first_offset(self.folder)
        self.spool.recover([])

    def _ensure_unread(self, leftover: Path, read: Offset) -> None:
        """Raises `RelayLogCorrupt` if an incomplete segment was already read by somebody. Otherwise it was
        left by a crash or by retention."""
        name = SegmentName.parse(leftover.name)
        names = list_segments(self.folder)
        if name is None or (names and name.base <= names[0].base) or name.base in {one.base for one in names}:
            return
        # After the first segment, and at no other segment's base: only the newest can come from a crash.
        if name.base < read or (names and name.base < names[-1].base):
            lost = name.file if leftover.suffix == ".index" else name.index
            raise RelayLogCorrupt(
                f"The file {self.folder / lost} of the relay log is missing.",
                hint=DAMAGED_HINT,
                path=str(self.folder / lost),
                offset=int(name.base),
            )

    def _abandon(self) -> None:
        """Stops the flusher in any state, and starts a new one."""
        self._flusher.stop()
        self._flusher = _Flusher(self._on_committed)
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self.spool.close()
        self._unflushed = 0

    def put(self, pieces: Sequence[Piece]) -> None:
        """Appends the framer's output. Raises `DiskFull`; the log must then be recovered."""
        for piece in pieces:
            if isinstance(piece, bytes):
                self._append(piece, partial(write_all, self._open.data, piece))
            elif len(piece) == 3:
                self._roll(*piece)
            elif isinstance(piece[1], bytes):
                self.check_space()
                self._append(piece[1], partial(self.spool.append, str(piece[0]), piece[1]))
            else:
                name = self._open.name
                take_back(str(self.folder / name.file), name.base, int(piece[0]), piece[1])

    def _append(self, data: bytes, write: Callable[[], None]) -> None:
        if self._unflushed > UNFLUSHED_BYTES_MAX:
            self.guarded(self._flusher.wait)
            self._unflushed = 0
        self.guarded(write)
        self._unflushed += len(data)

    @property
    def _open(self) -> _OpenSegment:
        if self._segment is None:
            raise InternalError("No segment is open.")
        return self._segment

    def _roll(self, base: int, head: bytes, entries: list[str]) -> None:
        self.check_space()
        if self._segment is not None:
            self.flush(entries)
            closing = self._segment
            self.guarded(lambda: self._flusher.submit(lambda: self._finish(closing)))
        name = SegmentName(Offset(base), self.lease.generation, suffix_of(head))
        self._segment = self.guarded(lambda: _OpenSegment(self.folder, name, head))

    def _finish(self, segment: _OpenSegment) -> None:
        segment.close()
        path = self.folder / segment.name.index
        entries = index.parse_lines(path.read_bytes(), path)
        compacted = index.compact(entries, self.config.span_size, segment.name.format)
        replace_file(path, index.encode(compacted), durable=True)

    @property
    def ready_to_flush(self) -> bool:
        """Whether the flusher is idle, so that a flush would start at once."""
        self.guarded(self._flusher.raise_failure)
        return self._flusher.idle

    def flush(self, entries: list[str], *, spools: Sequence[str] | None = None) -> None:
        """Commits `entries`, which describe everything put so far. `spools`: the spool files needed after
        them; None: all."""
        if not entries:
            return
        segment = self._open
        segment.lines += len(entries)
        self._unflushed = 0
        self.check_space()
        make_durable, gone = self.spool.syncing(), self.spool.forget(spools)

        def job() -> None:
            self.lease.check()
            make_durable()
            segment.commit(entries)
            self.spool.remove(gone)

        self.guarded(lambda: self._flusher.submit(job))

    def wait(self) -> None:
        """Waits until everything flushed is committed."""
        self.guarded(self._flusher.wait)

    @property
    def segment_is_full(self) -> bool:
        segment = self._segment
        if segment is None:
            return False
        age_ms = (time.monotonic() - segment.opened) * 1000
        return segment.lines > LINES_MAX or (segment.lines > 1 and age_ms > self.config.segment_age)

    def guarded(self, action: Callable[[], T]) -> T:
        """Calls `action`, which writes files on the disk of the log. Raises `DiskFull` if that is full."""
        try:
            return action()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise self._disk_full(error) from error
            raise

    def check_space(self) -> None:
        """Raises `DiskFull` if less than `disk_free_min` is left; the log must then be recovered. Receivers
        also call it when nothing is to be written, so that a full disk is told while the source is idle."""
        now = time.monotonic()
        if now - self._free_checked > 0.2:
            self._free_checked = now
            if self.free_bytes() < self.config.disk_free_min:
                raise self._disk_full()

    def free_bytes(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def _disk_full(self, error: OSError | None = None) -> DiskFull:
        limit = "" if error is None or error.errno == errno.ENOSPC else f" ({error.strerror})"
        return DiskFull(
            f"The file system of the relay log {self.folder} is full{limit}: {self.free_bytes() >> 20} MiB "
            f"are left. The receiver needs relay_log.disk_free_min ({self.config.disk_free_min >> 20} MiB), "
            "and room for the next write. It waits; nothing is lost as long as the source keeps its log.",
            hint="Free space there, or move the relay log to a larger disk.",
            path=str(self.folder),
        )

    def close(self, *, hand_over: Callable[[], None] = lambda: None) -> None:
        """Stops without committing anything more. The next writer cuts what was not flushed. `hand_over` is
        called when nothing is written any more, before the lease ends."""
        self._flusher.stop()
        if self._segment is not None:
            self._segment.close()
        self.spool.close()
        hand_over()
        self.lease.release()


def _repair(folder: Path, name: SegmentName, span_size: int, read: Offset) -> list[index.Entry]:
    """Cuts the last segment at its last committed transaction end and returns its entries.

    A segment without committed entries was never visible; it is deleted, and the result is empty. `read`: the
    greatest offset of any consumer. An index that ends before it has lost lines, so nothing is cut.
    """
    index_path, data_path = folder / name.index, folder / name.file
    data = index_path.read_bytes()
    entries = index.parse_lines(data, index_path)
    if (last := index.last_line(data)) is not None:
        entries.append(last)
    committed = entries[-1].committed if entries else name.base
    if committed < read:
        raise RelayLogCorrupt(
            f"The index {index_path} ends at offset {committed}, but has been read up to {read}: its end "
            "is missing.",
            hint=f"{DAMAGED_HINT} If no reader can have read that far, remove the one with this offset: "
            "`penstock consumers` lists them.",
            path=str(index_path),
            offset=int(committed),
        )
    if not entries:
        index_path.unlink()
        data_path.unlink()
        return []
    if data_path.stat().st_size < committed - name.base:
        raise RelayLogCorrupt(
            f"The segment {data_path} ends before offset {committed}, where its index ends.",
            hint=DAMAGED_HINT,
            path=str(data_path),
            offset=int(committed),
        )
    descriptor = os.open(data_path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, committed - name.base)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # The index is rewritten after the cut, because the cut may free the space for it. Until then its entries
    # may describe bytes after `committed`, where no reader looks.
    kept = [_recounted(entry, name, data_path, committed) for entry in index.cut_off(entries, committed)]
    replace_file(index_path, index.encode(index.compact(kept, span_size, name.format)), durable=True)
    return kept


def _recounted(entry: index.Entry, name: SegmentName, path: Path, end: Offset) -> index.Entry:
    """The entry of the cut span, counted again: its old counts include rows that were cut."""
    if entry.end != end or entry.head is not None or not entry.tables:
        return entry
    counted = json.loads(scan_span(str(path), name.base, entry.start, end, open=entry.open_events))
    kept = (*segment_format.BESIDE_EVENTS, "last", "prepared")
    known = {key: entry.fields[key] for key in kept if key in entry.fields}
    return entry.recounted(end, counted | known)
