"""What is asked of a source beside its log: what its tables look like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.table_filter import TableFilter

Reason = tuple[str, str]
"""Why a table is parked, and the cure."""


class Catalog(Protocol):
    """Reads definitions from the database itself, as they are now: the log may be behind them.

    Thread-safe. What asks the source raises `TransientError` while it does not answer.
    """

    @property
    def fold_case(self) -> bool:
        """Names of tables that differ only in letter case are one table."""

    @property
    def logs_cascades(self) -> bool:
        """Rows that a foreign key changes by itself have events in the log."""

    def read_tables(self, captured: TableFilter) -> dict[TableId, TableSchema]:
        """Every existing base table that the filter captures, in name order."""

    def read_table(self, table: TableId) -> TableSchema | None:
        """One table; None when there is no such base table, or the account may not see it."""

    def same_definition(self, one: TableSchema | None, other: TableSchema) -> bool:
        """Columns and keys are the same. Versions do not count, nor what the catalog prints differently at
        times. Asks nothing."""

    def unfollowable(self, tables: Iterable[TableId], *, cascades: bool) -> dict[TableId, Reason]:
        """Those of the tables whose rows change without events of theirs in the log. `cascades`: also those
        that foreign keys change; where the log has these changes, there are none."""

    def cascade_reason(self, table: TableId) -> Reason:
        """Why a table that foreign keys change cannot be followed. Asks nothing."""

    def check_condition(self, schema: TableSchema, condition: str) -> None:
        """Raises `ConfigError` for a condition on rows of the table that the source refuses."""

    def key_literal(self, column: Column, value: Any) -> str:
        """A value of a key column, which `named_keys.check_keys` has accepted, as a bound of chunks
        (`model.chunk.Chunk`). Asks nothing."""
