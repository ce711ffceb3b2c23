"""How a table's rows are read beside the log: cut into chunks, each chunk between two watermarks.

A chunk is read in one session: low watermark, SELECT, high watermark. What the watermarks promise is the
source's to keep; what follows from the promise is decided in `snapshot/placement.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.errors import TransientError
from penstock.model.chunk import Chunk, Watermarks
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.windows import Window

ALL_ROWS = Part()


class ChunkOutdated(TransientError):
    """The table is no longer what the chunk was planned with: read the catalog, then plan and read again."""


@dataclass(frozen=True)
class ReadMarks:
    """What is known once all rows of a chunk have been read."""

    watermarks: Watermarks
    server_uuid: str
    rows: int
    bytes: int = 0
    """What the server sent."""
    at: Offset | None = None
    """See `StagedChunk.at`."""


class ChunkRead(Protocol):
    """One attempt at one chunk: iterate to the end, then `marks` is there."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches in layout `rows`, in the order the source sends them. Raises `ChunkOutdated` when the table
        has other columns by now."""

    @property
    def marks(self) -> ReadMarks:
        """Raises `InternalError` before the last batch has been taken."""


class ChunkReader(Protocol):
    """A session that reads chunks of tables, one after the other. Serves one thread."""

    def require(self, executed: str) -> None:
        """Returns once all that is read from now on shows `executed`: what the log held at an offset
        (`snapshot.chunk_log.ChunkLog.executed_at`). `TransientError` if that takes too long."""

    def read(self, schema: TableSchema, chunk: Chunk) -> ChunkRead:
        """Begins one attempt. The one before must have been read to its end or the session closed."""

    def leave(self) -> None:
        """Ends the session between two chunks. Returns when the server has let go of it."""

    def close(self) -> None:
        """Gives the session up, also in the middle of a chunk; may be called twice."""


class Views(Protocol):
    """Opens read views of the source in one session."""

    @property
    def server_uuid(self) -> str:
        """The server that the watermarks speak of."""

    def open_view(self) -> Window:
        """Opens one view for all that is read until the session's transaction ends, and closes the one
        before. The watermarks were taken right around the opening."""


class ViewChoice(Protocol):
    """Which view a chunk reader takes for a chunk whose rows must be those of one offset. A value: it
    pickles."""

    def open(self, views: Views) -> tuple[Window, Offset]:
        """Leaves a view open that shows the tables as they stood at the offset. `TransientError` when none
        can be had."""


class Host(Protocol):
    """A server that chunks are read from. A value: it pickles, and equal hosts are the same server."""

    @property
    def address(self) -> str:
        """For people; different hosts have different addresses."""

    @property
    def is_replica(self) -> bool:
        """It is another server than the one whose log is followed. Views of one offset cannot be opened
        there."""

    def open_reader(self, *, types: TypeOptions, view: ViewChoice | None = None) -> ChunkReader:
        """Connects. `view`: each chunk is read in a view that this chooses; None: between watermarks. Raises
        `TransientError` when the host does not answer, `ConfigError` when it knows no watermarks."""


class Chunks(Protocol):
    """Cuts tables into chunks. Thread-safe."""

    def find(
        self,
        schema: TableSchema,
        chunk_rows: int,
        executed: str,
        *,
        sized: Callable[[int], None],
        part: Part = ALL_ROWS,
        after: Chunk | None = None,
    ) -> Iterator[Chunk]:
        """Chunks of about `chunk_rows` rows, as they are found; with no gaps and no overlaps. `after`: those
        behind one that is known. Nothing is asked before the source shows `executed` (`ChunkReader.require`).
        `sized` is told at once about how many rows the table has. Raises `ChunkOutdated` and
        `TransientError`."""

    def rest(self) -> None:
        """There is no more table to be cut for now: connections may be given up."""
