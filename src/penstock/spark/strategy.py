"""How the rows of a step are made: by how many tasks, with or without a shuffle, or by the driver. Pure.

A Spark job costs a tenth of a second or two before its first row, a shuffle costs the rows once more, and a
task that reads all of a range costs the range once per task. Which of them is least depends on the step
alone. All strategies give the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.plan import ApplyEvents, Mode, PlaceChunks
from penstock.snapshot.driver_side import places_here

SHARE_BYTES = 24 * 1024**2
"""Log bytes that make one more task worth its start."""

KEYS_BYTES_MAX = 256 * 1024**2
"""Log bytes whose keys one task holds at most: 60 MB of keys when rows are 100 bytes."""

WHOLE_RANGE_BYTES_MAX = 1024**3
"""Up to this many bytes of one table's events each task reads the whole range and builds its share of keys:
no shuffle. Beyond, reading the range once per task would cost more than a shuffle of what reduction
leaves."""


@dataclass(frozen=True)
class TaskPerSplit:
    """Each task decodes one split, every row image of it. For change logs."""


@dataclass(frozen=True)
class SharesOfRange:
    """Each of `tasks` tasks decodes all splits and keeps the last change of each key in its share of keys."""

    tasks: int
    newer: bool
    """All that the target has of these keys is older."""
    driver_side: bool
    """The driver may do it, if the sink can write without a Spark job."""


@dataclass(frozen=True)
class ShuffleByKey:
    """A task per split keeps the last change of each key in it. After a shuffle by key, `tasks` tasks keep
    the last change of each key."""

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
    step: ApplyEvents, *, partial_images: bool, cores: int, driver_bytes_max: int
) -> EventStrategy:
    """`partial_images`: the rows may lack columns, so that they are merged with those of the target.
    `driver_bytes_max`: see `config.EpochConfig`."""
    if step.mode == "changes":
        return TaskPerSplit()
    newer = step.newer and not partial_images
    if step.bytes > WHOLE_RANGE_BYTES_MAX:
        return ShuffleByKey(max(cores, step.bytes // (2 * SHARE_BYTES)), newer)
    worth = min(cores, max(1, round(step.bytes / SHARE_BYTES)))
    needed = -(-step.bytes // KEYS_BYTES_MAX)
    return SharesOfRange(max(worth, needed), newer, newer and step.bytes <= driver_bytes_max)


def for_chunks(step: PlaceChunks, *, cores: int, driver_bytes_max: int) -> SharesOfChunks:
    # What foreign keys did to rows of the window is another step's, and may be newer than they.
    newer = step.newer and step.window is None
    return SharesOfChunks(min(cores, len(step.chunks)), newer, places_here(step, driver_bytes_max))


def mode_of(step: ApplyEvents, *, partial_images: bool) -> Mode:
    """A row that lacks columns may be one that is still to be read: a merge leaves that out."""
    return "merge" if partial_images and step.mode != "changes" else step.mode
