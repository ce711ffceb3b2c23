"""What completes row events that lack columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from penstock.model.schema import TableSchema, TypeOptions


class Computer(Protocol):
    """Fills in generated columns."""

    def fill(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows without the column `_base`, and with the values that were missing."""


class Computation(Protocol):
    """How the source computes a table's generated columns. A value: it pickles, and goes to Spark's tasks."""

    @property
    def base(self) -> tuple[str, ...]:
        """The columns of which they are made (`_core.RangeDecoder(base_columns=)`)."""

    def computer(self, types: TypeOptions) -> AbstractContextManager[Computer]:
        """Connects to the source when it is first needed, and lets go of it at the end of the block."""


class RowImages(Protocol):
    """Thread-safe."""

    def omitted(self, schema: TableSchema, types: TypeOptions) -> pa.RecordBatch:
        """What a row holds in columns that the log leaves out of its insert: one row, as Arrow has it (layout
        `rows`), in the columns for which that is known. Asks nothing."""

    def computation(self, schema: TableSchema) -> Computation:
        """For generated columns that row events leave out, by the present definition of the table. Raises
        `TableError` (`unfit=True`) if that is not `schema` any more."""
