"""What a snapshot asks of a source, and what a chunk's reader returns.

A chunk is read in one session: low mark, SELECT, high mark. The promises behind the marks are the source's
(`sources/mysql/snapshot/watermark.py`); what follows from them is `placement.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.errors import TransientError
from penstock.model.chunk import Chunk, Watermarks
from penstock.model.offset import Offset
from penstock.model.schema import TableSchema


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
        """Batches in layout `rows`, in the order the server sends them."""

    @property
    def marks(self) -> ReadMarks:
        """Raises `InternalError` before the last batch has been taken."""


class ChunkReader(Protocol):
    """A session that reads chunks of tables, one after the other."""

    def require_gtids(self, contains: str) -> None:
        """Returns once the server has executed `contains` (the start of the table)."""

    def read(self, schema: TableSchema, chunk: Chunk) -> ChunkRead:
        """Begins one attempt. The one before must have been read to its end or the session closed."""

    def close(self) -> None:
        """Gives the connection up; may be called twice."""
