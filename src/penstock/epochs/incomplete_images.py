"""Remembers which tables have row images without some of their columns, and where the missing values come
from."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import TableError
from penstock.model.plan import ApplyEvents, Step
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.sources.row_images import Computation, RowImages


class IncompleteImages:
    """Learns from steps that failed because row images lack columns. Such a step is then repeated.
    Thread-safe.

    `everywhere`: the source leaves out columns in the images of all tables.
    """

    def __init__(self, source: RowImages, types: TypeOptions, *, everywhere: bool) -> None:
        self._source = source
        self._types = types
        self._everywhere = everywhere
        self._partial_tables: set[TableId] = set()
        self._computed_tables: set[TableId] = set()

    def omitted(self, schema: TableSchema) -> pa.RecordBatch:
        """See `RowImages.omitted`."""
        return self._source.omitted(schema, self._types)

    def is_partial(self, table: TableId) -> bool:
        """Whether row images of the table may lack columns."""
        return self._everywhere or table in self._partial_tables

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
            case "generated" if schema.table not in self._computed_tables:
                self._computed_tables.add(schema.table)
                return True
        return False
