"""Makes chunks of bounds, for every source. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.model.chunk import Chunk
from penstock.model.partial_snapshot import Part
from penstock.model.schema import TableId
from penstock.sources.chunks import ALL_ROWS

Bound = tuple[str, ...]

CHUNK_BYTES = 64 * 1024**2
"""Intended bytes per chunk, by the server's average row length. Large rows make chunks of fewer rows, so that
a chunk is read within seconds."""
CHUNK_ROWS_MIN = 100
"""Rows of the smallest chunks, however large the rows are: each chunk costs watermarks and a file."""
CHUNK_KEYS = 500
"""Named keys per chunk. The statement that reads them stays short."""


@dataclass(frozen=True)
class TableSize:
    """The server's estimates of a table, made without reading it."""

    rows: int
    row_bytes: int

    def chunk_rows(self, chunk_rows: int) -> int:
        """Rows per chunk. Large rows make it smaller."""
        if self.row_bytes <= 0:
            return chunk_rows
        return max(min(chunk_rows, CHUNK_BYTES // self.row_bytes), min(chunk_rows, CHUNK_ROWS_MIN))


def join_bounds(
    table: TableId,
    bounds: Iterable[Bound],
    *,
    after: Chunk | None = None,
    part: Part = ALL_ROWS,
) -> Iterator[Chunk]:
    """Chunks between consecutive bounds: open below the first and above the last one, or ending where the
    `part` does.

    `after` is the last chunk known from an earlier run that ended within planning: numbers and bounds go on
    from it, and it must have had an upper bound.
    """
    number, lower = (0, part.lower) if after is None else (after.number + 1, after.upper)
    for bound in bounds:
        if bound in (lower, part.upper):
            continue
        yield Chunk(table, number, lower, bound, condition=part.condition)
        number, lower = number + 1, bound
    yield Chunk(table, number, lower, part.upper, condition=part.condition)


def keyed_chunks(table: TableId, part: Part) -> Iterator[Chunk]:
    """Chunks of a partial snapshot that names its keys."""
    keys = list(dict.fromkeys(part.keys))
    for number, start in enumerate(range(0, len(keys), CHUNK_KEYS)):
        some = tuple(keys[start : start + CHUNK_KEYS])
        yield Chunk(table, number, None, None, condition=part.condition, keys=some)
