"""Topics that Debezium fills, as a source: everything comes from the log.

The topics have the rows of Debezium's snapshot, too. So tables and their first rows are found in the log, and
no rows are ever read from the database, which Penstock does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from penstock.cascades.comparison import Comparison
from penstock.config import PipelineConfig
from penstock.errors import ConfigError, InternalError, TableError
from penstock.model.chunk import Chunk, Watermarks
from penstock.model.offset import SourcePosition
from penstock.model.partial_snapshot import Part
from penstock.model.schema import Column, TableId, TableSchema, TypeOptions
from penstock.relaylog.reader import RelayLog, Statement
from penstock.sources.catalog import Reason
from penstock.sources.chunks import ALL_ROWS, ChunkReader, ViewChoice
from penstock.sources.debezium import positions
from penstock.sources.debezium.options import options_of
from penstock.sources.debezium.preflight import DebeziumPreflight
from penstock.sources.debezium.statements import statements_of
from penstock.sources.hosts import UsableHosts
from penstock.sources.logged_definitions import LoggedDefinitions
from penstock.sources.read_view import ReadView
from penstock.sources.row_images import LogImages
from penstock.sources.supervisor import Supervisor
from penstock.sources.table_filter import TableFilter
from penstock.sources.windows import Window

NO_ROWS_HINT = (
    "Let Debezium send its rows again (its signal `execute-snapshot`), and run `penstock unpark`. Or begin "
    "again with a new `state`."
)


class DebeziumSource:
    """`sources.base.Source`."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        source = options_of(config)
        self.preflight = DebeziumPreflight(config, source)
        self.catalog = DebeziumCatalog()
        self.comparisons = ByBytes()
        self.chunks = NoChunks()
        self.windows = NoWindows()
        self.row_images = LogImages()
        self._host = Brokers(source.bootstrap)

    def receiver(self, file: Path) -> Supervisor:
        return Supervisor(file)

    def end_position(self) -> SourcePosition:
        folder = self._config.relay_log_path
        last = 0
        if RelayLog.exists(folder):
            relay = RelayLog.open(folder)
            last = relay.position_at(relay.end).order[-1] if relay.segments() else 0
        # Later than every look that has begun: `positions.next_time_us` adds one to the last.
        return positions.position(max(positions.now_us(), last + 2))

    def clock_us(self) -> int:
        raise ConfigError(
            "Topics do not tell up to which time they have everything.",
            hint="Debezium may be behind its database by any time.",
        )

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
        return tables  # only asked about tables that the catalog has

    def snapshot_hosts(self, captured: TableFilter, bytes_outside: Callable[[str], int]) -> Brokers:
        return self._host

    @contextmanager
    def read_view(self) -> Iterator[ReadView]:
        raise ConfigError(
            "The rows of a table cannot be compared with topics.",
            hint="Compare the target with the database that Debezium reads.",
        )
        yield  # makes it a generator

    def interrupt(self, reason: str) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class DebeziumCatalog:
    """`sources.catalog.Catalog` of a source that cannot be asked."""

    fold_case: bool = False
    logs_cascades: bool = True
    reads_tables: bool = False

    def read_tables(self, captured: TableFilter) -> dict[TableId, TableSchema]:
        return {}

    def read_table(self, table: TableId) -> TableSchema | None:
        raise TableError(f"The rows of {table} cannot be read again from its topic.", hint=NO_ROWS_HINT)

    def same_definition(self, one: TableSchema | None, other: TableSchema) -> bool:
        return one is not None and (one.columns, one.key) == (other.columns, other.key)

    def unfollowable(
        self, tables: Iterable[TableId], *, cascades: bool, reads: bool
    ) -> dict[TableId, Reason]:
        return {}

    def cascade_reason(self, table: TableId) -> Reason:
        return f"Rows of {table} are changed by a foreign key.", ""

    def add_key(self, table: TableId) -> str:
        return f"Give {table} a key in its messages (the connector's `message.key.columns`)"

    def check_condition(self, schema: TableSchema, condition: str) -> None:
        _refuse(schema.table)

    def key_literal(self, column: Column, value: Any) -> str:
        raise ConfigError("Rows cannot be read from topics by their key.", hint=NO_ROWS_HINT)


def _refuse(table: TableId) -> NoReturn:
    raise ConfigError(f"The rows of {table} cannot be read again from its topic.", hint=NO_ROWS_HINT)


class ByBytes:
    """`cascades.comparison.Comparisons`."""

    def of(self, column: Column) -> Comparison:
        return "exact"

    def is_case_sensitive(self, column: Column) -> bool:
        return True


class NoChunks:
    """`sources.chunks.Chunks` of a source whose rows all come with the log."""

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
        raise TableError(
            f"The rows of {schema.table} cannot be read again from its topic.", hint=NO_ROWS_HINT
        )

    def close_idle(self) -> None:
        """Nothing is open."""


class NoWindows:
    """`sources.windows.Windows`. There are no chunks, so nobody asks."""

    def of(self, watermarks: Watermarks) -> Window:
        raise InternalError("Topics have no watermarks.")

    def common(self, seen: Any) -> str:
        raise InternalError("Topics have no watermarks.")


@dataclass(frozen=True)
class Brokers:
    """`sources.chunks.Host` and `sources.hosts.SnapshotHosts`: nothing is read from it."""

    address: str
    is_replica: bool = False
    is_needed: bool = False

    def open_reader(self, *, types: TypeOptions, view: ViewChoice | None = None) -> ChunkReader:
        raise InternalError("Topics have no chunks.")

    def followed(self) -> Brokers:
        return self

    def look(self) -> UsableHosts:
        return UsableHosts((self,))

    def close(self) -> None:
        """Nothing is open."""

    def hosts_to_json(self) -> list[dict[str, Any]]:
        return []
