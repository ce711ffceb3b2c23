"""The source PostgreSQL: connects the parts of `sources/base.py`, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from penstock.cascades.comparison import Comparison
from penstock.config import PipelineConfig
from penstock.model.offset import SourcePosition
from penstock.model.schema import Column, TableId, TypeOptions
from penstock.relaylog.full_statements import in_full
from penstock.relaylog.reader import RelayLog, Statement
from penstock.sources.logged_definitions import LoggedDefinitions
from penstock.sources.postgresql.options import options_of, publication_of
from penstock.sources.postgresql.preflight import PostgreSqlPreflight
from penstock.sources.postgresql.read_view import PostgreSqlReadView, read_view
from penstock.sources.postgresql.row_images import PostgreSqlRowImages
from penstock.sources.postgresql.session import PostgreSqlSession
from penstock.sources.postgresql.standbys import PostgreSqlHosts
from penstock.sources.postgresql.window import PostgreSqlWindows
from penstock.sources.supervisor import Supervisor
from penstock.sources.table_filter import TableFilter


class PostgreSqlSource:
    """`sources.base.Source`."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._options, self._publication = options_of(config), publication_of(config)
        self.preflight = PostgreSqlPreflight(config)
        self.catalog = PostgreSqlSession(self._options, self._publication)
        self.chunks = self.catalog
        self.comparisons = PostgreSqlComparisons()
        self.windows = PostgreSqlWindows()
        self.row_images = PostgreSqlRowImages(self._options, self._publication)

    def receiver(self, file: Path) -> Supervisor:
        return Supervisor(file)

    def end_position(self) -> SourcePosition:
        return self.catalog.end_position()

    def clock_us(self) -> int:
        return self.catalog.clock_us()

    def statements(
        self,
        captured: TableFilter,
        log: RelayLog,
        *,
        types: TypeOptions,
        parks_cascades: bool,
        with_foreign_keys: bool = False,
    ) -> LoggedDefinitions:
        return statements_of(captured, log)

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        if statement.truncated:
            return tables
        said = LoggedDefinitions(TableFilter(self._config.tables), lambda whole: whole)
        return said.touched(statement, tables)

    def snapshot_hosts(self, captured: TableFilter, bytes_outside: Callable[[str], int]) -> PostgreSqlHosts:
        return PostgreSqlHosts(self._config.snapshot, self._options, self._publication)

    def read_view(self) -> AbstractContextManager[PostgreSqlReadView]:
        return read_view(self._options, self._publication)

    def interrupt(self, reason: str) -> int:
        return 0

    def close(self) -> None:
        self.catalog.close()


def statements_of(captured: TableFilter, log: RelayLog) -> LoggedDefinitions:
    return LoggedDefinitions(captured, lambda statement: in_full(log, statement))


class PostgreSqlComparisons:
    """`cascades.comparison.Comparisons`. The log has what foreign keys change, so nobody compares."""

    def of(self, column: Column) -> Comparison:
        return "exact"

    def is_case_sensitive(self, column: Column) -> bool:
        return True
