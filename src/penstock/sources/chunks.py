"""How the existing rows of a table are read: in chunks, each between two watermarks.

One session takes the low watermark, runs the SELECT and takes the high watermark. The source keeps the
promise that the watermarks make (`windows.py`). `snapshot/placement.py` decides what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.model.chunk import Chunk, Watermarks
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.windows import Window

if TYPE_CHECKING:
    import pyarrow as pa

ALL_ROWS = Part()


@dataclass(frozen=True)
class ReadResult:
    """The facts that a chunk's reader knows after it has read all rows."""

    watermarks: Watermarks
    server_uuid: str
    rows: int
    bytes: int = 0
    """Bytes that the server sent."""
    at: Offset | None = None
    """See `StagedChunk.at`."""


class ChunkRead(Protocol):
    """One attempt to read one chunk. After the last batch, `result` is available."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields batches in layout `rows`, in the order in which the source sends them. Raises
        `ChunkOutdated` if the table has other columns now."""

    @property
    def result(self) -> ReadResult:
        """The watermarks and counts. Raises `InternalError` before the last batch has been taken."""


class ChunkReader(Protocol):
    """A session that reads chunks, one after the other. Only one thread uses it."""

    def require(self, executed: str) -> None:
        """Waits until this server has executed the transactions in `executed`, which the log had at an offset
        (`snapshot.chunk_log.ChunkLog.executed_at`). Later reads then show them. Raises `TransientError` if
        that takes too long."""

    def read(self, schema: TableSchema, chunk: Chunk) -> ChunkRead:
        """Begins one attempt. The attempt before it must have been read to its end."""

    def leave(self) -> None:
        """Ends the session between two chunks. Returns when the server has ended it, too."""

    def close(self) -> None:
        """Ends the session, even in the middle of a chunk. May be called twice."""


class Views(Protocol):
    """Opens read views of the source in one session."""

    @property
    def server_uuid(self) -> str:
        """The server in whose log the watermarks are."""

    def open_view(self) -> Window:
        """Opens a read view that lasts until the session's transaction ends, and closes the view before it.
        The window's watermarks were taken right before and after the opening."""


class ViewChoice(Protocol):
    """Chooses the read view for a chunk whose rows must be those of exactly one offset. It is a value that
    can be pickled."""

    def open(self, views: Views) -> tuple[Window, Offset]:
        """Leaves a read view open that shows the tables as they were at the returned offset. Raises
        `TransientError` if no such view can be found."""


class Host(Protocol):
    """A server that chunks are read from. It is a value that can be pickled. Equal hosts are the same
    server."""

    @property
    def address(self) -> str:
        """The address, for people. Different hosts have different addresses."""

    @property
    def is_replica(self) -> bool:
        """Whether this is another server than the one whose log is followed. Such a server cannot open views
        of one offset."""

    def open_reader(self, *, types: TypeOptions, view: ViewChoice | None = None) -> ChunkReader:
        """Connects. With `view`, each chunk is read in a view that it chooses; otherwise between watermarks.
        Raises `TransientError` if the host does not answer, and `ConfigError` if it cannot take
        watermarks."""


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
        """Yields chunks of about `chunk_rows` rows as it finds them, without gaps or overlaps. With `after`,
        only the chunks behind that one. First waits until the source has executed `executed`
        (`ChunkReader.require`), and calls `sized` with the estimated number of rows. Raises `ChunkOutdated`
        and `TransientError`."""

    def close_idle(self) -> None:
        """Says that no table is left to split for now, so that connections can be closed."""
