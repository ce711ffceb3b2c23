"""The work of a Spark task that reads one chunk of a table and stages its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.schema import TableSchema, TypeOptions
from penstock.snapshot.staging import Staging, stage_chunk
from penstock.sources.chunks import Host, ViewChoice
from penstock.spark.errors import crossing


@dataclass(frozen=True)
class StageTask:
    """What a task needs to read and stage one chunk (`snapshot.staging.Stager`)."""

    host: Host
    staging: Staging
    schema: TableSchema
    chunk: Chunk
    snapshot: str
    executed: str
    types: TypeOptions
    view: ViewChoice | None = None


def stager(table: str) -> Callable[[Iterable[StageTask]], Iterator[StagedChunk]]:
    """The function that Spark tasks of `table` run. Must be called in the driver."""
    crosses = crossing(table)

    def body(jobs: Iterable[StageTask]) -> Iterator[StagedChunk]:
        with crosses.guard():
            for job in jobs:
                yield stage_chunk(
                    job.host,
                    job.staging,
                    job.schema,
                    job.chunk,
                    job.snapshot,
                    executed=job.executed,
                    types=job.types,
                    view=job.view,
                )

    return body
