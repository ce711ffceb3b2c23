"""The source seam: everything that other parts of Penstock need from a source.

`sources.open_source` opens a `Source` from a pipeline's configuration. Everything else comes from it. Only a
source's own folder knows its connections, its SQL and the rules of its log.

The relay log is the same for every source. `receiver.py` says what its writer promises. The core decodes the
segments.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from penstock.cascades.comparison import Comparisons
from penstock.model.offset import SourcePosition
from penstock.model.schema import TableId, TypeOptions
from penstock.relaylog.reader import RelayLog, Statement
from penstock.sources.catalog import Catalog
from penstock.sources.chunks import Chunks
from penstock.sources.hosts import SnapshotHosts
from penstock.sources.preflight import Preflight
from penstock.sources.read_view import ReadView
from penstock.sources.receiver import Receiver
from penstock.sources.row_images import RowImages
from penstock.sources.statements import Statements
from penstock.sources.table_filter import TableFilter
from penstock.sources.windows import Windows


class Source(Protocol):
    """One source of one pipeline. Opening it does not connect. Each part connects when it is first needed.

    A call that needs the source raises `TransientError` while the source does not answer, or
    `SourceUnreachable` if nobody answers at all. It raises `ConfigError` for problems that the operator must
    fix.
    """

    @property
    def preflight(self) -> Preflight: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def comparisons(self) -> Comparisons: ...

    @property
    def chunks(self) -> Chunks: ...

    @property
    def windows(self) -> Windows: ...

    @property
    def row_images(self) -> RowImages: ...

    def receiver(self, file: Path) -> Receiver:
        """Makes the receiver that fills the relay log of the pipeline file `file`. It is not started yet."""

    def end_position(self) -> SourcePosition:
        """The end of the source's log. Everything that is visible at the source now is before it. So a relay
        log that has reached it (`RelayLog.reached`) contains all of that."""

    def clock_us(self) -> int:
        """The source's time, in µs since 1970 UTC. What has a commit time up to it is before the end that
        `end_position` returns afterwards. Raises `ConfigError` if the source cannot tell."""

    def statements(
        self,
        captured: TableFilter,
        log: RelayLog,
        *,
        types: TypeOptions,
        parks_cascades: bool,
        with_foreign_keys: bool = False,
    ) -> Statements:
        """What the statements in the log mean for captured tables. `parks_cascades`: a table is parked if a
        foreign key changes its rows without row events. `with_foreign_keys`: definitions have those keys."""

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        """See `Statements.touched`."""

    def snapshot_hosts(self, captured: TableFilter, bytes_outside: Callable[[str], int]) -> SnapshotHosts:
        """Chooses the servers that chunks of captured tables are read from. `bytes_outside` returns how many
        bytes of the log a server lacks, for what it has executed (in the form that `ChunkReader.require`
        takes)."""

    def read_view(self) -> AbstractContextManager[ReadView]:
        """Opens a connection and a read view in it. Both are closed at the end of the block."""

    def interrupt(self, reason: str) -> int:
        """Ends every wait of this process for the source at once, and returns how many there were. Any thread
        may call it."""

    def close(self) -> None:
        """Closes all connections. Parts may still be used; they connect again."""
