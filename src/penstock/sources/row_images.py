"""Completes row events that lack columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.errors import InternalError
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import TableSchema, TypeOptions

if TYPE_CHECKING:
    import pyarrow as pa


class Computer(Protocol):
    """Fills in generated columns."""

    def fill(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the same rows with their missing values, and without the column `_penstock_base`."""


class Computation(Protocol):
    """How the source computes a table's generated columns. It is a value that is pickled for Spark's
    tasks."""

    @property
    def base(self) -> tuple[str, ...]:
        """The columns that the generated columns are computed from (`_core.RangeDecoder(base_columns=)`)."""

    def computer(self, types: TypeOptions) -> AbstractContextManager[Computer]:
        """A computer that connects when it is first needed. The connection is closed at the end of the
        block."""


class RowImages(Protocol):
    """Returns the values that row events lack. Thread-safe."""

    def omitted(self, schema: TableSchema, types: TypeOptions) -> pa.RecordBatch:
        """The values of columns that the log leaves out of an insert: one row in layout `rows`, with the
        columns for which the value is known. Does not connect."""

    def computation(self, schema: TableSchema) -> Computation:
        """How to compute generated columns that row events lack, by the table's current definition. Raises
        `TableError` (`definition_differs=True`) if that is no longer `schema`."""


@runtime_checkable
class PresentRows(Protocol):
    """`RowImages` of a source whose rows can be read by their keys at any time."""

    def present(
        self, schema: TableSchema, keys: Sequence[KeyValues], types: TypeOptions, executed: str
    ) -> list[pa.RecordBatch]:
        """The rows that have these keys, in layout `rows`, after the source has executed `executed`
        (`sources.chunks.ChunkReader.require`). Raises `ChunkOutdated` if the table has another definition
        now."""


class LogImages:
    """`RowImages` of a source whose log has all columns of new rows, and no generated ones."""

    def omitted(self, schema: TableSchema, types: TypeOptions) -> pa.RecordBatch:
        import pyarrow

        return pyarrow.RecordBatch.from_arrays([], schema=pyarrow.schema([]))

    def computation(self, schema: TableSchema) -> Computation:
        raise InternalError(f"The log has all columns of {schema.table}.")
