"""What a Spark task does that reads one chunk of a table and stages its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from penstock.config import SourceConfig
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.schema import TableSchema, TypeOptions
from penstock.snapshot import staging
from penstock.snapshot.single_view import Whole
from penstock.sources.mysql.snapshot.replicas import ReplicaOf
from penstock.spark.errors import crossing


@dataclass(frozen=True)
class StageTask:
    """What a task needs to read and stage one chunk. `start_gtids`: what must be executed where it is read.
    `replica_of`: `source` is a replica."""

    source: SourceConfig
    schema: TableSchema
    chunk: Chunk
    directory: str
    start_gtids: str
    watermark_table: str | None
    types: TypeOptions
    replica_of: ReplicaOf | None = None
    whole: Whole | None = None


def stager(table: str) -> Callable[[Iterable[StageTask]], Iterator[StagedChunk]]:
    """The function that a Spark task of `table` runs. To be called in the driver."""
    crosses = crossing(table)

    def body(jobs: Iterable[StageTask]) -> Iterator[StagedChunk]:
        with crosses.guard():
            for job in jobs:
                yield staging.stage_chunk(
                    job.source,
                    job.schema,
                    job.chunk,
                    job.directory,
                    start_gtids=job.start_gtids,
                    watermark_table=job.watermark_table,
                    types=job.types,
                    replica_of=job.replica_of,
                    whole=job.whole,
                )

    return body
