"""Decides which segments may be deleted: those that no consumer needs any more and that are too old or too
many.

A segment is deleted as a whole, and only if the next one begins at or before the smallest offset of all
registered consumers (`consumers.py`). So each consumer must register an offset that is not after anything it
may still read.

**Followers** (`changes.follow`) with a name need what they have not acknowledged. Followers without a name
register nothing: they fail with `LogPurged` if they fall too far behind.

**Pipelines** need the smallest of the following offsets (`runtime/log_needs.py`). All are read from the state
at one moment:

- *The position*: log after it has not been planned.
- *Plans that are not applied yet*: everything a plan names, from its range's start to every place in its
  splits (the table's events, events that a split inside a transaction reads first, the windows of chunks).
  Table states cannot replace this: they describe the time after the plan (a table that catches up has the
  plan's end), or change in the meantime (a table is parked while its chunks are placed).
- *Tables being read*: their start. No chunk's window, and no view of a table read in one piece, begins before
  it.
- *Partial snapshots*: the position when they began. Their windows do not begin before it either.
- *Tables that catch up*: the offset they have reached (`CatchingUp.at`).
- *Signals from a table of the source*: the offset up to which they were read.

The following readers register nothing, because each of them detects and handles log that was deleted:

- A parked table that could continue from its offset. `unpark` first registers that offset, then checks
  whether the log still reaches back to it; if not, the table is read again.
- Earlier statements, needed for definitions of uncaptured tables and for statements that void a chunk. For
  the former the log's start is used, and a copy whose origin is unknown is read again. The latter matter only
  after a table's start or a partial snapshot's beginning.
- `verify` and `status` read log after the position, or ask the running pipeline.
- The receiver needs only the newest segment. Prepared XA transactions are in files of their own.
- The changes made by foreign keys are in `cascades/` of the pipeline's state, under the same rule.

**No race.** Between reading the needs and planning, nothing can start to need an older offset. Only the
pipeline's loop plans, unparks and starts tables, and the same thread registers the needs. Other threads only
reduce what is needed. Everything the loop starts is after what was registered before: a plan is after the
position, after `resumes`, or after the start of a table being read; a new table starts at the log's end. The
exception is `unpark`, which registers first. A pipeline that is killed in between has registered too little
progress, never too much, because the state is committed before the offset is raised.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from pathlib import Path

from penstock.config import RelayLogConfig
from penstock.disk.replace import sync
from penstock.model.offset import Offset
from penstock.relaylog import consumers
from penstock.relaylog.segment import CONSUMERS_FOLDER, SegmentName, list_segments

log = logging.getLogger(__name__)

Segment = tuple[SegmentName, int, float]
"""Name, size in bytes, and time of the last write."""


def expendable(
    segments: list[Segment], *, passed: Offset, now: float, config: RelayLogConfig
) -> list[SegmentName]:
    """Segments to delete, oldest first. The last of `segments` is in use and stays.

    A segment ends where the next one begins. It stays, whatever its age, until `passed` has reached its end.
    """
    total = sum(size for _, size, _ in segments)
    gone: list[SegmentName] = []
    for (name, size, written), (following, _, _) in itertools.pairwise(segments):
        too_old = now - written > config.keep_age / 1000
        too_many = 0 < config.keep_size < total
        if following.base > passed or not (too_old or too_many):
            break
        gone.append(name)
        total -= size
    return gone


def passed_by_all(offsets: list[Offset], end: Offset) -> Offset:
    """The offset up to which no consumer needs the log. An offset beyond the log's end is not credible and
    counts as 0. Without consumers the answer is 0."""
    return min((offset if offset <= end else Offset(0) for offset in offsets), default=Offset(0))


def apply(folder: Path, config: RelayLogConfig) -> list[SegmentName]:
    """Deletes segments. Deletes nothing while a consumer registers, or if the consumers cannot be read."""
    try:
        with consumers.exclusive(folder / CONSUMERS_FOLDER) as alone:
            return _remove(folder, config, consumers.offsets(folder)) if alone else []
    except OSError as error:
        log.warning("retention of the relay log %s is skipped: %s", folder, error.strerror)
        return []


def _remove(folder: Path, config: RelayLogConfig, offsets: list[Offset]) -> list[SegmentName]:
    segments = list_sizes(folder)
    end = Offset(segments[-1][0].base + segments[-1][1]) if segments else Offset(0)
    gone = expendable(segments, passed=passed_by_all(offsets, end), now=time.time(), config=config)
    for name in gone:
        # Without its index a segment does not exist; a crash in between leaves a leftover for the next
        # writer.
        for file in (name.index, name.file):
            with contextlib.suppress(FileNotFoundError):
                (folder / file).unlink()
    if gone:
        sync(folder)
    return gone


def list_sizes(folder: Path) -> list[Segment]:
    """The segments with sizes, ordered by base."""
    found: list[Segment] = []
    for name in list_segments(folder):
        with contextlib.suppress(FileNotFoundError):
            status = (folder / name.file).stat()
            found.append((name, status.st_size, status.st_mtime))
    return found
