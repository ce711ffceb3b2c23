"""The definitions of tables, read from the source itself instead of its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.table_filter import TableFilter

Reason = tuple[str, str]
"""Why a table is parked, and what the operator can do about it."""


class Catalog(Protocol):
    """Reads definitions from the database, as they are now. The relay log may still be behind them.

    Thread-safe. A call that needs the source raises `TransientError` while the source does not answer.
    """

    @property
    def fold_case(self) -> bool:
        """Whether table names that differ only in letter case mean the same table."""

    @property
    def logs_cascades(self) -> bool:
        """Whether the log has row events for rows that a foreign key changes."""

    @property
    def reads_tables(self) -> bool:
        """Whether the source can be asked for its tables. If not, all tables and rows come from the log."""

    def read_tables(self, captured: TableFilter) -> dict[TableId, TableSchema]:
        """All existing base tables that the filter captures, ordered by name."""

    def read_table(self, table: TableId) -> TableSchema | None:
        """The definition of one table. None if there is no such base table, or if the account may not see
        it."""

    def same_definition(self, one: TableSchema | None, other: TableSchema) -> bool:
        """Whether columns and keys are the same. Versions do not count, and neither do details that the
        catalog prints in different ways. Does not connect."""

    def unfollowable(
        self, tables: Iterable[TableId], *, cascades: bool, reads: bool
    ) -> dict[TableId, Reason]:
        """The tables whose rows change without row events in the log, each with the reason. `cascades`:
        includes tables whose rows foreign keys change, unless the log has these changes. `reads`: and tables
        that the source cannot open, so that their rows cannot be read."""

    def cascade_reason(self, table: TableId) -> Reason:
        """Why a table whose rows foreign keys change cannot be followed. Does not connect."""

    def add_key(self, table: TableId) -> str:
        """What an operator does to give the table a primary key, as one SQL statement or sentence without
        its full stop. Does not connect."""

    def check_condition(self, schema: TableSchema, condition: str) -> None:
        """Raises `ConfigError` unless `condition` is one condition on a row of the table, in the source's own
        language, and the source accepts it. Anybody who may send signals can choose it. So it may read no
        other table and do nothing else; otherwise it is refused, and not sent to the source."""

    def key_literal(self, column: Column, value: Any) -> str:
        """A value of a key column as a bound of chunks (`model.chunk.Chunk`). `named_keys.check_keys` has
        accepted the value. Does not connect."""
