"""Where the chunks of a snapshot come from, and how one is read: by a Spark job, or in its own process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.model.table import TableState
from penstock.snapshot.staging import Staging, stage_chunk
from penstock.sources.chunks import Host, ViewChoice

FindChunks = Callable[[TableState, PartialSnapshot | None, Chunk | None, Callable[[int], None]], Any]
"""Yields chunks of a table or of a partial snapshot as they are found, starting after a known chunk. The
last argument is called with the server's estimate of the rows."""


@dataclass(frozen=True)
class ChunkSource:
    """Where chunks come from. `executed_at` returns what a server must have executed, for the start of a
    table. `paused`: whether a table must not be read now. `view` returns the read view for a table that must
    be read in one piece. `found_all` is called when no table is left to be split."""

    find: FindChunks
    executed_at: Callable[[Offset], str]
    types: TypeOptions
    paused: Callable[[TableId], bool] = lambda _: False
    view: Callable[[TableState], ViewChoice | None] = lambda _: None
    found_all: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class StageTask:
    """What is needed to read and stage one chunk (`snapshot.staging.Stager`). Pickles."""

    host: Host
    staging: Staging
    schema: TableSchema
    chunk: Chunk
    snapshot: str
    executed: str
    types: TypeOptions
    view: ViewChoice | None = None

    def run(self) -> StagedChunk:
        return stage_chunk(
            self.host, self.staging, self.schema, self.chunk, self.snapshot,
            executed=self.executed, types=self.types, view=self.view,
        )  # fmt: skip


class ChunkJobs(Protocol):
    opens_views: bool
    """Whether a job can open a view that this process has chosen for a table: it runs on this machine."""

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        """A thread that may run jobs. It is not started yet."""

    def begin(self) -> None:
        """Called in each such thread before its first job."""

    def stage(self, task: StageTask) -> StagedChunk:
        """Reads and stages one chunk."""

    def cancel(self) -> None:
        """Ends all jobs that run."""


class InProcess:
    """Chunks are read by the threads themselves, also those that need a view."""

    opens_views = False

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=run, name=name, daemon=True)

    def begin(self) -> None:
        pass

    def stage(self, task: StageTask) -> StagedChunk:
        return task.run()

    def cancel(self) -> None:
        """Their connections are ended by `Source.interrupt`."""
