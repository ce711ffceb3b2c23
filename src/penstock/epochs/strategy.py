"""Chooses how the rows of a step are made: by how many tasks, with or without a shuffle, or by the driver.
Pure.

A Spark job takes 0.1 to 0.2 s before its first row. A shuffle writes and reads all rows once more. A task
that reads a whole range repeats the work of the other tasks. Which of these costs least depends only on the
step. All strategies produce the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.model.plan import ApplyEvents, Mode, PlaceChunks
from penstock.sinks.rows import AnyOrder, Batches, Incomplete, Newer, RowKind
from penstock.snapshot.driver_side import driver_places

SHARE_BYTES = 24 * 1024**2
"""Log bytes per additional task: with fewer, starting the task costs more than it saves."""

KEYS_BYTES_MAX = 256 * 1024**2
"""Log bytes whose keys one task may have in memory: 60 MB of keys if rows have 100 bytes."""

WHOLE_RANGE_BYTES_MAX = 1024**3
"""Up to so many bytes of one table's events, each task reads the whole range and keeps its share of the
keys, which avoids a shuffle. With more bytes, the repeated reading would cost more than shuffling the
reduced rows. Tasks that fetch the range from an archive do so only as `REMOTE_SHARES_MAX` says."""


REMOTE_SHARES_MAX = 4
"""Number of tasks that may fetch the whole range from an archive. On one machine they read the same pages of
its memory. Elsewhere each fetches all bytes, so more tasks get a part of the log each."""


@dataclass(frozen=True)
class TaskPerSplit:
    """Each task decodes one split and returns every row image. For change logs."""

    newer: bool = False
    """Whether the target has none of these changes."""
    driver_side: bool = False
    """See `SharesOfRange.driver_side`."""


@dataclass(frozen=True)
class SharesOfRange:
    """Each of `tasks` tasks decodes all splits, and keeps the last change of each key in its share of the
    keys."""

    tasks: int
    newer: bool
    """Whether all rows of the target with these keys are older."""
    driver_side: bool
    """The driver may do it alone, if the sink can write without a Spark job."""


@dataclass(frozen=True)
class ShuffleByKey:
    """One task per split keeps the last change of each key in the split. After a shuffle by key, `tasks`
    tasks keep the last change of each key."""

    tasks: int
    newer: bool


@dataclass(frozen=True)
class SharesOfChunks:
    """Each of `tasks` tasks places some of the chunks."""

    tasks: int
    newer: bool
    driver_side: bool


EventStrategy = TaskPerSplit | SharesOfRange | ShuffleByKey


def for_events(
    step: ApplyEvents,
    *,
    partial_images: bool,
    cores: int,
    driver_bytes_max: int,
    fetched: bool = False,
) -> EventStrategy:
    """The strategy for a table's events. `partial_images`: rows may lack columns, and are then merged with
    those of the target. `driver_bytes_max`: see `config.EpochConfig`. `fetched`: tasks run on other machines,
    and fetch the log."""
    if step.mode == "changes":
        return TaskPerSplit(step.newer, step.newer and step.bytes <= driver_bytes_max)
    newer = step.newer and not partial_images
    if step.bytes > WHOLE_RANGE_BYTES_MAX:
        return ShuffleByKey(max(cores, step.bytes // (2 * SHARE_BYTES)), newer)
    worth = min(cores, max(1, round(step.bytes / SHARE_BYTES)))
    needed = -(-step.bytes // KEYS_BYTES_MAX)
    tasks = max(worth, needed)
    if fetched and tasks > REMOTE_SHARES_MAX:
        return ShuffleByKey(tasks, newer)
    return SharesOfRange(tasks, newer, newer and step.bytes <= driver_bytes_max)


def for_chunks(step: PlaceChunks, *, cores: int, driver_bytes_max: int) -> SharesOfChunks:
    """The strategy for a step that places chunks."""
    # The target has no rows with the keys of appended rows. For others, another step may have written newer
    # changes that foreign keys made in the chunk's window.
    newer = step.mode == "append" or (step.newer and step.window is None)
    return SharesOfChunks(min(cores, len(step.chunks)), newer, driver_places(step, driver_bytes_max))


def kind_of(
    way: EventStrategy | SharesOfChunks, incomplete: Incomplete | None, *, in_driver: Callable[[], Batches]
) -> RowKind:
    """What is known of the rows that are made in this way. `incomplete`: they may lack columns. `in_driver`:
    makes them in this process."""
    if incomplete is not None:
        return incomplete
    match way:
        case (
            SharesOfRange(newer=True, driver_side=True)
            | SharesOfChunks(newer=True, driver_side=True)
            | TaskPerSplit(newer=True, driver_side=True)
        ):
            return Newer(in_driver)
        case TaskPerSplit(newer=True):
            return Newer()
        case SharesOfRange(newer=True) | SharesOfChunks(newer=True) | ShuffleByKey(newer=True):
            return Newer()
        case _:
            return AnyOrder()


def mode_of(step: ApplyEvents, *, partial_images: bool) -> Mode:
    """How the rows are written. Rows that lack columns are always merged. If a row was not read by the
    snapshot yet, the merge leaves it out."""
    return "merge" if partial_images and step.mode != "changes" else step.mode
