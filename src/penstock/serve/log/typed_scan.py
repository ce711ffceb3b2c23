"""Reads the rows of one table as Arrow, for one subscription: `scan.EntryScan` with typed columns.

A piece is a range of the log between two committed offsets, and has one entry: JSON about it, a line break,
and an Arrow IPC stream with the rows, if there are any. A range ends at each statement about the table, which
the JSON has. So the rows of an entry have one definition. Only a transaction with several statements has an
entry for each of them, the first one with the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock._core import DecodeError, RangeDecoder, arrow_schema
from penstock.errors import TableError
from penstock.model.offset import LogRange, Split
from penstock.model.schema import DEFAULT_TYPES, TableSchema
from penstock.relaylog.segment_bytes import opened
from penstock.serve.batches import Piece, Place
from penstock.serve.log.served_log import ServedLog, explained
from penstock.serve.log.view import View

LAYOUT = "changelog"


@dataclass(frozen=True)
class TypedEntry:
    """Rows of a table, which have one schema. `statement`: the one that defines or empties the table behind
    them."""

    statement: dict[str, Any] | None
    rows: list[pa.RecordBatch]

    @classmethod
    def read(cls, data: bytes) -> TypedEntry:
        end = data.index(b"\n")
        rows = pa.py_buffer(memoryview(data)[end + 1 :])
        batches = list(pa.ipc.open_stream(rows)) if rows.size else []
        return cls(json.loads(data[:end])["statement"], batches)

    def to_bytes(self) -> bytes:
        sink = pa.BufferOutputStream()
        sink.write(json.dumps({"statement": self.statement}, ensure_ascii=False).encode() + b"\n")
        if self.rows:
            with pa.ipc.new_stream(sink, self.rows[0].schema) as writer:
                for one in self.rows:
                    writer.write_batch(one)
        return bytes(sink.getvalue())


def columns_of(view: View, schema: TableSchema) -> list[str] | None:
    """The columns that a view has of a table. None: all."""
    for name, keep, chosen in view.columns:
        if name.lower() == str(schema.table).lower():
            named = {one.lower() for one in chosen}
            return [one.name for one in schema.columns if (one.name.lower() in named) == keep]
    return None


def schema_of(view: View, schema: TableSchema) -> pa.Schema:
    """The Arrow schema of the rows of a table."""
    whole = arrow_schema(schema.to_json(), LAYOUT, DEFAULT_TYPES.to_json())
    columns = columns_of(view, schema)
    if columns is None:
        return whole
    own = {one.name for one in schema.columns}
    return pa.schema([one for one in whole if one.name not in own or one.name in columns])


class TypedScan:
    """Reads the rows behind `place`. `passed`: everything up to here was read."""

    def __init__(self, served: ServedLog, view: View, place: Place) -> None:
        self._served = served
        self._view = view
        self._skip = place.entries
        self.passed = place.offset

    def read(self, _size: int = 0) -> list[Piece] | None:
        """The next piece, or none, without a limit but that of a part of the log. None: at the end of the
        log. Raises `PenstockError`."""
        part = self._served.typed_part(self.passed, self._view.tables)
        if part is None:
            return None
        start, self.passed = self.passed, part.range.end
        rows = [] if not part.splits else list(self._rows(part.schema, part.splits, part.range))
        if not rows and not part.statements:
            return []
        first, *others = part.statements or (None,)
        entries = [TypedEntry(first, rows), *(TypedEntry(one, []) for one in others)]
        skip, self._skip = min(self._skip, len(entries)), 0
        return [Piece(Place(start, skip), [one.to_bytes() for one in entries[skip:]], part.range.end)]

    def _rows(
        self, schema: TableSchema | None, splits: tuple[Split, ...], reach: LogRange
    ) -> Iterator[pa.RecordBatch]:
        if schema is None:
            raise TableError(
                f"The definition of the table is not known at offset {reach.start}.",
                hint="Begin behind it, or read the changes as JSON.",
            )
        for split in splits:
            found = opened(split)
            try:
                decoder = RangeDecoder(
                    schema.to_json(), *found.place, preamble=found.preamble, layout=LAYOUT,
                    columns=columns_of(self._view, schema), types=DEFAULT_TYPES.to_json(),
                    identity_images=True,
                )  # fmt: skip
                yield from (one for one in decoder if one.num_rows)
            except DecodeError as error:
                raise explained(error) from error
