"""Decides which chunks the driver reads and places without a Spark job.

A Spark job takes 0.1 to 0.2 s before its task starts, and opening a connection takes some milliseconds. That
is nothing for a large chunk, but nearly all of the time for a table of ten rows. So the driver handles small
chunks alone. It calls the same functions as the tasks, works batch by batch, and leaves the same manifests,
watermarks and plans. The result is the same in both ways, so a wrong guess only costs time.
"""

from __future__ import annotations

from penstock.model.chunk import Chunk
from penstock.model.plan import PlaceChunks

ROWS_MAX = 10_000
"""Rows of a small table. The driver reads so many in less time than a Spark job takes to start."""

BYTES_MAX = 16 * 1024**2
"""Rows of chunks, and the log that is scanned for their keys. Several tasks place more in less time."""


def driver_reads(chunk: Chunk, rows_guess: int) -> bool:
    """Whether the driver reads this chunk. It keeps one connection for all such chunks.

    It does so in two cases. The chunk names its keys, which are some hundred at most. Or the chunk is the
    whole table, and the server estimates at most `ROWS_MAX` rows (`rows_guess`). This estimate may be old, or
    0. But a table is one chunk only if a second, different estimate says that it is small. The driver never
    has more than one batch of rows in memory.
    """
    if chunk.keys:
        return True
    whole = chunk.lower is None and chunk.upper is None and not chunk.condition
    return whole and chunk.snapshot == 0 and rows_guess <= ROWS_MAX


def driver_places(step: PlaceChunks, bytes_max: int) -> bool:
    """Whether the driver may produce the rows of these chunks, for a sink that can write without a Spark
    job.

    The rows and the log that is scanned for their keys must have at most `bytes_max` bytes together, and at
    most `BYTES_MAX`. If the rows are merged, there are more conditions. There must be few of them. The rows
    that the target has for their keys must be older (`PlaceChunks.newer`). No foreign key may change the rows
    in another step of the epoch. A chunk without a byte count, staged by an older version, is left to Spark.
    """
    if any(chunk.rows and not chunk.bytes_read for chunk in step.chunks):
        return False
    read = sum(chunk.bytes_read for chunk in step.chunks)
    scanned = sum(split.end - split.start for scan in step.scans for split in scan.splits)
    if read + scanned > min(bytes_max, BYTES_MAX):
        return False
    if step.mode == "append":
        return True
    named = sum(len(chunk.chunk.keys) for chunk in step.chunks)
    is_small = sum(chunk.rows for chunk in step.chunks) + named <= ROWS_MAX
    return step.mode == "merge" and step.newer and step.window is None and is_small
