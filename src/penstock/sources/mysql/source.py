"""The source MySQL or MariaDB: connects the parts of `sources/base.py`, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pymysql

from penstock.config import PipelineConfig
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.relaylog.full_statements import in_full
from penstock.relaylog.reader import RelayLog, Statement
from penstock.relaylog.unprotected import unprotected_statements
from penstock.sources.mysql import followed_host, preflight, start_position, timeouts
from penstock.sources.mysql.collations import MySqlComparisons
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.faults import explain
from penstock.sources.mysql.generated_columns import MySqlComputation, computation
from penstock.sources.mysql.omitted_columns import omitted_values
from penstock.sources.mysql.options import MySqlOptions, options_of
from penstock.sources.mysql.session import SourceSession
from penstock.sources.mysql.snapshot.host_selection import MySqlHosts
from penstock.sources.mysql.snapshot.window import MySqlWindows
from penstock.sources.mysql.statements import MySqlStatements
from penstock.sources.mysql.verify.read_view import MySqlReadView, read_view
from penstock.sources.preflight import Finding
from penstock.sources.supervisor import Supervisor
from penstock.sources.table_filter import TableFilter


class MySqlSource:
    """`sources.base.Source`. Its parts connect to the host that the receiver follows."""

    def __init__(self, config: PipelineConfig, *, foreign_keys: bool = False) -> None:
        self._config = config
        self.preflight = MySqlPreflight(config)
        self.catalog = SourceSession(options_of(config), config.relay_log_path, foreign_keys=foreign_keys)
        self.comparisons = MySqlComparisons()
        self.chunks = self.catalog
        self.windows = MySqlWindows()
        self.row_images = MySqlRowImages(self._followed)

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
    ) -> MySqlStatements:
        return MySqlStatements(
            captured,
            self.catalog.read_table,
            lambda: self.catalog.traits.statements,
            read_database=self.catalog.read_database,
            earlier=lambda offset: unprotected_statements(log, LogRange(Offset(0), offset)),
            in_full=lambda statement: in_full(log, statement),
            is_view=self.catalog.is_view,
            may_set_savepoint=self.catalog.may_set_savepoint,
            types=types,
            parks_cascades=parks_cascades,
            with_foreign_keys=with_foreign_keys,
        )

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        return self.catalog.touched(statement, tables)

    def snapshot_hosts(self, captured: TableFilter, bytes_outside: Callable[[str], int]) -> MySqlHosts:
        return MySqlHosts(self._config.snapshot, self._followed, captured, bytes_outside)

    @contextmanager
    def read_view(self) -> Iterator[MySqlReadView]:
        source = self._followed()
        connection = connect(source, role="verify", slow_rows=True)
        try:
            with read_view(connection, source.watermark_table) as view:
                yield view
        except (pymysql.Error, OSError) as error:
            raise explain(error, source) from error
        finally:
            connection.close()

    def interrupt(self, reason: str) -> int:
        return timeouts.interrupt(reason)

    def close(self) -> None:
        self.catalog.close()

    def _followed(self) -> MySqlOptions:
        return followed_host.followed(options_of(self._config), self._config.relay_log_path)


class MySqlPreflight:
    def __init__(self, config: PipelineConfig) -> None:
        self._config = config

    def check(self, config: PipelineConfig) -> list[Finding]:
        return preflight.check(config)

    def check_start(self) -> None:
        start_position.check(self._config)


class MySqlRowImages:
    def __init__(self, followed: Callable[[], MySqlOptions]) -> None:
        self._followed = followed

    def omitted(self, schema: TableSchema, types: TypeOptions) -> pa.RecordBatch:
        return omitted_values(schema, types)

    def computation(self, schema: TableSchema) -> MySqlComputation:
        return computation(self._followed(), schema)
