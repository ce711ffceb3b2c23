"""Reads present rows by their keys, for row events that lack values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.model.chunk import Chunk
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.postgresql.chunk_reader import PostgreSqlChunkReader
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.sources.row_images import LogImages


class PostgreSqlRowImages(LogImages):
    """`sources.row_images.PresentRows`."""

    def __init__(self, options: PostgreSqlOptions, publication: str) -> None:
        self._options, self._publication = options, publication

    def present(
        self, schema: TableSchema, keys: Sequence[KeyValues], types: TypeOptions, executed: str
    ) -> list[pa.RecordBatch]:
        reader = PostgreSqlChunkReader(self._options, self._publication, types)
        try:
            reader.require(executed)
            return list(reader.read(schema, Chunk(schema.table, 0, None, None, keys=tuple(keys))))
        finally:
            reader.leave()
