"""Which segments may be deleted: those that every consumer has passed, and of these only old or many.

A segment is deleted whole, and only if the next one begins at or before the least offset that any registered
consumer needs (`consumers.py`). So it is enough that each consumer's offset is never above anything that it
may still read.

**Followers** (`changes.follow`) with a name need what they have not acknowledged. Those without a name hold
nothing: they fail with `LogPurged` if they fall too far behind.

**Pipelines** need the least of these offsets (`runtime/log_needs.py`), which are read from the state at one
moment:

- *the position*: what is to be planned lies behind it;
- *plans that are not applied yet*: everything that one names, from its range's start to each place in its
  splits (a table's events, the events that a split inside a transaction reads first, the windows of chunks).
  The tables cannot count in its stead. Their states say what holds once the plan is applied (a table that
  catches up stands at the plan's end), or change meanwhile (a table is parked while its chunks are placed);
- *tables whose rows are being read*: their start. Neither a chunk's window nor the offset of a view (tables
  that are read in one piece) lies before it;
- *partial snapshots*: the position when they began; their windows do not lie before it either;
- *tables that catch up*: where they stand (`TableState.resumes`);
- *signals from a table of the source*: up to where they were read.

These need no log that is held for them, since what is gone is noticed and has an answer:

- A parked table that could go on from its offset: `unpark` first holds that offset, then looks whether the
  log still reaches back so far, and else has the table read again.
- Statements of the past, for definitions of tables that are not captured, or for what voids a chunk: of the
  former the log's beginning is taken, and a copy whose beginning is not known is read again; the latter
  matter only behind a table's start or a partial snapshot's beginning.
- `verify` and `status` look at the log behind the position, or ask the running pipeline.
- The receiver needs the newest segment alone. XA transactions that are prepared lie in files of their own.
- What foreign keys did lies in `cascades/` of the pipeline's state, kept by the same rule.

**Between reading the needs and planning** nothing can come to need an older offset. Only the pipeline's loop
plans, unparks and begins tables, and it also registers the needs, one after the other in one thread. Other
threads only do things after which less is needed. What the loop begins lies behind what was held before: a
plan behind the position, behind `resumes`, or behind the start of a table that is being read; a new table at
the log's end. The exception is `unpark`, which holds first. A pipeline that is killed in between has
registered too little progress, never too much, because the state is committed before the offset is raised.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from pathlib import Path

from penstock.config import RelayLogConfig
from penstock.model.offset import Offset
from penstock.relaylog import consumers
from penstock.relaylog.segment import CONSUMERS_FOLDER, SegmentName, list_segments, sync_folder

log = logging.getLogger(__name__)

Segment = tuple[SegmentName, int, float]
"""Its name, its bytes, and the time of its last write."""


def expendable(
    segments: list[Segment], *, passed: Offset, now: float, config: RelayLogConfig
) -> list[SegmentName]:
    """Segments to remove, oldest first. The last of `segments` is in use.

    A segment ends where the next begins. Those not wholly passed stay, whatever their age.
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
    """What no consumer needs any more. One that claims to have read more than there is has read nothing that
    can be relied on, and without any consumer nothing has been read."""
    return min((offset if offset <= end else Offset(0) for offset in offsets), default=Offset(0))


def apply(folder: Path, config: RelayLogConfig) -> list[SegmentName]:
    """Removes what may go. Removes nothing while consumers register, or if they cannot be read."""
    try:
        with consumers.exclusive(folder / CONSUMERS_FOLDER) as alone:
            return _remove(folder, config, consumers.offsets(folder)) if alone else []
    except OSError as error:
        log.warning("no segment of the relay log %s is removed: %s", folder, error.strerror)
        return []


def _remove(folder: Path, config: RelayLogConfig, offsets: list[Offset]) -> list[SegmentName]:
    segments = list_sizes(folder)
    end = Offset(segments[-1][0].base + segments[-1][1]) if segments else Offset(0)
    gone = expendable(segments, passed=passed_by_all(offsets, end), now=time.time(), config=config)
    for name in gone:
        # Without its index a segment does not exist; a crash in between leaves a leftover for the next
        # writer.
        for file in (name.index, name.binlog):
            with contextlib.suppress(FileNotFoundError):
                (folder / file).unlink()
    if gone:
        sync_folder(folder)
    return gone


def list_sizes(folder: Path) -> list[Segment]:
    """The segments by base. One that is removed meanwhile is left out."""
    found: list[Segment] = []
    for name in list_segments(folder):
        with contextlib.suppress(FileNotFoundError):
            status = (folder / name.binlog).stat()
            found.append((name, status.st_size, status.st_mtime))
    return found
