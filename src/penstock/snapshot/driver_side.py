"""Which chunks the driver reads and places itself.

A Spark job costs a tenth of a second or two before its task does anything, and a connection some
milliseconds. For a large chunk that is nothing; for a table of ten rows it is nearly all. So the driver does
by itself what is small: with the very functions that tasks call, a batch at a time, and with the same
manifests, marks and plans. Whether a chunk went the one way or the other can be seen nowhere afterwards, so
a guess that was wrong costs time and nothing else.
"""

from __future__ import annotations

from penstock.model.chunk import Chunk
from penstock.model.plan import PlaceChunks

ROWS_MAX = 10_000
"""Rows that are few."""


def reads_here(chunk: Chunk, rows_guess: int) -> bool:
    """Whether the driver reads a chunk, over a connection that it keeps from one such chunk to the next.

    It does if the chunk is all of a table that the server takes for small (`rows_guess`), or names its keys,
    which are some hundred at most. The guess is old or zero at times. But that all of a table is one chunk
    says already that it has no more rows than a chunk aims at, by an estimate of another kind; and rows are
    staged as they come, a batch at a time, however many they turn out to be.
    """
    if chunk.keys:
        return True
    whole = chunk.lower is None and chunk.upper is None and not chunk.condition
    return whole and chunk.snapshot == 0 and rows_guess <= ROWS_MAX


def places_here(step: PlaceChunks, bytes_max: int) -> bool:
    """Whether the driver may make the rows of placed chunks itself, for a sink that can do without a Spark
    job.

    It may while what was read and what is scanned for keys is at most `bytes_max` together. Rows that are
    merged, not appended, have to be few besides, since each leaves an equality delete; all that the target
    has of their keys must be older (`PlaceChunks.newer`), and no foreign key may change them in another step
    of their epoch. A chunk that was staged by a version that did not count what it read goes to Spark.
    """
    if any(chunk.rows and not chunk.bytes_read for chunk in step.chunks):
        return False
    read = sum(chunk.bytes_read for chunk in step.chunks)
    scanned = sum(split.end - split.start for scan in step.scans for split in scan.splits)
    if read + scanned > bytes_max:
        return False
    if step.mode == "append":
        return True
    named = sum(len(chunk.chunk.keys) for chunk in step.chunks)
    few = sum(chunk.rows for chunk in step.chunks) + named <= ROWS_MAX
    return step.mode == "merge" and step.newer and step.window is None and few
