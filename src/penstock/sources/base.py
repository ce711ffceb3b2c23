"""The source seam: all that the rest of Penstock asks of a source.

`sources.open_source` opens a `Source` from a pipeline's configuration; everything else comes from it. What
stands behind a source's promises (connections, SQL, the rules of its log) is known in its own folder only.

The relay log is the same for every source; `receiver.py` says what its writer promises. What a segment holds
is decoded by the core.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

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
    """One source of one pipeline. To open it asks nothing; each part connects when it is first needed.

    What asks the source raises `TransientError` while it does not answer (`SourceUnreachable` where nobody
    answers at all), and `ConfigError` for what the operator has to mend.
    """

    @property
    def preflight(self) -> Preflight: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def chunks(self) -> Chunks: ...

    @property
    def windows(self) -> Windows: ...

    @property
    def row_images(self) -> RowImages: ...

    def receiver(self, file: Path) -> Receiver:
        """The one that fills the relay log of the pipeline file `file`; it has not begun yet."""

    def end_position(self) -> SourcePosition:
        """The end of the source's log: claims no less than what is visible now. When the relay log has
        reached it (`RelayLog.reached`), it holds all of that."""

    def statements(
        self,
        captured: TableFilter,
        log: RelayLog,
        *,
        types: TypeOptions,
        parks_cascades: bool,
        keeps_keys: bool = False,
    ) -> Statements:
        """What the log's statements mean for captured tables. `parks_cascades`: a table with a foreign key
        that changes rows without events cannot be captured. `keeps_keys`: definitions have those keys."""

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        """See `Statements.touched`."""

    def snapshot_hosts(self, captured: TableFilter, bytes_outside: Callable[[str], int]) -> SnapshotHosts:
        """Where chunks of captured tables may be read. `bytes_outside`: how much of the log a host has not
        executed, which says what it has executed in the words of `ChunkReader.require`."""

    def read_view(self) -> AbstractContextManager[ReadView]:
        """Opens a connection of its own and a view in it, for the length of the block."""

    def interrupt(self, reason: str) -> int:
        """Ends every wait of this process for the source, now; from any thread. How many there were."""

    def close(self) -> None:
        """Gives connections up. Parts may still be used, and connect again."""
