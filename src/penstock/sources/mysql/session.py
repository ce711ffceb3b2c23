"""Asks the source for definitions, the end of its log, and bounds of chunks.

Questions are rare (a new table, an ADD COLUMN, a start), so they share one connection under a lock. It is
opened again after it was lost. Splitting a table takes a connection of its own, which the next table can
reuse. There are no locks and no writes at the source.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import pymysql

from penstock.errors import ChunkOutdated, ConfigError, TableError, TransientError
from penstock.model.chunk import Chunk
from penstock.model.offset import SourcePosition
from penstock.model.partial_snapshot import Part
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog.reader import Statement
from penstock.sources.catalog import Reason
from penstock.sources.chunk_bounds import keyed_chunks
from penstock.sources.chunks import ALL_ROWS
from penstock.sources.mysql import catalog, followed_host, savepoints, statements
from penstock.sources.mysql.broken_tables import broken_reason, broken_tables, is_broken
from penstock.sources.mysql.condition import LEXIS
from penstock.sources.mysql.connection import connect, hang_up
from penstock.sources.mysql.faults import NOT_AN_ANSWER, explain, fitting, is_refusal
from penstock.sources.mysql.foreign_keys import read_cascading_keys
from penstock.sources.mysql.identifiers import add_key_sql, quoted
from penstock.sources.mysql.merge_tables import merge_reason, read_merge_tables
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot import watermark
from penstock.sources.mysql.snapshot.keys import key_literal
from penstock.sources.mysql.snapshot.reader import prepare_session
from penstock.sources.mysql.snapshot.split import MySqlChunkPlanner
from penstock.sources.mysql.versioned_tables import read_versioned_tables, versioned_reason
from penstock.sources.table_filter import TableFilter

T = TypeVar("T")

GTID_WAIT_SECONDS = 60
"""How long splitting waits for a server to execute the log up to the table's start. A replica may lag; what
waits longer is tried again."""
SPARE_SECONDS = 5.0
"""How long a connection for splitting may be idle before it is not reused. The server may have closed an
older one."""


@dataclass(frozen=True)
class _Spare:
    connection: Any
    config: MySqlOptions
    since: float


def _request_current_sizes(connection: Any) -> None:
    """Makes MySQL 8.0 and newer read current sizes of tables. By default it caches them for a day, and writes
    to its own tables when they are read."""
    with connection.cursor() as cursor:
        # This query comes first: the warnings of a failed SET would be taken for those of a later one.
        if cursor.execute("SHOW VARIABLES LIKE 'information\\_schema\\_stats\\_expiry'"):
            cursor.execute("SET SESSION information_schema_stats_expiry = 0")


class SourceSession:
    """`sources.catalog.Catalog` and `sources.chunks.Chunks`. It connects when it is first needed. Raises
    `TransientError` while the source cannot be reached."""

    def __init__(
        self, config: MySqlOptions, relay_log: Path | None = None, *, foreign_keys: bool = False
    ) -> None:
        """`relay_log`: its receiver says which of several hosts is followed. `foreign_keys`: definitions have
        the foreign keys that cascade, if their changes are not in the log."""
        self._all = config
        self._foreign_keys = foreign_keys
        self._relay_log = relay_log
        self._lock = threading.RLock()
        self._connection: Any = None
        self._connected_to: MySqlOptions | None = None
        self._server_uuid: str | None = None
        self._traits: catalog.ServerTraits | None = None
        self._spares: SimpleQueue[_Spare] = SimpleQueue()

    @property
    def _config(self) -> MySqlOptions:
        return self._all if self._relay_log is None else followed_host.followed(self._all, self._relay_log)

    def close(self) -> None:
        with self._lock:
            self._server_uuid = None  # the next connection may be to another host
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        self.close_idle()

    def close_idle(self) -> None:
        """Closes the connections that split tables."""
        while (spare := self._take_spare()) is not None:
            hang_up(spare.connection)

    def _take_spare(self) -> _Spare | None:
        try:
            return self._spares.get_nowait()
        except Empty:
            return None

    def _splitter(self, config: MySqlOptions) -> Any:
        """A connection for splitting a table: a new one, or that of the table before."""
        spare = self._take_spare()
        if spare is not None:
            if spare.config == config and time.monotonic() < spare.since + SPARE_SECONDS:
                return spare.connection
            hang_up(spare.connection)
        connection = connect(config)
        try:
            prepare_session(connection)
            _request_current_sizes(connection)
        except BaseException:
            connection._force_close()
            raise
        return connection

    def _ask(self, question: Callable[[Any], T]) -> T:
        with self._lock:
            for attempt in (1, 2):
                try:
                    config = self._config
                    if self._connection is not None and config != self._connected_to:
                        self.close()  # another host is followed now, even if the one before answers
                        self._traits = None
                    if self._connection is None:
                        self._connection, self._connected_to = connect(config), config
                    with fitting():
                        return question(self._connection)
                except (pymysql.OperationalError, pymysql.InterfaceError, OSError) as error:
                    self.close()
                    if attempt == 2:
                        why = explain(error, self._config)
                        raise TransientError(f"The source did not answer. {why.message}") from error
            raise AssertionError("unreachable")

    def _log_end(self, connection: Any) -> watermark.LogEnd:
        return watermark.LogEnd(connection)

    @property
    def traits(self) -> catalog.ServerTraits:
        if self._traits is None:
            self._traits = self._ask(catalog.describe_server)
        return self._traits

    @property
    def fold_case(self) -> bool:
        return self.traits.fold_case

    @property
    def reads_tables(self) -> bool:
        return True

    @property
    def logs_cascades(self) -> bool:
        return self.traits.logs_cascades

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        return statements.touched(self.traits.statements, statement, tables)

    def read_database(self, name: str) -> tuple[str, str] | None:
        """The default character set and collation of a database."""
        return self._ask(lambda connection: catalog.read_database(connection, name))

    def server_uuid(self) -> str:
        if self._server_uuid is None:
            self._server_uuid = self._ask(lambda connection: self._log_end(connection).server_uuid)
        return self._server_uuid

    def end_position(self) -> SourcePosition:
        """The end of the source's binary log. Everything that is visible now lies before it."""
        return self._ask(lambda connection: self._log_end(connection).high().opaque)

    def clock_us(self) -> int:
        """The server's time, in µs since 1970 UTC."""
        return self._ask(_clock_us)

    def read_table(self, table: TableId) -> TableSchema | None:
        schema = self._ask(lambda connection: catalog.read_table(connection, table))
        return None if schema is None else self._with_keys({schema.table: schema})[schema.table]

    def is_view(self, table: TableId) -> bool:
        return self._ask(lambda connection: catalog.is_view(connection, table))

    def may_set_savepoint(self, rollback: str) -> bool:
        return self._ask(lambda connection: savepoints.may_set(connection, rollback))

    def read_tables(self, captured: TableFilter) -> dict[TableId, TableSchema]:
        return self._with_keys(self._ask(lambda connection: catalog.read_tables(connection, captured)))

    def _with_keys(self, schemas: dict[TableId, TableSchema]) -> dict[TableId, TableSchema]:
        if not self._foreign_keys or self.traits.logs_cascades:
            return schemas
        keys = self._ask(lambda connection: read_cascading_keys(connection, schemas))
        return {table: replace(one, foreign_keys=keys.get(table, ())) for table, one in schemas.items()}

    def unfollowable(
        self, tables: Iterable[TableId], *, cascades: bool, reads: bool
    ) -> dict[TableId, Reason]:
        wanted, server = set(tables), self.traits.statements
        merges = self._ask(lambda connection: read_merge_tables(connection, wanted, server))
        found = {table: merge_reason(table, merge) for table, merge in merges.items()}
        versioned = self._ask(lambda connection: read_versioned_tables(connection, wanted))
        found |= {table: versioned_reason(table) for table in versioned}
        if reads:
            others = sorted(wanted - found.keys())
            found |= self._ask(lambda connection: broken_tables(connection, others))
        if cascades and not self.traits.logs_cascades:
            keys = self._ask(lambda connection: read_cascading_keys(connection, wanted))
            found |= {table: statements.cascade_reason(table) for table in keys}
        return found

    def cascade_reason(self, table: TableId) -> Reason:
        return statements.cascade_reason(table)

    def add_key(self, table: TableId) -> str:
        return add_key_sql(table)

    def same_definition(self, one: TableSchema | None, other: TableSchema) -> bool:
        return statements.same_definition(one, other)

    def key_literal(self, column: Column, value: Any) -> str:
        return key_literal(column, value)

    def check_condition(self, schema: TableSchema, condition: str) -> None:
        LEXIS.check_plain(condition)
        connection = connect(self._config)
        try:
            prepare_session(connection)
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN SELECT 1 FROM {quoted(schema.table)} WHERE ({condition})")
        except (pymysql.MySQLError, OSError) as error:
            if not is_refusal(error):
                why = explain(error, self._config).message
                raise TransientError(f"The condition could not be looked at. {why}") from error
            raise ConfigError(
                f"The source refuses the condition for {schema.table}: {error.args[-1]}."
            ) from None
        finally:
            connection.close()

    def find(
        self,
        schema: TableSchema,
        chunk_rows: int,
        executed: str,
        *,
        sized: Callable[[int], None],
        part: Part = ALL_ROWS,
        after: Chunk | None = None,
    ) -> Iterator[Chunk]:
        """See `Chunks.find`. `executed` is a set of GTIDs."""
        config, connection, ready = self._config, None, False
        try:
            connection = self._splitter(config)
            watermark.require_executed(connection, executed, timeout_s=GTID_WAIT_SECONDS)
            ready = True
            planner = MySqlChunkPlanner(connection, schema, chunk_rows=chunk_rows, part=part)
            sized(planner.size.rows)
            if part.keys:
                yield from keyed_chunks(schema.table, part)
            else:
                yield from planner.chunks(after=after)
            self._spares.put(_Spare(connection, config, time.monotonic()))
            connection = None
        except pymysql.ProgrammingError as error:  # no such table, no such column
            raise ChunkOutdated(f"{schema.table} changed while its chunks were sought: {error}.") from error
        except (pymysql.Error, OSError, *NOT_AN_ANSWER) as error:
            if ready and is_broken(error):
                reason, hint = broken_reason(schema.table, error)
                raise TableError(reason, hint=hint, table=str(schema.table)) from error
            why = explain(error, config).message
            raise TransientError(f"The chunks of {schema.table} could not be planned. {why}") from error
        finally:
            if connection is not None:
                connection._force_close()


def _clock_us(connection: Any) -> int:
    with connection.cursor() as cursor:
        # UNIX_TIMESTAMP of a local time can be an hour off when clocks are set back.
        cursor.execute("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
        row = cursor.fetchone()
    assert row is not None, "a SELECT without a table has one row"
    return int(row[0])
