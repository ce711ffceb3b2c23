"""How a snapshot reads one chunk: by a Spark job, or in its own process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.schema import TableSchema, TypeOptions
from penstock.snapshot.staging import Staging, stage_chunk
from penstock.sources.chunks import Host, ViewChoice


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
    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        """A thread that may run jobs. It is not started yet."""

    def begin(self) -> None:
        """Called in each such thread before its first job."""

    def stage(self, task: StageTask) -> StagedChunk:
        """Reads and stages one chunk."""

    def cancel(self) -> None:
        """Ends all jobs that run."""


class InProcess:
    """Chunks are read by the threads themselves."""

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=run, name=name, daemon=True)

    def begin(self) -> None:
        pass

    def stage(self, task: StageTask) -> StagedChunk:
        return task.run()

    def cancel(self) -> None:
        """Their connections are ended by `Source.interrupt`."""
