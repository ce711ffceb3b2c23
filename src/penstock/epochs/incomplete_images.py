"""Remembers which tables have row images without some of their columns, and where the missing values come
from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.epochs.moved_rows import completion
from penstock.errors import InternalError, TableError
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import KeyValues
from penstock.model.plan import ApplyEvents, Step
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.sources.row_images import Computation, PresentRows, RowImages


class IncompleteImages:
    """Learns from steps that failed because row images lack columns. Such a step is then repeated.
    Thread-safe.

    `everywhere`: the source leaves out columns in the images of all tables. `executed_at`: what the source
    had executed at an offset of the log (`snapshot.chunk_log.ChunkLog.executed_at`).
    """

    def __init__(
        self,
        source: RowImages,
        types: TypeOptions,
        *,
        everywhere: bool,
        executed_at: Callable[[Offset], str] = lambda offset: "",
    ) -> None:
        self._source = source
        self._types = types
        self._everywhere = everywhere
        self._executed_at = executed_at
        self._partial_tables: set[TableId] = set()
        self._moving_tables: set[TableId] = set()
        self._tables_with_gone_rows: set[TableId] = set()
        self._computed_tables: set[TableId] = set()

    def omitted(self, schema: TableSchema) -> pa.RecordBatch:
        """See `RowImages.omitted`."""
        return self._source.omitted(schema, self._types)

    def is_partial(self, table: TableId) -> bool:
        """Whether row images of the table may lack columns."""
        return self._everywhere or table in self._partial_tables

    def has_moved_rows(self, table: TableId) -> bool:
        """Whether row images of the table may have another key and lack columns."""
        return table in self._moving_tables

    def misses_rows(self, table: TableId) -> bool:
        """Whether the target may lack rows for now, because they had gone at the source when they were
        needed."""
        return table in self._tables_with_gone_rows

    def completion(
        self, schema: TableSchema, moved: Sequence[pa.RecordBatch], until: Offset
    ) -> pa.RecordBatch | None:
        """The rows of the source that complete moved ones: see `moved_rows.completion`. `until`: where the
        events end that are applied."""
        source = self._source
        if not isinstance(source, PresentRows):
            raise InternalError(f"The source cannot read rows of {schema.table} by their keys.")

        def present(keys: Sequence[KeyValues]) -> list[pa.RecordBatch]:
            return source.present(schema, keys, self._types, self._executed_at(until))

        found, some_gone = completion(schema, moved, self._types, present)
        if some_gone:
            self._tables_with_gone_rows.add(schema.table)
        return found

    def computation(self, schema: TableSchema) -> Computation | None:
        """How generated columns that images lack are computed; None: images have all of them. Asked for at
        each step, because only an expression of the definition may have changed."""
        return self._source.computation(schema) if schema.table in self._computed_tables else None

    def learns(self, schema: TableSchema, step: Step, error: BaseException) -> bool:
        """Whether a step failed because images lack columns, and this was not known for the table. If so,
        it is remembered, and the step is worth another attempt."""
        if not isinstance(step, ApplyEvents) or not isinstance(error, TableError):
            return False
        match error.details.get("lacks"):
            # A change log cannot have rows that lack columns, and the effects of foreign keys cannot be
            # computed from them.
            case "columns" if not (
                step.mode == "changes" or schema.foreign_keys or self.is_partial(schema.table)
            ):
                self._partial_tables.add(schema.table)
                return True
            case "moved" if not (
                step.mode == "changes"
                or self.has_moved_rows(schema.table)
                or not isinstance(self._source, PresentRows)
            ):
                self._partial_tables.add(schema.table)
                self._moving_tables.add(schema.table)
                return True
            case "generated" if schema.table not in self._computed_tables:
                self._computed_tables.add(schema.table)
                return True
        return False
